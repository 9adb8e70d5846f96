"""Reads incident files: each record checked, one after the other, however the file was made."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from zfstrace.printable import printable
from zfstrace.types import Json
from zfstune.errors import UsageError
from zfstune.incident import fields
from zfstune.incident.kinds import Refused
from zfstune.incident.lines import Input
from zfstune.incident.times import ns_of

MOST_RECORDS = 200_000
MOST_DEPTH = 12
# Longer numbers have more than 64 bits, and older versions of Python take minutes for a million of
# digits.
_MOST_DIGITS = 24
_LONG = re.compile(rb"[0-9]{%d}" % (_MOST_DIGITS + 1))
# How many reasons for refusals are named.
_NAMED = 3
HINT = "give a file that `zfstune record dump` wrote"


def is_incident(begin: bytes) -> bool:
    """Whether a file that begins so is an incident file, by its first bytes or its first line."""
    if begin.startswith(b"\x1f\x8b"):
        return True
    try:
        return bool(_parsed(begin.partition(b"\n")[0]).get("type") == fields.HEADER_TYPE)
    except Refused:
        return False


class Reader:
    """An open incident file: its header, then its records. To be closed, or used in a `with`.

    After the last record cut_short tells whether the end is missing, and problems() what a person
    should know about the file.
    """

    def __init__(self, source: str, given: Input | None = None) -> None:
        """source is a path, or "-" for standard input; given is an open one. Raises UsageError if
        it is no incident file."""
        self.input = given or Input(source, HINT)
        self.name = self.input.name
        self.count = 0
        self.refused: Counter[str] = Counter()
        self.left_out = 0
        self._said: int | None = None
        self._lines = self.input.lines()
        try:
            self.header = self._header()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self.input.close()

    @property
    def span(self) -> tuple[int, int]:
        """Its first and its last moment, in ns since 1970."""
        first, last = ns_of(self.header["time_from"]), ns_of(self.header["time_to"])
        assert first is not None
        assert last is not None
        return first, last

    def _header(self) -> Json:
        line = next(self._lines, b"")
        try:
            found = _parsed(line or b"") if line is not None else {}
        except Refused:
            found = {}
        if found.get("type") != fields.HEADER_TYPE:
            if self.input.broken and not line:
                raise UsageError(f"{self.name} is {self.input.broken} before its header", HINT)
            raise UsageError(f"{self.name} is no incident file", HINT)
        schema = found.get("schema")
        if type(schema) is not int or schema < 1:
            raise UsageError(f"{self.name} has no schema", HINT)
        if schema > fields.SCHEMA:
            raise UsageError(
                f"{self.name} has schema {min(schema, 10**6)}: this zfstune reads only "
                f"{fields.SCHEMA}",
                "use the zfstune that wrote it, or a later one",
            )
        try:
            header = fields.HEADER.taken(found)
        except Refused as error:
            raise UsageError(f"{self.name}: in its header {error}", HINT) from None
        if header["time_from"] > header["time_to"]:
            raise UsageError(f"{self.name} ends before it begins", HINT)
        return header

    def records(self) -> Iterator[Json]:
        """Each record that is not refused, with its type and its schema. Raises UsageError for a
        file that is larger than any that zfstune writes."""
        for _line, record in self.lines():
            yield record

    def lines(self) -> Iterator[tuple[bytes, Json]]:
        """The same with the line of each."""
        for line in self._lines:
            if self._said is not None:
                # nothing follows the end
                self._refuse("after the end")
                continue
            try:
                record = checked(line)
            except Refused as error:
                self._refuse(str(error))
                continue
            if record["type"] == fields.END_TYPE:
                self._said = record["records"]
                self.left_out = record["left_out"] or 0
                continue
            self._counted()
            assert line is not None
            yield line, record

    def _refuse(self, why: str) -> None:
        # a hostile file has as many reasons as records
        known = why in self.refused or len(self.refused) < 100
        self.refused[why if known else "other reasons"] += 1
        self._counted()

    def _counted(self) -> None:
        self.count += 1
        if self.count > MOST_RECORDS:
            raise UsageError(f"{self.name} has more than {MOST_RECORDS:,} records", HINT)

    @property
    def cut_short(self) -> bool:
        """Whether its end is missing."""
        return self._said is None

    def problems(self) -> list[str]:
        """What is missing in the file, and why, each in a line."""
        found = []
        if self.input.broken == "damaged":
            found.append(f"{self.name} is damaged after {_records(self.count)}")
        elif self.cut_short:
            found.append(f"{self.name} is cut short after {_records(self.count)}")
        elif self._said != self.count:
            found.append(
                f"{self.name} has {_records(self.count)}, but {self._said:,} were written to it"
            )
        if self.left_out:
            found.append(f"{self.name} had no room for {_records(self.left_out)} more")
        if self.refused:
            most = self.refused.most_common(_NAMED)
            why = ", ".join(f"{name} ({n:,})" if n > 1 else name for name, n in most)
            more = ", ..." if len(self.refused) > _NAMED else ""
            total = sum(self.refused.values())
            found.append(f"{_records(total)} of {self.name} left out: {printable(why)}{more}")
        return found


def _records(count: int) -> str:
    return f"{count:,} record{'s' if count != 1 else ''}"


def checked(line: bytes | None) -> Json:
    """A record from its line, with its type and schema first. Raises Refused."""
    if line is None:
        raise Refused("line too long")
    return taken(_parsed(line))


def taken(given: Json) -> Json:
    """A record with only the fields of its type, each checked. Raises Refused."""
    name = given.get("type")
    if name == fields.END_TYPE:
        return {"type": name, **fields.END.taken(given)}
    kind = fields.RECORDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Refused("unknown type")
    if given.get("schema", fields.SCHEMA) != fields.SCHEMA:
        raise Refused(f"{name} of another schema")
    try:
        return {"schema": fields.SCHEMA, "type": name, **kind.taken(given)}
    except Refused as error:
        raise error.below(str(name)) from None


def _parsed(line: bytes) -> Json:
    """An object of JSON. Raises Refused."""
    # the hook takes as long as all the rest
    whole = _whole if _LONG.search(line) else None
    try:
        found = json.loads(line.decode("utf-8"), parse_int=whole, parse_constant=_constant)
    except (ValueError, RecursionError):
        raise Refused("no JSON") from None
    if type(found) is not dict:
        raise Refused("no object")
    # each level takes a bracket
    if line.count(b"[") + line.count(b"{") > MOST_DEPTH and _deep(found):
        raise Refused("nested too deeply")
    return found


def _deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [
            one
            for part in level
            for one in (part.values() if type(part) is dict else part)
            if type(one) in (dict, list)
        ]
        if not level:
            return False
    return True


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("more than 64 bits")
    return int(text)


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")
