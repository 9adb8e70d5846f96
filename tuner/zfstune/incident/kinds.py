"""Kinds of fields: what a value of an incident file may be, and where names are in it.

Files come from anybody. `taken()` makes of a value from JSON what the field may hold, or raises
Refused; texts come out printable. `renamed()` replaces the names in a value that was taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from zfstrace.printable import printable
from zfstrace.strict import strict_zip
from zfstune.incident.times import ns_of

MOST_WHOLE = (1 << 64) - 1

# (what the name is of, the name) -> the word in its place
Rename = Callable[[str, Any], Any]


class Refused(Exception):
    """A value that a field cannot hold. where is the path of its name."""

    def __init__(self, why: str, where: str = "") -> None:
        super().__init__(why)
        self.why, self.where = why, where

    def below(self, name: str) -> Refused:
        """The same for a field of the object or list that has the value."""
        return Refused(self.why, f"{name}.{self.where}" if self.where else name)

    def __str__(self) -> str:
        return f"{self.where} {self.why}" if self.where else self.why


class Kind(Protocol):
    """What a field may hold."""

    def taken(self, value: Any) -> Any: ...

    def renamed(self, value: Any, rename: Rename) -> Any: ...


class _Plain:
    """A kind without names."""

    def renamed(self, value: Any, rename: Rename) -> Any:
        return value


@dataclass(frozen=True)
class Whole(_Plain):
    """A whole number. of: what it identifies, if it does."""

    low: int = 0
    high: int = MOST_WHOLE
    of: str = ""

    def taken(self, value: Any) -> int:
        # True is an int, too
        if type(value) is not int:
            raise Refused("is no whole number")
        if not self.low <= value <= self.high:
            raise Refused("is out of range")
        return value

    def renamed(self, value: Any, rename: Rename) -> Any:
        return rename(self.of, value) if self.of else value


@dataclass(frozen=True)
class Number(_Plain):
    """A finite number."""

    low: float = 0.0
    high: float = 1e18

    def taken(self, value: Any) -> float:
        if type(value) not in (int, float):
            raise Refused("is no number")
        if not (math.isfinite(value) and self.low <= value <= self.high):
            raise Refused("is out of range")
        return float(value)


@dataclass(frozen=True)
class Flag(_Plain):
    """true or false."""

    def taken(self, value: Any) -> bool:
        if type(value) is not bool:
            raise Refused("is neither true nor false")
        return value


@dataclass(frozen=True)
class Text:
    """A text, cut to that many characters. of: what it names, "" if it names nothing."""

    most: int = 256
    of: str = ""

    def taken(self, value: Any) -> str:
        if type(value) is not str:
            raise Refused("is no text")
        if len(value) > self.most:
            value = f"{value[: self.most - 1]}~"
        return value if value.isprintable() else printable(value)

    def renamed(self, value: Any, rename: Rename) -> Any:
        return rename(self.of, value) if self.of else value


@dataclass(frozen=True)
class Time(_Plain):
    """A moment, ISO 8601, UTC."""

    def taken(self, value: Any) -> str:
        if type(value) is not str or ns_of(value) is None:
            raise Refused("is no time from 1970 to 2200")
        return value


@dataclass(frozen=True)
class Maybe:
    """A value that may be null or missing."""

    kind: Kind

    def taken(self, value: Any) -> Any:
        return None if value is None else self.kind.taken(value)

    def renamed(self, value: Any, rename: Rename) -> Any:
        return None if value is None else self.kind.renamed(value, rename)


@dataclass(frozen=True)
class Either:
    """The first of these kinds that can hold it."""

    kinds: tuple[Kind, ...]

    def taken(self, value: Any) -> Any:
        return self._of(value)[1]

    def renamed(self, value: Any, rename: Rename) -> Any:
        kind, taken = self._of(value)
        return kind.renamed(taken, rename)

    def _of(self, value: Any) -> tuple[Kind, Any]:
        for kind in self.kinds[:-1]:
            try:
                return kind, kind.taken(value)
            except Refused:
                continue
        return self.kinds[-1], self.kinds[-1].taken(value)


@dataclass(frozen=True)
class Listed:
    """A list."""

    kind: Kind
    most: int

    def taken(self, value: Any) -> list[Any]:
        if type(value) is not list:
            raise Refused("is no list")
        if len(value) > self.most:
            raise Refused(f"has more than {self.most} entries")
        taken = self.kind.taken
        try:
            return [taken(one) for one in value]
        except Refused as error:
            raise error.below("[]") from None

    def renamed(self, value: Any, rename: Rename) -> Any:
        return [self.kind.renamed(one, rename) for one in value]


@dataclass(frozen=True)
class Tuple:
    """A list with one value of each kind, in their order."""

    kinds: tuple[Kind, ...]

    def taken(self, value: Any) -> list[Any]:
        if type(value) is not list or len(value) != len(self.kinds):
            raise Refused(f"is no list of {len(self.kinds)}")
        return [kind.taken(one) for kind, one in strict_zip(self.kinds, value)]

    def renamed(self, value: Any, rename: Rename) -> Any:
        return [kind.renamed(one, rename) for kind, one in strict_zip(self.kinds, value)]


@dataclass(frozen=True)
class Mapped:
    """An object whose keys are data. named: the kinds of values that have names in them, by key;
    it matters only to renamed()."""

    key: Text
    kind: Kind
    most: int
    named: Mapping[str, Kind] = field(default_factory=dict)

    def taken(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Refused("is no object")
        if len(value) > self.most:
            raise Refused(f"has more than {self.most} entries")
        key, taken = self.key.taken, self.kind.taken
        try:
            return {key(name): taken(one) for name, one in value.items()}
        except Refused as error:
            raise error.below("{}") from None

    def renamed(self, value: Any, rename: Rename) -> Any:
        return {
            self.key.renamed(name, rename): self.named.get(name, self.kind).renamed(one, rename)
            for name, one in value.items()
        }


@dataclass(frozen=True)
class Object:
    """An object with these fields; all others are left out."""

    fields: Mapping[str, Kind]
    # (name, taken() of its kind, whether it may be None): a file has millions of fields
    _takers: tuple[tuple[str, Callable[[Any], Any], bool], ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        takers = tuple(
            (name, kind.kind.taken, True) if isinstance(kind, Maybe) else (name, kind.taken, False)
            for name, kind in self.fields.items()
        )
        object.__setattr__(self, "_takers", takers)

    def taken(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Refused("is no object")
        found, get = {}, value.get
        for name, taken, maybe in self._takers:
            one = get(name)
            try:
                found[name] = None if one is None and maybe else taken(one)
            except Refused as error:
                raise error.below(name) from None
        return found

    def renamed(self, value: Any, rename: Rename) -> Any:
        return {
            name: self.fields[name].renamed(one, rename)
            for name, one in value.items()
            if name in self.fields
        }
