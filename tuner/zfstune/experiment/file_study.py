"""A study in a SQLite file."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from zfstrace import files
from zfstune.errors import UsageError
from zfstune.experiment.storage import private_file
from zfstune.experiment.study import RUNNING, WAITING, Entry
from zfstune.term.secrets import masked

_MARK = int.from_bytes(b"zfst", "big")  # SQLite's application_id
_FORMAT = 1
_TABLES = f"""
PRAGMA application_id={_MARK};
PRAGMA user_version={_FORMAT};
CREATE TABLE IF NOT EXISTS study (name TEXT PRIMARY KEY, facts TEXT);
CREATE TABLE IF NOT EXISTS entry (
    study TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL, score REAL,
    attributes TEXT NOT NULL, point TEXT NOT NULL, PRIMARY KEY (study, number)
);
CREATE TABLE IF NOT EXISTS spent (study TEXT NOT NULL, owner TEXT NOT NULL, alpha REAL NOT NULL);
"""


class FileStudy:
    """A study in a file that only its owner can read."""

    def __init__(self, storage: str, name: str) -> None:
        """Raises NotPossible, UsageError, sqlite3.Error."""
        self._name = name
        self._database = _connect(storage)
        with self._writing() as database:
            database.execute("INSERT OR IGNORE INTO study VALUES (?, NULL)", (name,))

    def facts(self) -> object:
        rows = self._database.execute("SELECT facts FROM study WHERE name=?", (self._name,))
        (text,) = rows.fetchone()
        return None if text is None else json.loads(text)

    def set_facts(self, facts: dict[str, str]) -> None:
        with self._writing() as database:
            values = (json.dumps(facts), self._name)
            database.execute("UPDATE study SET facts=? WHERE name=?", values)

    def entries(self, *states: str) -> list[Entry]:
        rows = self._database.execute(
            "SELECT number, state, score, attributes, point FROM entry WHERE study=? "
            "ORDER BY number",
            (self._name,),
        )
        return [_entry(*row) for row in rows if not states or row[1] in states]

    def enqueue(self, point: Mapping[str, float], attributes: Mapping[str, Any]) -> None:
        with self._writing() as database:
            database.execute(
                "INSERT INTO entry SELECT ?1, COUNT(*), ?2, NULL, ?3, ?4 FROM entry WHERE study=?1",
                (self._name, WAITING, json.dumps(dict(attributes)), json.dumps(dict(point))),
            )

    def take(self) -> Entry | None:
        with self._writing():
            found = next(iter(self.entries(WAITING)), None)
            if found:
                self._change(found.number, "state=?", RUNNING)
        return found and replace(found, state=RUNNING)

    def note(self, number: int, attributes: Mapping[str, Any]) -> None:
        with self._writing():
            (before,) = (one for one in self.entries() if one.number == number)
            self._change(number, "attributes=?", json.dumps({**before.attributes, **attributes}))

    def tell(self, number: int, state: str, score: float | None = None) -> None:
        with self._writing():
            self._change(number, "state=?, score=?", state, score, only_open=True)

    def spent(self, owner: str) -> float:
        rows = self._database.execute(
            "SELECT TOTAL(alpha) FROM spent WHERE study=? AND owner=?", (self._name, owner)
        )
        (total,) = rows.fetchone()
        return float(total)

    def spend(self, owner: str, alpha: float) -> None:
        with self._writing() as database:
            database.execute("INSERT INTO spent VALUES (?, ?, ?)", (self._name, owner, alpha))

    def close(self) -> None:
        self._database.close()

    def _change(self, number: int, what: str, *values: object, only_open: bool = False) -> None:
        text = f"UPDATE entry SET {what} WHERE study=? AND number=?"
        if only_open:
            text += f" AND state IN ('{WAITING}', '{RUNNING}')"
        self._database.execute(text, (*values, self._name, number))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, also against other processes."""
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            yield self._database


def _entry(number: int, state: str, score: object, attributes: str, point: str) -> Entry:
    try:
        read = [json.loads(text) for text in (attributes, point)]
    except (TypeError, ValueError):
        read = [None]
    if not all(isinstance(one, dict) for one in read):
        raise sqlite3.DataError(f"entry {number} is not what a session writes")
    value = float(score) if isinstance(score, (int, float)) else None
    return Entry(number, state, value, *read)


def _connect(storage: str) -> sqlite3.Connection:
    """Raises NotPossible, UsageError, sqlite3.Error."""
    # transactions only where _writing() begins one
    database = sqlite3.connect(str(private_file(storage)), isolation_level=None)
    (mark,) = database.execute("PRAGMA application_id").fetchone()
    (form,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if tables and mark != _MARK:
        raise UsageError(
            f"{masked(storage)} is a database of another program, not a study",
            "name another file",
        )
    if mark == _MARK and form > _FORMAT:
        raise UsageError(
            f"the study in {masked(storage)} was written by a newer zfstune",
            "continue it with that one, or use another --out",
        )
    # at once: a file that has tables without the mark would count as another program's
    database.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")
    return database


def names(storage: str) -> set[str]:
    """The studies in a file; none without one. Raises sqlite3.Error."""
    if not Path(storage).exists():
        return set()
    with contextlib.closing(_connect(storage)) as database:
        return {name for (name,) in database.execute("SELECT name FROM study")}


def writer(storage: str) -> str:
    """Who has written a SQLite file: ``zfstune``, ``optuna``, or "" for any other, or none."""
    if not storage or "://" in storage:
        return ""
    path = Path(storage).absolute()
    try:
        files.require_private(path.parent)
        if path.is_symlink():
            return ""
        # rw, and no more: what a killed session has begun to write must be rolled back
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as database:
            (mark,) = database.execute("PRAGMA application_id").fetchone()
            tables = database.execute("SELECT name FROM sqlite_master WHERE type='table'")
            found = {name for (name,) in tables}
    except (OSError, sqlite3.Error):
        # opening it says why
        return ""
    if mark == _MARK:
        return "zfstune"
    return "optuna" if {"studies", "trials", "version_info"} <= found else ""
