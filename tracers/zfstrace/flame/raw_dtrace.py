"""The text of dtrace(1): aggregations with stacks as printa() prints them.

    key   key                       blank line before it, if there is no key
                  module`func+0xoff
                  module`func+0xoff
                1234                or after the stack: key   key   1234

The output of fsyncstack.d has more structure: see :func:`read_fsyncstack`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from zfstrace.flame import raw
from zfstrace.flame.errors import FlameError
from zfstrace.recording import NO_STACK
from zfstrace.stacks import WAKER, fold

_FRAME = re.compile(r"[^\s`]+`\S.*|0x[0-9a-f]+")
_WEIGHT = re.compile(r"-?[0-9]{1,18}")
_KEYS_WEIGHT = re.compile(r"(.*\S)\s+(-?[0-9]{1,18})")
# Keys before an empty stack, where more stacks may follow: printa() indents them. A row of an
# aggregation without stacks ends in a number.
_EMPTY_STACK = re.compile(r"(?!.*\s-?\d+\s*$)  .*")
_COLUMNS = re.compile(r"\s{2,}")
# Messages of dtrace and the scripts.
_TALK = re.compile(r"dtrace: .*|\^C|CPU +ID +FUNCTION:NAME|Tracing.*|Never fired: .*")

# fsyncstack.d
_HEADINGS = {
    "Off CPU, ns:": "off-cpu",
    "Until woken, ns:": "wakeup",
    "On CPU, samples at 97 Hz:": "on-cpu",
}
_UNITS = {"off-cpu": "ns", "wakeup": "ns", "on-cpu": "samples"}
_TOTALS = re.compile(
    r"([0-9]{1,18}) fsyncs of ([0-9]{1,18}) ns, off CPU ([0-9]{1,18}) ns, "
    r"lost: ([0-9]{1,18}), errors: ([0-9]{1,18})"
)
_MISSING = re.compile(
    r"Not in the stacks: ([0-9]{1,18}) ns before the pool was known, "
    r"(-?[0-9]{1,18}) threads still asleep"
)
# Its keys, one per line: the last only of stacks that woke a thread.
_LABELS = ("pool", "stage", "comm", "waker")
_LABEL = re.compile(rf"({'|'.join(_LABELS)})(?: (.*))?")


@dataclass(frozen=True)
class Totals:
    """The last two lines of fsyncstack.d. before_ns is off-CPU time of fsyncs before their pool was
    known, which is in no stack if the script was limited to a pool; asleep counts threads."""

    fsyncs: int
    fsync_ns: int
    off_ns: int
    lost: int
    errors: int
    before_ns: int
    asleep: int


@dataclass
class Fsyncstack:
    """The output of fsyncstack.d: for each kind the weights by folded stack, in ns and in samples.
    The stacks begin with pool, stage and comm; those of kind wakeup go on with the waker's, see
    zfstrace.stacks. totals is None without the last lines."""

    counts: dict[str, dict[str, int]]
    totals: Totals | None


def parse(lines: Iterable[str], source: str, kind: str | None = None) -> raw.Raw:
    """The stacks of a text; source is its name in errors. kind selects a part of the output of
    fsyncstack.d. Raises FlameError."""
    reader = _Reader(source)
    found = reader.read(lines)
    if reader.headings:
        _choose(reader, kind)
    elif len(reader.shapes) > 1:
        found.notes.append(
            f"{source} has stacks with different keys: all are drawn, although they may count "
            "different things"
        )
    return found


def read_fsyncstack(lines: Iterable[str], source: str) -> Fsyncstack:
    """All parts of the output of fsyncstack.d. Raises FlameError."""
    reader = _Reader(source)
    reader.read(lines)
    return Fsyncstack({kind: reader.parts.get(kind, {}) for kind in _UNITS}, reader.totals)


def _choose(reader: _Reader, kind: str | None) -> None:
    """Selects a part of the output of fsyncstack.d, and notes oddities."""
    found, source = reader.found, reader.source
    wanted = kind or "off-cpu"
    if wanted not in _UNITS:
        raise FlameError(
            f"no {wanted} stacks in {source}: it is from fsyncstack.d",
            "use --kind off-cpu, wakeup or on-cpu",
        )
    found.kind, found.unit = wanted, _UNITS[wanted]
    found.counts = reader.parts.get(wanted, {})
    others = [one for one in _UNITS if one != wanted and reader.parts.get(one)]
    if others:
        found.notes.append(
            f"left out the {' and '.join(others)} stacks of {source}: --kind selects them"
        )
    totals = reader.totals
    if totals is None:
        found.notes.append(
            f"{source} ends without the last line of fsyncstack.d: it may be cut off"
        )
        return
    if totals.lost or totals.errors:
        found.notes.append(f"{source} reports: lost {totals.lost}, errors {totals.errors}")
    missing = totals.off_ns - sum(reader.parts.get("off-cpu", {}).values())
    if wanted == "off-cpu" and missing:
        found.notes.append(
            f"the stacks of {source} lack {missing} of the {totals.off_ns} ns that it reports"
        )
    if totals.before_ns:
        found.notes.append(
            f"{source} has no stacks for {totals.before_ns} ns before the pool was known"
        )


class _Reader:
    """Reads line by line. A stack is open from its first frame to its weight."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found = raw.Raw()
        self.headings = False
        self.parts: dict[str, dict[str, int]] = {}
        self.totals: Totals | None = None
        # the numbers of keys before and after the stacks, and of stacks
        self.shapes: set[tuple[int, int, int]] = set()
        self._part = ""
        self._keys: list[tuple[int, str]] = []
        self._groups: list[list[str]] = []
        self._first = 0
        self._blank = False
        self._missing = "0", "0"

    def read(self, lines: Iterable[str]) -> raw.Raw:
        for number, line in enumerate(lines, 1):
            self._line(number, line.rstrip("\r\n"))
        if self._groups:
            raise self._no_weight(self._first, "the text ends")
        self._drop_keys()
        if not self.headings:
            self.found.counts = self.parts.get("", {})
        elif "" in self.parts:
            self.found.notes.append(
                f"left out {len(self.parts['']):,} stacks of {self.source} before its first heading"
            )
        return self.found

    def _line(self, number: int, line: str) -> None:
        text = line.strip()
        if not text:
            self._blank = True
            if not self._part and not self._groups:
                self._keep_keys_of_empty_stack()
        elif self._part and not self._groups and (key := _LABEL.fullmatch(text)):
            self._keys.append((number, key[2] or ""))
        elif _FRAME.fullmatch(text):
            self._frame(number, text)
        elif _WEIGHT.fullmatch(text):
            self._end(number, [], int(text))
        elif self._groups:
            last = _KEYS_WEIGHT.fullmatch(text)
            if last is None:
                raise self._no_weight(number, f"{' '.join(text.split())[:40]!r}")
            self._end(number, _COLUMNS.split(last[1]), int(last[2]))
        else:
            self._text(number, line)

    def _frame(self, number: int, frame: str) -> None:
        if not self._groups:
            self._first = number
        if not self._groups or self._blank:
            # an empty stack is just the line break before it
            self._groups.append([])
        self._blank = False
        self._groups[-1].append(frame)

    def _text(self, number: int, line: str) -> None:
        """A line outside of stacks: the key of the next one, or of no use."""
        text = line.strip()
        if text in _HEADINGS:
            self._drop_keys()
            self.headings, self._part = True, _HEADINGS[text]
        elif last := _TOTALS.fullmatch(text):
            self.totals = Totals(*map(int, (*last.groups(), *self._missing)))
            self._part = ""
        elif missing := _MISSING.fullmatch(text):
            self._missing = missing[1], missing[2]
        elif not _TALK.fullmatch(text):
            self._drop_keys()
            self._keys = [(number, line)]
        self._blank = False

    def _end(self, number: int, after: list[str], weight: int) -> None:
        keys = [text.strip() for _, text in self._keys]
        # without a stack it may be anything, except in the output of fsyncstack.d
        known = bool(self._groups)
        if not self._part:
            keys = [key for text in keys for key in _COLUMNS.split(text)]
        else:
            known = len(keys) == len(_LABELS) - (self._part != "wakeup")
        if weight <= 0 or not known:
            self.found.leave_out(number)
        else:
            self.shapes.add((len(keys), len(after), len(self._groups)))
            self.found.note_keys(self._part, *keys, *after, *map("\n".join, self._groups))
            counts = self.parts.setdefault(self._part, {})
            stack = self._folded([*keys, *after])
            counts[stack] = counts.get(stack, 0) + weight
        self._keys, self._groups, self._blank = [], [], False

    def _folded(self, keys: list[str]) -> str:
        if self._part != "wakeup":
            return raw.stack(keys, self._taken())
        # what was woken, and above it the waker's stack, upside down
        *sleeper, waker = keys
        frames = [raw.name(frame) for group in self._taken() for frame in group]
        return fold([*sleeper, WAKER, *(frames or [NO_STACK]), waker])

    def _taken(self) -> list[list[str]]:
        """The frames; for fsyncstack.d without the probes of DTrace itself, which are addresses
        without a name, after which the function appears a second time."""
        if not self._part:
            return self._groups
        frames: list[str] = []
        passed = False
        for frame in (frame for group in self._groups for frame in group):
            if raw.is_address(frame):
                passed = True
                continue
            if not (passed and frames and raw.name(frame) == raw.name(frames[-1])):
                frames.append(frame)
            passed = False
        return [frames]

    def _keep_keys_of_empty_stack(self) -> None:
        if self._keys and not _EMPTY_STACK.fullmatch(self._keys[-1][1]):
            self._drop_keys()

    def _drop_keys(self) -> None:
        """Leaves out lines that looked like keys, but were not."""
        for number, _ in self._keys:
            self.found.leave_out(number)
        self._keys = []

    def _no_weight(self, number: int, what: str) -> FlameError:
        expected = f"instead of the weight of the stack that begins in line {self._first}"
        hint = "use the complete output of an aggregation, such as @[stack()]"
        return raw.error(self.source, number, f"{what} {expected}", hint)
