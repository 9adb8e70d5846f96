"""For scripts that run a program in a guest."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

LAB = Path(__file__).resolve().parents[1] / "lab"


def run_lab(*arguments: str) -> int:
    """Runs ``scripts/lab run`` with these arguments; returns its exit status.

    Ctrl-C reaches both. The lab handles it: it ends the guest, removes its files and returns 130.
    The signal is not ignored here, because the lab would inherit that.
    """
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run([str(LAB), "run", *arguments], check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
