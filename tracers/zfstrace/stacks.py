"""Stacks with weights, as they are recorded, read, drawn and written.

A stack is one folded string: frames from the root on, joined by ``;``. What zfstune records
begins with three frames that are no functions: pool, stage, comm. In the wakeup form the sleeper's
stack is followed by the frame ``--``, then by the waker's stack from its leaf to its root, and by
the waker's comm (as bcc's offwaketime has it).
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

# The stage frame of threads that are not inside an fsync: those that sync a txg, and all others.
TXG_SYNC = "txg_sync"
OUTSIDE = "outside"
STAGE_FRAMES = frozenset((*NAMES, TXG_SYNC, OUTSIDE))
# pool, stage, comm
LABELS = 3


@dataclass(frozen=True)
class Stacks:
    """Folded stacks and their weights.

    kind is one of KINDS, unit one of UNITS. counts has the weight of each stack in that unit, more
    than 0, by its folded form (see :func:`fold`).
    """

    kind: str
    unit: str
    title: str
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for a kind or a unit that there is not."""
        if self.kind not in KINDS or self.unit not in UNITS:
            raise ValueError(f"no stacks of kind {self.kind!r} in {self.unit!r}")

    @property
    def total(self) -> int:
        """The sum of the weights."""
        return sum(self.counts.values())


def fold(frames: Iterable[str]) -> str:
    """The folded form of a stack; its frames come root first.

    What would break the form is replaced: ``;`` by ``:``, line breaks and other white space by one
    space, what cannot be printed by ``?``, and a frame without a name by ``[unknown]``.
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
    """How many frames at the root are no functions.

    LABELS when pool, stage and comm are there, else 1: the process, as other tools write it.
    """
    known = False
    for stack in stacks:
        parts = stack.split(";", 2)
        if len(parts) < 2 or parts[1] not in STAGE_FRAMES:
            return 1
        known = True
    return LABELS if known else 1
