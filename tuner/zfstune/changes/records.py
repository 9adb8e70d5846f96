"""The records of a journal: the state they describe, and the lines that encode them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

VERSION = 1

Record = dict[str, Any]

# how a layer ended; without an end it is open
APPLIED = "applied"  # its values stay until they are reverted
RESTORED = "restored"  # the values from its beginning are restored
GONE = "gone"  # the module was reloaded, which reset the values


@dataclass(frozen=True)
class Original:
    """The value before the first write; effective is the limit that was in force, where the value
    does not tell it (ARC, bytes)."""

    value: int
    effective: int | None = None


@dataclass(frozen=True)
class Override:
    """Another process wrote a parameter. lost: at the same moment as this program, which overwrote
    it unseen."""

    name: str
    value: int | None
    pid: int | None = None
    comm: str | None = None
    time: str = ""
    lost: bool = False
    original: int | None = None  # what was there before this program's first write

    def __str__(self) -> str:
        who = "another process"
        if self.pid is not None:
            who = f"process {self.pid}" + (f" ({self.comm})" if self.comm else "")
        if self.lost:
            return f"{self.name} was written by {who} while this program changed it"
        return f"{self.name} was set to {self.value} by {who}"


@dataclass
class Layer:
    """The changes of one command. end is None while it is open, or APPLIED, RESTORED or GONE."""

    number: int
    kind: str  # "manual" | "session"
    identity: str
    pid: int
    command: str
    time: str
    originals: dict[str, Original] = field(default_factory=dict)
    overrides: list[Override] = field(default_factory=list)
    end: str | None = None

    @property
    def in_force(self) -> bool:
        """Whether its values may be in force: it is open or was applied."""
        return self.end in (None, APPLIED)


@dataclass
class History:
    """The state that the records describe."""

    header: Record = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    # of parameters that are ours: the value before the first write, and what it must be now
    base: dict[str, Original] = field(default_factory=dict)
    expected: dict[str, frozenset[int]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    # the identity of boot and module at which a part of the journal was found to be lost
    lost: str | None = None

    @property
    def open_layer(self) -> Layer | None:
        """The layer that has not ended: its process is running or was killed."""
        last = self.layers[-1] if self.layers else None
        return last if last and last.end is None else None

    @property
    def in_force(self) -> list[Layer]:
        """The layers whose values may be in force, oldest first."""
        return [layer for layer in self.layers if layer.in_force]

    @property
    def id(self) -> str:
        """The journal's id, the same in both copies; "" without a header."""
        return str(self.header.get("id", ""))

    def ours(self, name: str) -> frozenset[int]:
        """The values that are not another process's: the last one written, and the one that a
        restore writes, whose record may be missing; a limit is restored by its number."""
        layer = self.open_layer
        original = layer.originals.get(name) if layer else self.base[name]
        back: tuple[int | None, ...] = (original.value, original.effective) if original else ()
        return self.expected[name].union(value for value in back if value is not None)

    def add(self, record: Record) -> None:
        """Adds a record. Raises KeyError, TypeError, ValueError or IndexError if it is invalid."""
        kind = record["type"]
        if kind == "journal":
            if record["version"] != VERSION:
                raise ValueError(f"version {record['version']}")
            self.header = record
        elif kind == "begin":
            self._begin(record)
        elif kind == "original":
            self._join(record["name"], Original(int(record["value"]), record["effective"]))
        elif kind == "intend":
            self.written.add(record["name"])
            self.expected[record["name"]] = frozenset({int(record["old"]), int(record["new"])})
        elif kind == "wrote":
            self.expected[record["name"]] = frozenset({int(record["value"])})
        elif kind == "override":
            self._override(record)
        elif kind == "end":
            self._end(int(record["layer"]), str(record["how"]))
        elif kind == "lost":
            self.lost = str(record["identity"])
        elif kind == "forgotten":
            self.lost = None
        else:
            raise ValueError(f"type {kind}")

    def _begin(self, record: Record) -> None:
        layer = Layer(
            len(self.layers),
            str(record["kind"]),
            str(record["identity"]),
            int(record["pid"]),
            str(record["command"]),
            str(record["time"]),
        )
        self.layers.append(layer)

    def _join(self, name: str, original: Original) -> None:
        self.layers[-1].originals[name] = original
        self.base.setdefault(name, original)
        self.expected.setdefault(name, frozenset({original.value}))

    def _override(self, record: Record) -> None:
        fields = ("name", "value", "pid", "comm", "time", "lost")
        override = Override(**{name: record[name] for name in fields})
        self.layers[-1].overrides.append(override)
        if not override.lost:
            self._forget(override.name)

    def _end(self, number: int, how: str) -> None:
        layer = self.layers[number]
        layer.end = how
        if how == RESTORED:
            earlier = {name for other in self.in_force for name in other.originals}
            for name, original in layer.originals.items():
                if name not in earlier:
                    self._forget(name)
                elif name in self.expected:
                    # even if there was no room to record the write
                    self.expected[name] = frozenset({original.value})
        if not self.in_force:
            # the journal may stay, on a disk that became read-only
            for name in list(self.base):
                self._forget(name)

    def _forget(self, name: str) -> None:
        """The parameter is no longer ours."""
        self.base.pop(name, None)
        self.expected.pop(name, None)
        self.written.discard(name)


def encode(record: Record, previous: str) -> tuple[bytes, str]:
    """A record as a line with its checksum, and the checksum. It covers previous, the checksum of
    the previous line ("" for the first)."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    digest = _digest(previous, text)
    return f"{digest} {text}\n".encode(), digest


def _digest(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous} {text}".encode()).hexdigest()[:16]


def decode(data: bytes) -> tuple[list[Record], str]:
    """The records of the intact beginning, and the checksum of its last line."""
    records: list[Record] = []
    digest = ""
    history = History()
    for line in data.split(b"\n")[:-1]:
        try:
            found, _, text = line.decode("ascii").partition(" ")
            if found != _digest(digest, text):
                break
            record = json.loads(text)
            if bool(records) == (record["type"] == "journal"):
                break
            history.add(record)
        except (ValueError, KeyError, TypeError, IndexError):
            break
        records.append(record)
        digest = found
    return records, digest


def later_version(data: bytes) -> int | None:
    """The version of a journal that a later zfstune wrote; None for any other."""
    try:
        record = json.loads(data.partition(b"\n")[0].partition(b" ")[2])
        version = record["version"] if record["type"] == "journal" else VERSION
    except (ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, int) and version > VERSION else None


def encode_lines(records: Iterable[Record]) -> list[bytes]:
    """The lines of a whole journal, each with its checksum."""
    lines, digest = [], ""
    for record in records:
        line, digest = encode(record, digest)
        lines.append(line)
    return lines
