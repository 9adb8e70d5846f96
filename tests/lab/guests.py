"""What ends a guest, seldom, that no test is the cause of (docs/lab.md)."""

from __future__ import annotations

ATTEMPTS = 3

# The marks of it in the output of scripts/lab.
_FAULTS = {
    "the guest's kernel fell": ("RIP: 0010:0x0", "Unable to access opcode bytes", "Kernel panic"),
    "the guest did not boot": ("lab: the guest was not ready",),
}


def fault_of(text: str) -> str | None:
    """Which of them scripts/lab has told of: then the run is repeated."""
    for fault, marks in _FAULTS.items():
        if all(mark in text for mark in marks):
            return fault
    return None
