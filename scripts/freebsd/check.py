#!/usr/bin/env python3
"""Tries every part of zfstune on this FreeBSD host and prints a text for an issue; run by
scripts/freebsd-check. Needs only an unpacked source tree and the standard library."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# puts zfstune on the path
from freebsd.host import COMMAND_S, FSYNCS, Failed, Host, Result, Skipped
from freebsd.items import ITEMS, TXG_TIMEOUT, Item
from zfstrace import processes
from zfstune import __version__

DESCRIPTION = """\
Tries every part of zfstune on this FreeBSD host and prints PASS, FAIL or SKIP for each, then a text
to paste into an issue: versions, the layout of the pools without their names, and what failed. It
takes one to two minutes. By default it changes nothing and writes no file; D scripts run for a
second or two each, which needs root and `kldload dtraceall`.
"""
EXAMPLES = """\
examples:
  scripts/freebsd-check                       everything that changes nothing
  scripts/freebsd-check --dir /tank/scratch   also whether fsyncs are counted exactly
  scripts/freebsd-check --write               also whether a parameter is set and restored
  scripts/freebsd-check --only zilcommit.d    a single item
  scripts/freebsd-check --json > check.json

exit status: 0 nothing failed, 1 an item failed, 2 usage, 3 not FreeBSD, 130 interrupted
"""

DONE, FAILED, NOT_POSSIBLE, INTERRUPTED = 0, 1, 3, 130


def try_item(name: str, item: Item, host: Host) -> Result:
    """The item's verdict; never raises."""
    try:
        said = item(host)
    except Skipped as why:
        return Result(name, "SKIP", str(why))
    except Failed as why:
        return Result(name, "FAIL", str(why), why.more)
    except Exception as error:  # our fault or the host's: go on with the other items
        return Result(name, "FAIL", f"{type(error).__name__}: {error}")
    text, more = (said, ()) if isinstance(said, str) else said
    return Result(name, "PASS", text, tuple(more))


# --- the text for an issue


_KIND = re.compile(r"(mirror|raidz\d?|draid\d?|spares?|replacing|logs|cache|special|dedup)\b")


def layout() -> list[str]:
    """The layout of each pool as zpool(8) shows it, without names."""
    said = processes.output(["zpool", "status"], COMMAND_S)
    found: list[str] = []
    for block in re.findall(r"^\s*NAME\s+STATE.*\n((?:\t.*\n)+)", said, re.MULTILINE):
        words: dict[str, int] = {}
        for line in block.splitlines()[1:]:
            name = line.split()[0] if line.split() else ""
            kind = _KIND.match(name)
            word = kind[1] if kind else "disk"
            words[word] = words.get(word, 0) + 1
        found.append(", ".join(f"{count} {word}" for word, count in words.items()) or "nothing")
    return found


def facts(host: Host) -> list[str]:
    """Versions and sizes; no names of the host, its pools or its disks."""
    name = os.uname()
    # not the version of uname(3), which may tell who built the kernel, and where
    osreldate = host.sysctl.get_int("kern.osreldate")
    memory = host.sysctl.get_int("hw.physmem") or 0
    lines = [
        f"zfstune {__version__}, Python {'.'.join(map(str, sys.version_info[:3]))}",
        f"{name.sysname} {name.release} {name.machine}, kern.osreldate {osreldate}",
        f"freebsd-version -ku: {' '.join(processes.output(['freebsd-version', '-ku'], 5).split())}",
        f"OpenZFS module: {host.version() or 'not loaded'}",
        f"CPUs: {os.cpu_count()}, memory: {memory >> 20} MiB",
    ]
    return lines + [f"pool {n}: {shape}" for n, shape in enumerate(layout(), 1)]


def without_names(text: str, host: Host) -> str:
    """The text, with pool1 for the first pool, pool1/... for its datasets, DIR and HOST."""
    hidden = {os.uname().nodename: "HOST"}
    if host.directory:
        hidden[str(host.directory)] = "DIR"
    for number, pool in enumerate(host.kstats.pools(), 1):
        text = re.sub(rf"(?<![\w.-]){re.escape(pool)}/[\w.:/%-]*\w", f"pool{number}/...", text)
        hidden[pool] = f"pool{number}"
    # a host whose hostname nobody has set has none
    for name in sorted(filter(None, hidden), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", hidden[name], text)
    return text


def issue(results: Sequence[Result], about: Sequence[str]) -> list[str]:
    """The text to paste: all results, with their details."""
    lines = ["```", *about, ""]
    for result in results:
        lines.append(f"{result.verdict} {result.item}: {result.said}")
        lines += [f"     {line}" for line in result.more]
    return [*lines, "```"]


def interrupted(host: Host) -> None:
    """Prints how to restore a parameter that Ctrl-C may have left."""
    hint = "\nhint: run `zfstune status`" if host.write else ""
    print(f"\nfreebsd-check: interrupted{hint}", file=sys.stderr)


def check(host: Host, *, as_json: bool) -> int:
    """Tries all chosen items, prints the results, returns the exit status."""
    out = sys.stderr if as_json else sys.stdout
    results = []
    chosen = [(name, item) for name, item in ITEMS if not host.only or name in host.only]
    for number, (name, item) in enumerate(chosen, 1):
        if sys.stderr.isatty():
            print(f"[{number}/{len(chosen)}] {name} ...", end="\r", file=sys.stderr, flush=True)
        result = try_item(name, item, host)
        results.append(result)
        print(f"{result.verdict}  {name:<18} {result.said}", file=out, flush=True)
        if result.verdict == "FAIL":
            for line in result.more:
                print(f"      {line}", file=out)
    about = facts(host)
    failed = sum(result.verdict == "FAIL" for result in results)
    skipped = sum(result.verdict == "SKIP" for result in results)
    if as_json:
        found = [vars(result) for result in results]
        whole = {"schema": 1, "type": "freebsd_check", "failed": failed, "skipped": skipped}
        print(without_names(json.dumps(whole | {"facts": about, "items": found}), host))
    else:
        print(f"\n{len(results)} items, {failed} failed, {skipped} skipped. For an issue:\n")
        print(without_names("\n".join(issue(results, about)), host))
    return FAILED if failed else DONE


def main(arguments: Sequence[str] | None = None, **others: Any) -> int:
    """Runs the command line; returns the exit status. others are fields of Host, for tests."""
    parser = argparse.ArgumentParser(
        prog="scripts/freebsd-check",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help=f"do {FSYNCS} fsyncs there, on a temporary file"
    )
    parser.add_argument(
        "--write", action="store_true", help=f"increase {TXG_TIMEOUT} by one, and restore it"
    )
    parser.add_argument(
        "--earlier-boot", default="", metavar="ID", help="the boot id before a reboot"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[name for name, _ in ITEMS],
        metavar="ITEM",
        help="only this item; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the text")
    given = parser.parse_args(arguments)
    if given.dir is not None and not given.dir.is_dir():
        parser.error(f"--dir {given.dir} is not a directory\nhint: create it on a ZFS dataset")
    if not sys.platform.startswith("freebsd"):
        print(f"freebsd-check: error: this is {sys.platform}, not FreeBSD", file=sys.stderr)
        print("hint: run it on the host to be checked", file=sys.stderr)
        return NOT_POSSIBLE
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    host = Host(given.dir, given.write, given.earlier_boot, given.only, **others)
    try:
        return check(host, as_json=given.json)
    except KeyboardInterrupt:
        interrupted(host)
        return INTERRUPTED
    except BrokenPipeError:
        # the reader is gone, and Python would complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"freebsd-check: error: cannot go on: {error.strerror or error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
