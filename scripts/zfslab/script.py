"""What the scripts that run something in a guest share."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

_LAB = Path(__file__).resolve().parents[1] / "lab"


def run_lab(*arguments: str) -> int:
    """``scripts/lab run`` with these arguments; returns its exit status.

    Ctrl-C comes to both. It is the lab's: that ends the guest, removes its files and returns 130.
    Not by ignoring the signal, which the lab would inherit.
    """
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run([str(_LAB), "run", *arguments], check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
