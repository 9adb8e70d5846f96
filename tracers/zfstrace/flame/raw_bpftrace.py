"""The text of bpftrace(8): maps with stacks in their keys.

    @name[comm,
        func+off
        func+off
    , key]: 1234

Values that are not a number, such as those of hist() and stats(), are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from zfstrace.flame import raw
from zfstrace.stacks import UNKNOWN

_BEGIN = re.compile(r"(@\w*)\[((?:.*,)?)\s*")
# A map without a stack, or a histogram: @name[key]: value
_OTHER_MAP = re.compile(r"@\w*(\[.*\])?:.*")
# bpftrace 0.17 prints no line break for an empty stack: a key is missing.
_NO_STACK = re.compile(r"(@\w*)\[((?:, .*|(?:.*, )?|.*, , .*))\]: ([0-9]{1,18})")
# In raw mode frames are not indented.
_RAW_FRAME = re.compile(r"[0-9a-f]{8,16}\s*")
_END = re.compile(r"(.*)\]: ?(.*)")
_WEIGHT = re.compile(r"-?[0-9]{1,18}")
# In perf mode: address function+offset (file)
_PERF = re.compile(r"[0-9a-f]+ (.*?)(?: \((.*)\))?")
_ROW = re.compile(r"[\[(].*\|")
_TALK = re.compile(r"Attach(ing|ed) .*|Tracing.*|\^C|Lost \d+ events")
_UNIT = re.compile(r".*_(ns|us|ms)")


def parse(lines: Iterable[str], source: str) -> raw.Raw:
    """The stacks of a text; source is its name in errors. Raises FlameError.

    With several maps, the map's name becomes a frame at the root. A name that ends in ``_ns``,
    ``_us`` or ``_ms`` states the unit.
    """
    return _Reader(source).read(lines)


class _Reader:
    """Reads line by line. A stack is open from the map's name to its weight."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found = raw.Raw()
        self._maps: dict[str, dict[str, int]] = {}
        self._map = ""
        self._keys: list[str] = []
        self._groups: list[list[str]] = []
        self._first = 0
        self._rows = False
        # possible empty stacks, with their lines
        self._empty: list[tuple[int, str, list[str], int]] = []

    def read(self, lines: Iterable[str]) -> raw.Raw:
        for number, line in enumerate(lines, 1):
            text = line.rstrip("\r\n")
            if self._first:
                self._inside(number, text)
            else:
                self._outside(number, text)
        if self._first:
            raise self._broken(self._first, "the text ends before `]:`")
        self._sum_up()
        return self.found

    def _outside(self, number: int, text: str) -> None:
        if begin := _BEGIN.fullmatch(text):
            self._map, self._first = begin[1], number
            self._keys, self._groups = _split(begin[2]), [[]]
            self._rows = False
        elif empty := _NO_STACK.fullmatch(text):
            self._empty.append((number, empty[1], _split(empty[2]), int(empty[3])))
        elif not text.strip() or _TALK.fullmatch(text.strip()):
            pass
        elif _ROW.fullmatch(text.rstrip()) and self._rows:
            pass  # counted with its head
        else:
            self._rows = bool(_OTHER_MAP.fullmatch(text))
            self.found.leave_out(number)

    def _inside(self, number: int, text: str) -> None:
        stripped = text.strip()
        if (stripped and text[0].isspace()) or _RAW_FRAME.fullmatch(text):
            self._groups[-1].append(stripped)
        elif end := _END.fullmatch(text):
            self._keys += _split(end[1])
            self._end(end[2].strip())
        elif text.startswith(","):
            self._keys += _split(text)
            self._groups.append([])
        elif stripped:
            raise self._broken(number, f"{text[:40]!r} is neither a frame nor a key")

    def _end(self, value: str) -> None:
        weight = int(value) if _WEIGHT.fullmatch(value) else 0
        if weight <= 0:
            self.found.leave_out(self._first)
            self._rows = not value
        else:
            self._add(self._map, self._keys, self._groups, weight)
        self._first = 0

    def _add(self, name: str, keys: list[str], groups: list[list[str]], weight: int) -> None:
        self.found.note_keys(name, *keys, *map("\n".join, groups))
        counts = self._maps.setdefault(name, {})
        stack = raw.stack(keys, [[_plain(frame) for frame in group] for group in groups])
        counts[stack] = counts.get(stack, 0) + weight

    def _sum_up(self) -> None:
        for number, name, keys, weight in self._empty:
            if name in self._maps and weight:
                self._add(name, keys, [], weight)
            else:
                self.found.leave_out(number)
        names = list(self._maps)
        if len(names) == 1:
            self.found.counts = self._maps[names[0]]
            if unit := _UNIT.fullmatch(names[0]):
                self.found.unit = unit[1]
        elif names:
            self.found.counts = {
                f"{one};{stack}": n for one in names for stack, n in self._maps[one].items()
            }
            self.found.notes.append(
                f"{self.source} has stacks of several maps, each a frame at the root: "
                + ", ".join(names)
            )

    def _broken(self, number: int, what: str) -> Exception:
        where = f"in the stack that begins in line {self._first}"
        hint = "use the complete output of bpftrace"
        return raw.error(self.source, number, f"{what}, {where}", hint)


def _split(keys: str) -> list[str]:
    """The keys before, after or between stacks."""
    return [key for key in (one.strip() for one in keys.rstrip(", ").split(", ")) if key]


@lru_cache(maxsize=8192)
def _plain(frame: str) -> str:
    """A frame of bpftrace's modes bpftrace, perf and raw, in the form that raw.name() takes."""
    perf = _PERF.fullmatch(frame)
    if perf is None or not perf[1]:
        return frame
    file = (perf[2] or "").rpartition("/")[2]
    return f"{file}`{perf[1]}" if file and file != UNKNOWN else perf[1]
