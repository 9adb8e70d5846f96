#!/usr/bin/env python3
"""A stand-in for dtrace(1): lists the probes that are asked for, and replays what it printed on
FreeBSD 15.0 (tests/data/dtrace). Of scripts without a record it prints lines that are made up.

In the directory $DTRACE_STANDIN: `missing` has the probes that are not there, `broken` the scripts
that do not compile, `faulty` those with faults, `stubborn` those that ignore SIGINT. `watch` is a
directory: the script that counts prints nothing before somebody does fsyncs in it, on a file
zfstune-check.*; the kstat of commits in the table of sysctls rises then.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parents[1] / "data/dtrace"
PROBES = HERE.parents[1] / "data/dtrace_probes.toml"
STACKS = HERE.parents[1] / "data/flame/raw/fsyncstack-freebsd.out"
SETTINGS = Path(os.environ["DTRACE_STANDIN"])
COUNTER = "zilevent-json.d"
KSTAT = "kstat/zfs/misc/zil/zil_commit_count"
FSYNCS = 40
OBJSET = 75  # of tank/db in the table of sysctls; in a record it is the first
ended = False


def setting(name: str) -> list[str]:
    path = SETTINGS / name
    return path.read_text().split() if path.exists() else []


def show_probes(words: list[str]) -> int:
    """`dtrace -l -P A -n B`, as dtrace.c of FreeBSD has it."""
    missing = setting("missing")
    print(f"{'ID':>5} {'PROVIDER':>10} {'MODULE':>17} {'FUNCTION':>33} NAME")
    for number, probe in enumerate(tomllib.loads(PROBES.read_text())["probe"], 1):
        provider, module, function, name = probe["name"].split(":")
        if probe["name"] not in missing and {provider, probe["name"]} & set(words):
            module = module or {"sdt": "zfs", "sched": "kernel"}.get(provider, "")
            print(f"{number:5} {provider:>10} {module:>17} {function:>33} {name}")
    return 0


# Whose first argument is a number.
NUMBER_FIRST = ("zilevent-json.d", "fsyncstack.d", "zfsread-json.d")


def bump() -> None:
    """More ZIL commits in the table of sysctls."""
    table = Path(os.environ["SYSCTL_STANDIN_TABLE"])
    lines = [line.split("\t") for line in table.read_text().splitlines()]
    text = "\n".join(
        "\t".join([*words[:3], str(int(words[3]) + FSYNCS)] if words[0] == KSTAT else words)
        for words in lines
    )
    new = table.with_name(table.name + ".dtrace")
    new.write_text(text + "\n")
    new.replace(table)


def output(name: str) -> list[str]:
    recorded = STACKS if name == "fsyncstack.d" else RECORDED / f"{name}.out"
    if recorded.exists():
        text = recorded.read_text()
        if first := re.search(r'"objset":\d+,', text):
            text = text.replace(first[0], f'"objset":{OBJSET},')
        return [line for line in text.splitlines() if line]
    tool = name.removesuffix("-json.d")
    if tool == name:
        return ["Tracing... Hit Ctrl-C to end.", "errors: 0"]
    begin = f'{{"schema":1,"type":"trace_begin","tool":"{tool}"}}'
    end = f'{{"schema":1,"type":"trace_end","tool":"{tool}","duration_ns":1,"errors":0}}'
    return [begin, '{"schema":1,"type":"trace_state","count":0,"errors":0}', end]


def wait(until: str, states: list[str]) -> None:
    """Until there is such a file, or the end; meanwhile it prints its state twice a second."""
    told = time.monotonic()
    while not ended and not (until and list(Path(until).glob("zfstune-check.*"))):
        time.sleep(0.02)
        if time.monotonic() > told + 0.5:
            print(*states[-1:], flush=True)
            told += 0.5


def run_script(path: Path, arguments: list[str]) -> int:
    if path.name in NUMBER_FIRST and not "".join(arguments[:1] or "0").isdigit():
        # $1 is an expression of D
        sys.stderr.write(f"dtrace: failed to compile script {path}: failed to resolve a name\n")
        return 1
    if path.name in setting("broken"):
        sys.stderr.write(
            f'dtrace: failed to compile script {path}: line 7: syntax error near ")"\n'
        )
        return 1
    lines = output(path.name)
    if path.name in setting("faulty"):
        lines = [line.replace('"errors":0', '"errors":2') for line in lines]
        sys.stderr.write("dtrace: error on enabled probe ID 7: invalid address (0x0)\n")
    states = [line for line in lines if '"type":"trace_state"' in line]
    print(lines[0], flush=True)
    watch = setting("watch")
    if watch and path.name == COUNTER:
        wait(watch[0], states[:1])
        if not ended:
            bump()
    print(*lines[1:-1], sep="\n", flush=True)
    wait("", states)
    print(lines[-1], flush=True)
    return 0


def end(_number: int, _frame: object) -> None:
    global ended
    ended = True


def main(words: list[str]) -> int:
    if words == ["-V"]:
        print("dtrace: Sun D 1.13")
        return 0
    words = [word for word in words if word != "-xnolibs"]
    if words[0] == "-l":
        return show_probes(words[1:])
    name = Path(words[1]).name
    signal.signal(signal.SIGINT, signal.SIG_IGN if name in setting("stubborn") else end)
    signal.signal(signal.SIGTERM, end)
    return run_script(Path(words[1]), words[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
