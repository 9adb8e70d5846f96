"""Stacks from files, of zfstune and of other tools."""

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

# What is meant by a unit: the factor, and the unit of the stacks.
_SCALES: dict[str | None, tuple[int, str]] = {
    "ns": (1, "ns"),
    "us": (1000, "ns"),
    "ms": (1_000_000, "ns"),
    "samples": (1, "samples"),
}


class Source(NamedTuple):
    """What was read; notes are sentences about what was not as it should be."""

    stacks: Stacks
    notes: list[str]


def read(path: str, *, unit: str | None = None, kind: str | None = None) -> Source:
    """The stacks of a file; ``-`` is text from standard input. Raises FlameError.

    unit is ``ns``, ``us`` or ``samples``, kind one of KINDS; without them text is judged by what
    is in it, and the other formats say it themselves. A name that tells no format is taken for
    text, as other tools end theirs in anything: folded, or as dtrace and bpftrace print stacks.
    """
    name = "standard input" if path == STDIN else path
    if path.endswith((".svg", ".svgz")):
        raise FlameError(f"{path} is a picture, nothing can be read from it: give its folded file")
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
    """What the caller knows better than the file."""
    stacks = found.stacks
    if unit not in (None, stacks.unit) and stacks.unit == "ns":
        raise FlameError(f"{name} itself says that it counts time, leave --unit {unit} out")
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
    # A picture or a program has some lines by chance.
    if parsed.bad and parsed.bad >= 10 * parsed.good:
        raise FlameError(
            f"{name} is no folded text, it has {parsed.good} lines like `frame;frame count`, and "
            "none of dtrace's or bpftrace's stacks"
        )
    as_kind = kind or guess.kind(parsed.counts)
    as_unit = _SCALES[unit][1] if unit else guess.unit(parsed.counts, as_kind)
    stacks = _some(Stacks(as_kind, as_unit, _title(path), parsed.counts), name)
    notes = []
    if parsed.bad:
        notes.append(
            f"left out {parsed.bad:,} of {parsed.good + parsed.bad:,} lines of {name}, "
            f"no stack with a count, first in line {parsed.first_bad}"
        )
    if folded.has_two_counts(parsed.counts):
        notes.append(f"all lines of {name} end in two numbers, only the last one is taken")
    if unit is None:
        notes += _unknown_unit(stacks, name)
    return Source(stacks, notes)


def _judge_raw(path: str, found: Raw, name: str, unit: str | None, kind: str | None) -> Source:
    """What raw stacks are about: what they say, what the caller says, what they look like."""
    from zfstrace.flame import guess

    as_kind = kind or found.kind or guess.kind(found.counts)
    scale, as_unit = _SCALES[unit or found.unit or "samples"]
    if unit and found.unit and unit != found.unit:
        raise FlameError(f"{name} itself says that it counts {found.unit}, leave --unit {unit} out")
    counts = {stack: n * scale for stack, n in found.counts.items()}
    stacks = _some(Stacks(as_kind, as_unit, _title(path), counts), name)
    notes = list(found.notes)
    if found.left_out:
        notes.append(
            f"left out {found.left_out:,} other values and lines of {name}, no stack with a "
            f"weight, first in line {found.first_out}"
        )
    if found.repeated:
        notes.append(
            f"{found.repeated:,} stacks are in {name} more than once, their weights are added: "
            "wrong if it was printed several times without being cleared"
        )
    if unit is None and found.unit is None:
        notes += _unknown_unit(stacks, name)
    return Source(stacks, notes)


def _title(path: str) -> str:
    name = "" if path == STDIN else Path(path).name
    return name.removesuffix(".txt").removesuffix(".folded").removesuffix(".out")


def _unknown_unit(stacks: Stacks, name: str) -> list[str]:
    if stacks.kind in ("off-cpu", "wakeup") and stacks.unit == "samples":
        return [f"{name} does not say in what it counts: if in time, add --unit us or ns"]
    return []


def _some(stacks: Stacks, name: str) -> Stacks:
    if not stacks.counts:
        raise FlameError(f"{name} has no stack with a weight, nothing was recorded: try again")
    return stacks


@contextmanager
def _open(path: str) -> Iterator[Iterable[str]]:
    """The lines of a text, whatever its bytes are. Raises FlameError."""
    try:
        if path == STDIN:
            yield (line.decode(errors="replace") for line in sys.stdin.buffer)
        else:
            with Path(path).open(encoding="utf-8-sig", errors="replace") as file:
                yield file
    except (OSError, ValueError) as error:
        raise FlameError(_unreadable(path, error)) from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise FlameError(_unreadable(path, error)) from None


def _unreadable(path: str, error: Exception) -> str:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return f"cannot read {path!r}, {why or error}: look at the name"
