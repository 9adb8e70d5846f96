"""The position of each frame of a flame graph.

Stacks that share their first frames are adjacent when sorted, so a frame is a range of the sorted
stacks and its weight a difference of two running sums. The ranges are split from the root on, only
while a frame is wide enough to be drawn: narrow frames cost nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from zfstrace.stacks import WAKER

ROOT = "all"


class Frame(NamedTuple):
    """A frame that is drawn; it covers the sorted stacks from first to last (exclusive)."""

    name: str
    depth: int
    first: int
    last: int
    # after the frame `--`
    waker: bool


@dataclass
class Hidden:
    """Frames too narrow to draw, not counting those above them, and their total weight."""

    frames: int = 0
    weight: int = 0


def order(stacks: Iterable[str]) -> list[str]:
    """The stacks sorted as if each ended in ``;``, so that those of a frame are adjacent."""
    return sorted(stacks, key=lambda stack: stack + ";")


def sums(stacks: Iterable[str], counts: Mapping[str, int]) -> list[int]:
    """Running sums of the weights in the order of stacks, beginning with 0."""
    return list(accumulate((counts.get(stack, 0) for stack in stacks), initial=0))


def frames(stacks: list[str], weights: list[int], least: float, hidden: Hidden) -> Iterator[Frame]:
    """All frames with a weight of least or more: each before those above it, from left to right.

    stacks are from :func:`order`, weights from :func:`sums`. Adds narrower frames to hidden.
    """
    keys = [stack + ";" for stack in stacks]
    # The second element is where the children's names begin in the keys.
    todo = [(Frame(ROOT, 0, 0, len(keys), False), 0)]
    while todo:
        frame, start = todo.pop()
        yield frame
        children = []
        for child, end in _children(keys, frame, start):
            weight = weights[child.last] - weights[child.first]
            if weight and weight >= least:
                children.append((child, end + 1))
            elif weight:
                hidden.frames += 1
                hidden.weight += weight
        todo += reversed(children)


def _children(keys: list[str], parent: Frame, start: int) -> Iterator[tuple[Frame, int]]:
    """Each child, and where its name ends."""
    depth, waker = parent.depth + 1, parent.waker or parent.name == WAKER
    first, last = parent.first, parent.last
    while first < last:
        key = keys[first]
        end = key.find(";", start)
        if end < 0:
            # this stack ends in the parent
            first += 1
            continue
        if keys[last - 1].startswith(key[: end + 1]):
            after = last
        else:
            # "<" is the character after ";": finds the first key without this prefix
            after = bisect_left(keys, key[:end] + "<", first + 1, last)
        yield Frame(key[start:end], depth, first, after, waker), end
        first = after
