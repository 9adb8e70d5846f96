#!/usr/bin/env python3
"""Counts how often `make demo` proves a gain, and how long it takes; writes
docs/measurements/demo.md, again after each run.

usage: scripts/benchmarks/demo.py [--runs N] [--beside COMMAND] [--image]

Ctrl-C ends it; the runs so far stay on the page.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from zfslab import image, kvm, qemu  # noqa: E402
from zfslab.errors import LabError  # noqa: E402

PAGE = ROOT / "docs/measurements/demo.md"
SESSION = ROOT / "demo/tune/session.json"
# What a session says when it begins
BEGINS = "zfstune: session on "

HEAD = """\
# How often the demo proves a gain, and how long it takes

Written by `make bench-demo{options}` on {date}, at commit {commit}.
Host: {machine}.{beside}

Each run is a whole `make demo`. The change is that of the session's own proof, on fresh blocks; an
interval covers the true change in at least 95 of 100 cases. Minutes count from the start of `make`.
"""

TABLE = """
| run | proved | change of p99 | minutes in all | minutes until the proof |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Run:
    """One `make demo`: its exit status, the seconds that it took, those until its session began
    (None if none did), and the session (None without one)."""

    status: int
    seconds: float
    began_s: float | None
    session: dict[str, Any] | None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--beside", metavar="COMMAND", help="keep this shell command running")
    parser.add_argument("--image", action="store_true", help="one more before, without any image")
    args = parser.parse_args()
    # the page itself makes the checkout differ from its commit
    above, first = head(args.beside), None
    runs: list[Run] = []
    with contextlib.suppress(KeyboardInterrupt), beside(args.beside):
        if args.image:
            with tempfile.TemporaryDirectory(prefix="zfstune-demo-") as empty:
                first = run({"XDG_CACHE_HOME": empty})
            write(above, first, runs)
        while len(runs) < args.runs:
            runs.append(run({}))
            write(above, first, runs)
        return 0
    return 130


@contextlib.contextmanager
def beside(command: str | None) -> Iterator[None]:
    """Keeps a shell command running, again when it ends; kills it and what it has started at the
    end."""
    over = threading.Event()

    def keep() -> None:
        while command and not over.is_set():
            process = subprocess.Popen(
                command,
                shell=True,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while process.poll() is None and not over.wait(0.2):
                pass
            end(process)
            # one that fails at once must not keep a CPU busy
            over.wait(1)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def end(process: subprocess.Popen[Any]) -> None:
    """Ends a process group, whose first process this is: politely, and for sure."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + 10
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
    process.wait()


def run(environment: dict[str, str]) -> Run:
    """Runs `make demo` and passes on what it says."""
    SESSION.unlink(missing_ok=True)
    # flags of a make around this one, such as -j, are not for it
    inherited = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    begin, began_s = time.monotonic(), None
    with subprocess.Popen(
        ["make", "--no-print-directory", "demo"],
        cwd=ROOT,
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                if BEGINS in line:
                    began_s = time.monotonic() - begin
        except KeyboardInterrupt:
            end(process)
            raise
    seconds = time.monotonic() - begin
    session = json.loads(SESSION.read_text()) if SESSION.exists() else None
    return Run(process.returncode, seconds, began_s, session)


def write(above: str, first: Run | None, runs: Sequence[Run]) -> None:
    PAGE.write_text(above + table(first, runs), encoding="utf-8")
    print(table(first, runs), flush=True)


def head(command: str | None) -> str:
    words = shlex.join(sys.argv[1:]).replace('"', '\\"')
    return HEAD.format(
        options=f' DEMO="{words}"' if words else "",
        date=datetime.date.today().isoformat(),
        commit=commit(),
        machine=f"{os.cpu_count()} cores of {cpu()}, guests {accelerated()}",
        beside=f"\nBeside each run ran, again and again: `{command}`" if command else "",
    )


def commit() -> str:
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def accelerated() -> str:
    try:
        return "under KVM" if kvm.kvm_works(qemu.find(), image.find("trixie")) else "emulated"
    except LabError:
        return "of an unknown kind"


def table(first: Run | None, runs: Sequence[Run]) -> str:
    """The runs, and above them the one that had no image; the last line counts those that proved a
    gain."""
    text = ""
    if first is not None:
        text += f"\nFrom nothing, with the making of the guest's image:\n{TABLE}{row('0', first)}"
        text += "\nWith the image there:\n"
    rows = "".join(row(str(number), one) for number, one in enumerate(runs, 1))
    count = sum(proved(one) for one in runs)
    return f"{text}{TABLE}{rows}\n{count} of {len(runs)} runs proved a gain.\n"


def row(name: str, one: Run) -> str:
    cells = [name, why(one), change(one), minutes(one.seconds), minutes(proof_s(one))]
    return f"| {' | '.join(cells)} |\n"


def proved(one: Run) -> bool:
    return bool(one.status == 0 and one.session and one.session["in_force"])


def why(one: Run) -> str:
    """yes, or why nothing was proved."""
    if proved(one):
        return "yes"
    if one.status:
        return f"no: it ended with status {one.status}"
    if one.session is None:
        return "no: there was no session"
    verdict = one.session["verdict"]
    reason = one.session["note"] or (verdict["kind"] if verdict else "no verdict")
    return "no: " + " ".join(reason.replace("|", "/").split())


def change(one: Run) -> str:
    verdict = one.session["verdict"] if one.session else None
    if not verdict:
        return "-"
    return f"{verdict['change']:+.0%} ({verdict['low']:+.0%} to {verdict['high']:+.0%})"


def proof_s(one: Run) -> float | None:
    """When the last pair of the proof ended."""
    if not proved(one) or one.session is None or one.began_s is None:
        return None
    blocks = [block for block in one.session["blocks"] if block["phase"] == "confirm"]
    return one.began_s + max(float(block["start_s"] + block["seconds"]) for block in blocks)


def minutes(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 60:.1f}"


if __name__ == "__main__":
    sys.exit(main())
