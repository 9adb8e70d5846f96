"""Where a study is kept: a SQLite file, or a database that hosts share; what goes wrong there in
one line, and never with a password."""

from __future__ import annotations

import contextlib
import os
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

# The package of a driver, where its name is another.
_PACKAGES = {
    "psycopg": "'psycopg[binary]'",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
}
# A server that does not answer must not keep a session waiting, with a candidate in force.
_LIBPQ = {"connect_timeout": 10, "tcp_user_timeout": 20_000}  # s, ms
_TRIES, _TRY_S = 3, 0.5
_MOST = 300
_FORM = "write DIALECT://USER@HOST/DATABASE"


class StorageLost(RestoredError):
    """The storage failed in the middle of a session."""


def opened(storage: str | None) -> optuna.storages.BaseStorage:
    """A file (SQLite), any URL that Optuna takes, or None for memory; use it within failing().
    Raises NotPossible, UsageError."""
    import optuna

    if not storage:
        return optuna.storages.InMemoryStorage()
    if "://" not in storage:
        return optuna.storages.get_storage(_file(storage))
    kwargs = _engine(storage)
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    for _ in range(_TRIES):
        with contextlib.suppress(IntegrityError, ProgrammingError):
            return _connect(storage, kwargs)
        # another host makes the tables at the same time
        time.sleep(_TRY_S)
    return _connect(storage, kwargs)


def _connect(storage: str, kwargs: dict[str, Any]) -> optuna.storages.BaseStorage:
    import optuna

    kept = optuna.storages.RDBStorage(storage, engine_kwargs=dict(kwargs))
    return optuna.storages.get_storage(kept)


@contextlib.contextmanager
def failing(storage: str | None) -> Iterator[None]:
    """For the first look at a storage: whatever fails is a NotPossible of one line."""
    try:
        yield
    except CommandError:
        raise
    except Exception as error:
        # of as many kinds as there are databases and drivers
        why, hint = _why(error, storage or "")
        raise NotPossible(
            f"the study's storage {masked(storage or '')} cannot be used ({why}): {hint}"
        ) from None


@contextlib.contextmanager
def losing(storage: str | None) -> Iterator[None]:
    """For all after that. Raises StorageLost."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        why, _ = _why(error, storage or "")
        raise StorageLost(
            f"the study's storage {masked(storage or '')} failed ({why}), all is put back; "
            "--resume goes on when it works again"
        ) from None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        # Optuna trusts what it reads; who else can write there may have put anything in
        why = printable(masked(" ".join(str(error).split())))[:_MOST]
        raise StorageLost(
            f"the study's storage {masked(storage or '')} has something in it that no session "
            f"writes ({type(error).__name__}: {why}), all is put back; give another --study"
        ) from None


def _engine(storage: str) -> dict[str, Any]:
    """What SQLAlchemy shall do otherwise than by default. Raises UsageError."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(storage)
    except (ArgumentError, ValueError):
        # not in the words of SQLAlchemy: those may be a part of the password
        raise UsageError(
            f"the study's storage {masked(storage)} is no URL of a database: {_FORM}"
        ) from None
    if "@" in (url.host or ""):
        raise UsageError(
            f"the study's storage {masked(storage)} has more than one @: write %40 for those "
            "that are no separator"
        )
    if url.get_backend_name() == "sqlite":
        return {}
    # a connection rests while blocks are measured, and may be closed by others meanwhile
    kwargs: dict[str, Any] = {"pool_pre_ping": True}
    if url.get_driver_name() in ("psycopg", "psycopg2"):
        kwargs["connect_args"] = {k: v for k, v in _LIBPQ.items() if k not in url.query}
    return kwargs


def _why(error: BaseException, storage: str) -> tuple[str, str]:
    """What the database or its driver says, in one line, and what to do."""
    from sqlalchemy.exc import ArgumentError

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
    # SQLAlchemy adds the statement and the address of a page
    said = next((found for one in chain if (found := getattr(one, "orig", None))), error)
    why = masked(" ".join(str(said).split()))[:_MOST] or type(said).__name__
    if "://" not in storage or storage.startswith("sqlite"):
        return why, "give a file that can be written, or a URL like sqlite:///FILE"
    if isinstance(error, ArgumentError):
        return why, _FORM
    what = "password (~/.pgpass)" if storage.startswith("postgresql") else "password"
    return why, f"check the URL, and that the server has this database, user and {what}"


def _file(path: str) -> str:
    """A SQLite file that only its owner reads, whatever the umask says, and where nobody else can
    put links for SQLite to follow. Raises NotPossible."""
    absolute = Path(path).absolute()
    try:
        files.require_private(absolute.parent)
        os.close(os.open(absolute, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise NotPossible(
            f"the study's file {path} cannot be opened ({error.strerror}): give another"
        ) from None
    return f"sqlite:///{absolute}"
