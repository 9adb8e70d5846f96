"""Guesses what folded text counts: the format does not say."""

from __future__ import annotations

from collections.abc import Mapping

from zfstrace.stacks import LABELS, WAKER, label_frames

# The last frames of a thread that yields its CPU, as reported by the tracers of each system.
_SWITCHES = (
    *("schedule", "__schedule", "finish_task_switch", "__traceiter_sched_switch"),
    *("sched_switch", "mi_switch"),  # FreeBSD
)


def kind(counts: Mapping[str, int]) -> str:
    """``wakeup`` with a frame ``--``, ``off-cpu`` if most of the weight ends in the scheduler, else
    ``other``."""
    if any(f";{WAKER};" in stack for stack in counts):
        return "wakeup"
    asleep = sum(n for stack, n in counts.items() if _sleeps(stack))
    return "off-cpu" if 2 * asleep > sum(counts.values()) else "other"


def unit(counts: Mapping[str, int], as_kind: str) -> str:
    """``ns`` for times recorded by zfstune, else ``samples``."""
    ours = label_frames(counts) == LABELS
    return "ns" if ours and as_kind in ("off-cpu", "wakeup") else "samples"


def _sleeps(stack: str) -> bool:
    leaf = stack.rpartition(";")[2].split(" ", 1)[0].split("+", 1)[0].split(".", 1)[0]
    return leaf in _SWITCHES or leaf.endswith("schedule")
