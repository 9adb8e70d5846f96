"""pprof's profile.proto, gzipped; `go tool pprof` and many services read it.

Field numbers are from github.com/google/pprof, proto/profile.proto. Each frame name is one function
with one location. The sample type is the kind, and a comment has the title.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from zfstrace.flame import wire
from zfstrace.flame.errors import FlameError
from zfstrace.stacks import KINDS, UNKNOWN, Stacks, fold, unfold

# of Profile
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_COMMENT, _DEFAULT_TYPE = 13, 14

_UNIT_NAMES = {"ns": "nanoseconds", "samples": "count"}
_SCALES = {"nanoseconds": 1, "microseconds": 1_000, "milliseconds": 10**6, "seconds": 10**9}
_LARGEST = (1 << 63) - 1


class _Strings:
    """The string table, whose first string is empty."""

    def __init__(self) -> None:
        self.index = {"": 0}

    def add(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))


def dump(stacks: Stacks) -> bytes:
    """The whole file. Raises FlameError for a weight of more than 63 bits."""
    strings = _Strings()
    kind, unit = strings.add(stacks.kind), strings.add(_UNIT_NAMES[stacks.unit])
    # The encoded location of each name: encoded once, used a million times.
    ids: dict[str, bytes] = {}
    parts = [wire.block(_SAMPLE_TYPE, wire.number(1, kind) + wire.number(2, unit))]
    for stack in sorted(stacks.counts):
        weight = stacks.counts[stack]
        if weight > _LARGEST:
            raise FlameError("cannot write pprof: a weight has over 63 bits", "write .folded")
        names = unfold(stack)
        for name in names:
            if name not in ids:
                ids[name] = wire.varint(len(ids) + 1)
        # leaf first
        locations = wire.block(1, b"".join([ids[name] for name in reversed(names)]))
        parts.append(wire.block(_SAMPLE, locations + wire.number(2, weight)))
    for number, name in enumerate(ids, 1):
        line = wire.block(4, wire.number(1, number))
        parts.append(wire.block(_LOCATION, wire.number(1, number) + line))
        function = wire.number(1, number) + wire.number(2, strings.add(name))
        parts.append(wire.block(_FUNCTION, function))
    parts.append(wire.number(_COMMENT, strings.add(stacks.title)))
    parts.append(wire.number(_DEFAULT_TYPE, kind))
    parts += [wire.block(_STRING, text.encode(errors="replace")) for text in strings.index]
    # without a timestamp the same stacks give the same file
    return gzip.compress(b"".join(parts), compresslevel=6, mtime=0)


@dataclass
class _Profile:
    """The tables of a file; names are indexes into the string table."""

    types: list[tuple[int, int]] = field(default_factory=list)
    samples: list[tuple[list[int], list[int]]] = field(default_factory=list)
    locations: dict[int, list[int]] = field(default_factory=dict)
    functions: dict[int, int] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    comment: int = 0
    default_type: int = 0

    def text(self, index: int) -> str:
        return self.strings[index] if index < len(self.strings) else ""


def load(data: bytes, name: str) -> Stacks:
    """The stacks of a file, by its default sample type. Times become ns, other units samples.
    Raises FlameError."""
    try:
        profile = _parse(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, TypeError, OSError, EOFError, zlib.error) as error:
        raise FlameError(f"{name} is not a pprof profile: {error}") from None
    if not profile.types:
        raise FlameError(f"{name} is not a pprof profile: it has no sample type")
    chosen = len(profile.types) - 1
    for i, (kind, _) in enumerate(profile.types):
        if profile.default_type and kind == profile.default_type:
            chosen = i
    kind_name, unit = (profile.text(index) for index in profile.types[chosen])
    return Stacks(
        kind=kind_name if kind_name in KINDS else "other",
        unit="ns" if unit in _SCALES else "samples",
        title=profile.text(profile.comment),
        counts=_counts(profile, chosen, _SCALES.get(unit, 1)),
    )


def _counts(profile: _Profile, chosen: int, scale: int) -> dict[str, int]:
    names = {location: fold(_frames(profile, location)) for location in profile.locations}
    counts: dict[str, int] = {}
    for locations, values in profile.samples:
        weight = wire.signed(values[chosen]) * scale if chosen < len(values) else 0
        if weight > 0:
            found = [names.get(location, UNKNOWN) for location in reversed(locations)]
            stack = ";".join(found) or UNKNOWN
            counts[stack] = counts.get(stack, 0) + weight
    return counts


def _frames(profile: _Profile, location: int) -> Iterable[str]:
    # the last line is the caller, into which the others were inlined
    for function in reversed(profile.locations[location] or [0]):
        yield profile.text(profile.functions.get(function, 0))


def _parse(data: bytes) -> _Profile:
    profile = _Profile()
    for number, value in wire.fields(data):
        if number == _SAMPLE_TYPE:
            found = _numbers_of(value)
            profile.types.append((_first(found, 1), _first(found, 2)))
        elif number == _SAMPLE:
            found = _numbers_of(value, {1, 2})
            profile.samples.append((found.get(1, []), found.get(2, [])))
        elif number == _LOCATION:
            lines = [_numbers_of(v) for n, v in wire.fields(_bytes(value)) if n == 4]
            functions = [_first(line, 1) for line in lines]
            profile.locations[_first(_numbers_of(value, {1}), 1)] = functions
        elif number == _FUNCTION:
            found = _numbers_of(value)
            profile.functions[_first(found, 1)] = _first(found, 2)
        elif number == _STRING:
            profile.strings.append(_bytes(value).decode(errors="replace"))
        elif number == _COMMENT and not profile.comment:
            profile.comment = next(iter(wire.numbers(value)), 0)
        elif number == _DEFAULT_TYPE and isinstance(value, int):
            profile.default_type = value
    return profile


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number instead of a message")
    return value


def _numbers_of(message: int | bytes, wanted: Iterable[int] = (1, 2)) -> dict[int, list[int]]:
    """The numbers of a message by field."""
    found: dict[int, list[int]] = {}
    for number, value in wire.fields(_bytes(message)):
        if number in wanted:
            found.setdefault(number, []).extend(wire.numbers(value))
    return found


def _first(found: dict[int, list[int]], number: int) -> int:
    values = found.get(number)
    return values[0] if values else 0
