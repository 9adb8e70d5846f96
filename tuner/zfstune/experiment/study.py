"""A study: the entries of a search, kept so that it can be stopped and continued.

An entry is a point of the search space on its way from a proposal to a score. `file_study` keeps
them in a SQLite file, `optuna_study` in a database that hosts share, or for Optuna to sample;
MemoryStudy does not keep them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

WAITING, RUNNING, COMPLETE, PRUNED, FAIL = "WAITING", "RUNNING", "COMPLETE", "PRUNED", "FAIL"


@dataclass(frozen=True)
class Entry:
    """An entry as it is in the study, whoever wrote it. score: None before COMPLETE. point: knob ->
    value; may be incomplete."""

    number: int
    state: str
    score: float | None
    attributes: Mapping[str, Any]
    point: Mapping[str, Any]


class Study(Protocol):
    """Numbers of entries count from 0. Methods raise what storage.losing() turns into one line."""

    def facts(self) -> object:
        """The conditions of its scores; None in a new one."""
        ...

    def set_facts(self, facts: dict[str, str]) -> None: ...

    def entries(self, *states: str) -> list[Entry]:
        """Those in these states, all by default, by number."""
        ...

    def enqueue(self, point: Mapping[str, float], attributes: Mapping[str, Any]) -> None:
        """Adds a WAITING one."""
        ...

    def take(self) -> Entry | None:
        """The first that is WAITING, which is RUNNING from now on."""
        ...

    def note(self, number: int, attributes: Mapping[str, Any]) -> None:
        """Adds attributes to one."""
        ...

    def tell(self, number: int, state: str, score: float | None = None) -> None:
        """Ends one; nothing if that has ended, e.g. by a host of the same name."""
        ...

    def spent(self, owner: str) -> float:
        """The alpha that an owner's sessions have spent on it."""
        ...

    def spend(self, owner: str, alpha: float) -> None: ...

    def close(self) -> None: ...


class MemoryStudy:
    """A study of one session, which ends with it."""

    def __init__(self) -> None:
        self._facts: dict[str, str] | None = None
        self._entries: list[Entry] = []
        self._spent = 0.0

    def facts(self) -> object:
        return self._facts

    def set_facts(self, facts: dict[str, str]) -> None:
        self._facts = facts

    def entries(self, *states: str) -> list[Entry]:
        return [one for one in self._entries if not states or one.state in states]

    def enqueue(self, point: Mapping[str, float], attributes: Mapping[str, Any]) -> None:
        number = len(self._entries)
        self._entries.append(Entry(number, WAITING, None, dict(attributes), dict(point)))

    def take(self) -> Entry | None:
        for one in self.entries(WAITING):
            self._entries[one.number] = replace(one, state=RUNNING)
            return self._entries[one.number]
        return None

    def note(self, number: int, attributes: Mapping[str, Any]) -> None:
        one = self._entries[number]
        self._entries[number] = replace(one, attributes={**one.attributes, **attributes})

    def tell(self, number: int, state: str, score: float | None = None) -> None:
        one = self._entries[number]
        if one.state in (WAITING, RUNNING):
            self._entries[number] = replace(one, state=state, score=score)

    def spent(self, owner: str) -> float:
        return self._spent

    def spend(self, owner: str, alpha: float) -> None:
        self._spent += alpha

    def close(self) -> None:
        """Nothing is open."""
