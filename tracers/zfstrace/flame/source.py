"""Reads stacks from files of zfstune and other tools."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from zfstrace.flame.errors import FlameError
from zfstrace.stacks import Stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfstrace.flame.raw import Raw

STDIN = "-"

# The factor for each unit of a file, and the resulting unit of the stacks.
_SCALES: dict[str | None, tuple[int, str]] = {
    "ns": (1, "ns"),
    "us": (1000, "ns"),
    "ms": (1_000_000, "ns"),
    "samples": (1, "samples"),
}


class Source(NamedTuple):
    """The stacks of a file; notes are sentences about oddities in it."""

    stacks: Stacks
    notes: list[str]


def read(path: str, *, unit: str | None = None, kind: str | None = None) -> Source:
    """The stacks of a file; ``-`` is text from standard input. Raises FlameError.

    unit is ``ns``, ``us`` or ``samples``, kind one of KINDS; by default they are guessed from text,
    other formats state them. A file without a known extension is text: folded, or as printed by
    dtrace and bpftrace.
    """
    name = "standard input" if path == STDIN else path
    if path.endswith((".svg", ".svgz")):
        raise FlameError(f"cannot read stacks from {path}: it is a picture", "use its folded file")
    if path.endswith((".pb.gz", ".pb")):
        from zfstrace.flame import pprof

        found = Source(pprof.load(_content(path), name), [])
    elif path.endswith(".json"):
        from zfstrace.flame import speedscope

        found = Source(speedscope.load(_content(path).decode(errors="replace"), name), [])
    else:
        return _read_text(path, name, unit, kind)
    return _override(found, name, unit, kind)


def _override(found: Source, name: str, unit: str | None, kind: str | None) -> Source:
    """Applies the unit and kind of the caller. Raises FlameError if the file states another
    unit."""
    stacks = found.stacks
    if unit not in (None, stacks.unit) and stacks.unit == "ns":
        raise FlameError(
            f"cannot read {name} as {unit}: it says that it counts time", f"leave out --unit {unit}"
        )
    scale, as_unit = _SCALES.get(unit, (1, stacks.unit))
    counts = {stack: n * scale for stack, n in stacks.counts.items()}
    return Source(_some(Stacks(kind or stacks.kind, as_unit, stacks.title, counts), name), [])


def _read_text(path: str, name: str, unit: str | None, kind: str | None) -> Source:
    from zfstrace.flame import raw

    with _open(path) as lines:
        form, lines = raw.form(lines)
        if form == "dtrace":
            from zfstrace.flame import raw_dtrace

            found = raw_dtrace.parse(lines, name, kind)
        elif form == "bpftrace":
            from zfstrace.flame import raw_bpftrace

            found = raw_bpftrace.parse(lines, name)
        else:
            return _read_folded(path, lines, name, unit, kind)
    return _judge_raw(path, found, name, unit, kind)


def _read_folded(
    path: str, lines: Iterable[str], name: str, unit: str | None, kind: str | None
) -> Source:
    from zfstrace.flame import folded, guess

    parsed = folded.parse(lines, _SCALES.get(unit, (1, ""))[0])
    # A picture or a program may have some such lines by chance.
    if parsed.bad and parsed.bad >= 10 * parsed.good:
        raise FlameError(
            f"cannot read stacks from {name}: it has {parsed.good} lines like `frame;frame count`, "
            "and no stacks of dtrace or bpftrace"
        )
    as_kind = kind or guess.kind(parsed.counts)
    as_unit = _SCALES[unit][1] if unit else guess.unit(parsed.counts, as_kind)
    stacks = _some(Stacks(as_kind, as_unit, _title(path), parsed.counts), name)
    notes = []
    if parsed.bad:
        notes.append(
            f"left out {parsed.bad:,} of {parsed.good + parsed.bad:,} lines of {name}: "
            f"no stack with a count, first in line {parsed.first_bad}"
        )
    if folded.has_two_counts(parsed.counts):
        notes.append(f"all lines of {name} end in two numbers: only the last one is used")
    if unit is None:
        notes += _unknown_unit(stacks, name)
    return Source(stacks, notes)


def _judge_raw(path: str, found: Raw, name: str, unit: str | None, kind: str | None) -> Source:
    """Raw stacks with kind and unit from the caller, the text, or a guess, in this order."""
    from zfstrace.flame import guess

    as_kind = kind or found.kind or guess.kind(found.counts)
    scale, as_unit = _SCALES[unit or found.unit or "samples"]
    if unit and found.unit and unit != found.unit:
        raise FlameError(
            f"cannot read {name} as {unit}: it says that it counts {found.unit}",
            f"leave out --unit {unit}",
        )
    counts = {stack: n * scale for stack, n in found.counts.items()}
    stacks = _some(Stacks(as_kind, as_unit, _title(path), counts), name)
    notes = list(found.notes)
    if found.left_out:
        notes.append(
            f"left out {found.left_out:,} other values and lines of {name}: no stack with a "
            f"weight, first in line {found.first_out}"
        )
    if found.repeated:
        notes.append(
            f"{found.repeated:,} stacks are in {name} more than once: their weights are added, "
            "which is wrong if they were printed several times without being cleared"
        )
    if unit is None and found.unit is None:
        notes += _unknown_unit(stacks, name)
    return Source(stacks, notes)


def _title(path: str) -> str:
    name = "" if path == STDIN else Path(path).name
    return name.removesuffix(".txt").removesuffix(".folded").removesuffix(".out")


def _unknown_unit(stacks: Stacks, name: str) -> list[str]:
    if stacks.kind in ("off-cpu", "wakeup") and stacks.unit == "samples":
        return [f"{name} does not say its unit: if it is time, add --unit us or ns"]
    return []


def _some(stacks: Stacks, name: str) -> Stacks:
    if not stacks.counts:
        raise FlameError(f"{name} has no stacks: nothing was recorded", "record again")
    return stacks


@contextmanager
def _open(path: str) -> Iterator[Iterable[str]]:
    """The lines of a text; invalid bytes are replaced. Raises FlameError."""
    try:
        if path == STDIN:
            yield (line.decode(errors="replace") for line in sys.stdin.buffer)
        else:
            with Path(path).open(encoding="utf-8-sig", errors="replace") as file:
                yield file
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: Exception) -> FlameError:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return FlameError(f"cannot read {path!r}: {why or error}", "check the name")
