"""Stacks with weights, as they are recorded, read, drawn and written.

A stack is one folded string: frames from the root on, joined by ``;``. Recordings of zfstune begin
with three frames that are not functions: pool, stage, comm. In the wakeup form the sleeper's stack
is followed by the frame ``--``, the waker's stack from leaf to root, and the waker's comm (as in
bcc's offwaketime).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from zfstrace.printable import printable
from zfstrace.stages import NAMES

KINDS = ("off-cpu", "on-cpu", "wakeup", "other")
UNITS = ("ns", "samples")

# Between sleeper and waker.
WAKER = "--"
UNKNOWN = "[unknown]"

# The stage frame of threads that are not in an fsync: those that sync a txg, and all others.
TXG_SYNC = "txg_sync"
OUTSIDE = "outside"
STAGE_FRAMES = frozenset((*NAMES, TXG_SYNC, OUTSIDE))
# pool, stage, comm
LABELS = 3


@dataclass(frozen=True)
class Stacks:
    """Folded stacks and their weights.

    kind is one of KINDS, unit one of UNITS. counts has the weight of each stack, over 0, in that
    unit, by folded form (see :func:`fold`).
    """

    kind: str
    unit: str
    title: str
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown kind or unit."""
        if self.kind not in KINDS or self.unit not in UNITS:
            raise ValueError(f"no stacks of kind {self.kind!r} in {self.unit!r}")

    @property
    def total(self) -> int:
        """The sum of the weights."""
        return sum(self.counts.values())


def fold(frames: Iterable[str]) -> str:
    """The folded form of a stack, whose frames are root first.

    Replaces what would break the form: ``;`` by ``:``, white space including line breaks by one
    space, what is not printable by ``?``, and an empty name by ``[unknown]``.
    """
    return ";".join(map(_clean, frames))


@lru_cache(maxsize=8192)
def _clean(frame: str) -> str:
    text = " ".join(frame.replace(";", ":").split())
    return printable(text) or UNKNOWN


def unfold(stack: str) -> list[str]:
    """The frames of a folded stack, root first."""
    return stack.split(";")


def label_frames(stacks: Iterable[str]) -> int:
    """How many frames at the root are not functions: LABELS (pool, stage and comm) if all stacks
    have a stage, else 1: the process, as in other tools."""
    known = False
    for stack in stacks:
        parts = stack.split(";", 2)
        if len(parts) < 2 or parts[1] not in STAGE_FRAMES:
            return 1
        known = True
    return LABELS if known else 1
