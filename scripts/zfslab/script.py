"""For scripts that run a program in a guest."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

LAB = Path(__file__).resolve().parents[1] / "lab"


def run_lab(*arguments: str, line: Callable[[str], None] | None = None) -> int:
    """Runs ``scripts/lab run`` with these arguments; returns its exit status. Each line that the
    program prints goes to `line` if given, as soon as it is there.

    Ctrl-C reaches both. The lab handles it: it ends the guest, removes its files and returns 130.
    The signal is not ignored here, because the lab would inherit that.
    """
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        output = None if line is None else subprocess.PIPE
        with subprocess.Popen([str(LAB), "run", *arguments], stdout=output, text=True) as lab:
            for one in lab.stdout or ():
                if line is not None:
                    line(one)
        return lab.returncode
    finally:
        signal.signal(signal.SIGINT, before)
