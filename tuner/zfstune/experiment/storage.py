"""The storage of a study: a SQLite file, or a database that hosts share. Its errors are one line,
without passwords."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from zfstrace import files
from zfstrace.printable import printable
from zfstune.errors import CommandError, NotPossible, RestoredError, UsageError
from zfstune.term.secrets import masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import optuna

# Driver -> package, where the names differ.
_PACKAGES = {
    "psycopg": "'psycopg[binary]'",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
}
# A session with a candidate in force must not wait for a server that does not answer.
_LIBPQ = {"connect_timeout": 10, "tcp_user_timeout": 20_000}  # s, ms
TRIES, TRY_S = 3, 0.5
_MOST = 300
_FORM = "write DIALECT://USER@HOST/DATABASE"


class StorageLost(RestoredError):
    """The storage failed in the middle of a session."""


def opened(storage: str | None) -> optuna.storages.BaseStorage:
    """Opens a file (SQLite), any URL that Optuna accepts, or, for None, memory; use it within
    failing(). Raises NotPossible, UsageError."""
    import optuna

    if not storage:
        return optuna.storages.InMemoryStorage()
    if "://" not in storage:
        return optuna.storages.get_storage(f"sqlite:///{private_file(storage)}")
    kwargs = _engine(storage)
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    for _ in range(TRIES):
        with contextlib.suppress(IntegrityError, ProgrammingError):
            return _connect(storage, kwargs)
        # another host is creating the tables
        time.sleep(TRY_S)
    return _connect(storage, kwargs)


def _connect(storage: str, kwargs: dict[str, Any]) -> optuna.storages.BaseStorage:
    import optuna

    kept = optuna.storages.RDBStorage(storage, engine_kwargs=dict(kwargs))
    return optuna.storages.get_storage(kept)


@contextlib.contextmanager
def failing(storage: str | None) -> Iterator[None]:
    """For the first use of a storage: turns any error into NotPossible."""
    try:
        yield
    except CommandError:
        raise
    except Exception as error:
        # each database and driver has its own exceptions
        why, hint = _why(error, storage or "")
        raise NotPossible(
            f"cannot use the study's storage {masked(storage or '')}: {why}", hint
        ) from None


@contextlib.contextmanager
def losing(storage: str | None) -> Iterator[None]:
    """For all later uses. Raises StorageLost."""
    try:
        yield
    except _database_errors() as error:
        why, _ = _why(error, storage or "")
        raise StorageLost(
            f"the study's storage {masked(storage or '')} failed: {why}; all parameters are "
            "restored",
            "continue with --resume when it works again",
        ) from None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        # Optuna trusts the storage, into which others may write anything
        why = printable(masked(" ".join(str(error).split())))[:_MOST]
        raise StorageLost(
            f"the study's storage {masked(storage or '')} has data that no session writes: "
            f"{type(error).__name__}: {why}; all parameters are restored",
            "use another --study",
        ) from None


def has_sqlite() -> bool:
    """Whether this Python has sqlite3, which is a package of its own on FreeBSD: there the
    directory is part of Python, and the library below it is not."""
    return importlib.util.find_spec("_sqlite3") is not None


def _database_errors() -> tuple[type[Exception], ...]:
    """Those of what is loaded."""
    found: list[type[Exception]] = []
    if "sqlite3" in sys.modules:
        import sqlite3

        found.append(sqlite3.Error)
    if "optuna" in sys.modules:
        import optuna
        from sqlalchemy.exc import SQLAlchemyError

        found += [SQLAlchemyError, optuna.exceptions.StorageInternalError]
    return tuple(found)


def _engine(storage: str) -> dict[str, Any]:
    """Arguments for SQLAlchemy's engine. Raises UsageError."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(storage)
    except (ArgumentError, ValueError):
        # without SQLAlchemy's message, which may quote a part of the password
        raise UsageError(
            f"the study's storage {masked(storage)} is not the URL of a database", _FORM
        ) from None
    if "@" in (url.host or ""):
        raise UsageError(
            f"the study's storage {masked(storage)} has more than one @",
            "write %40 for each @ in the user's name or password",
        )
    if url.get_backend_name() == "sqlite":
        return {}
    # a server may close the connection while a block is measured
    kwargs: dict[str, Any] = {"pool_pre_ping": True}
    if url.get_driver_name() in ("psycopg", "psycopg2"):
        kwargs["connect_args"] = {k: v for k, v in _LIBPQ.items() if k not in url.query}
    return kwargs


def _why(error: BaseException, storage: str) -> tuple[str, str]:
    """The message of the database or its driver in one line, and a hint."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    for one in chain:
        if isinstance(one, ModuleNotFoundError) and one.name:
            package = _PACKAGES.get(one.name, one.name)
            return (
                f"its driver, the Python package {one.name}, is missing",
                f"run `pip install {package}`",
            )
    # without the statement and the address of a page that SQLAlchemy adds
    said = next((found for one in chain if (found := getattr(one, "orig", None))), error)
    why = masked(" ".join(str(said).split()))[:_MOST] or type(said).__name__
    if "://" not in storage or storage.startswith("sqlite"):
        return why, "name a writable file, or a URL like sqlite:///FILE"
    from sqlalchemy.exc import ArgumentError

    if isinstance(error, ArgumentError):
        return why, _FORM
    what = "password (~/.pgpass)" if storage.startswith("postgresql") else "password"
    return why, f"check the URL, and that the server has this database, user and {what}"


def private_file(path: str) -> Path:
    """A file that only its owner can read, whatever the umask, in a directory where no other user
    can plant links. Raises NotPossible."""
    absolute = Path(path).absolute()
    try:
        files.require_private(absolute.parent)
        os.close(os.open(absolute, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise NotPossible(
            f"cannot open the study's file {path}: {error.strerror}", "name another"
        ) from None
    return absolute
