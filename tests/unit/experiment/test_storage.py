"""The storage of a study: its errors, and the passwords that they must not show."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.experiment import storage
from zfstune.term import secrets

optuna = pytest.importorskip("optuna")
exc = pytest.importorskip("sqlalchemy.exc")

URL = "postgresql://zfstune:geheim@db.example/studies"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, "postgresql://zfstune:***@db.example/studies"),
        (f"--storage={URL}", "--storage=postgresql://zfstune:***@db.example/studies"),
        ("postgresql+psycopg://u:a@b/c:d ?e@h/d", "postgresql+psycopg://u:***@h/d"),
        ("redis://:geheim@h:1/0", "redis://:***@h:1/0"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
        ("postgresql:///d?host=/run&user=u", "postgresql:///d?host=/run&user=u"),
        ("postgresql://h/d?user=u&password=geheim&x=y", "postgresql://h/d?user=u&password=***&x=y"),
        (f"psql {URL} -c 'select 1'", "psql postgresql://zfstune:***@db.example/studies -c 'sel"),
        ("env PGPASSWORD='ge heim' pgbench", "env PGPASSWORD=*** pgbench"),
        ("sqlite:////var/lib/x.db", "sqlite:////var/lib/x.db"),
        ("write.throughput>=-5%", "write.throughput>=-5%"),
    ],
)
def test_passwords_are_masked(text: str, shown: str) -> None:
    assert secrets.masked(text).startswith(shown)


def said(url: str, kind: type[CommandError], error: Exception | None = None) -> str:
    """The message and hint for a storage, or for an error in its first use."""
    with pytest.raises(kind) as raised, storage.failing(url):
        if error:
            raise error
        storage.opened(url)
    line = raised.value.in_one_line()
    assert "\n" not in line
    assert "geheim" not in line
    return line


@pytest.mark.parametrize(
    ("driver", "package"), [("psycopg", r"'psycopg\[binary\]'"), ("psycopg2", "psycopg2-binary")]
)
def test_a_missing_driver_names_its_package(
    driver: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    line = said(URL.replace("://", f"+{driver}://"), NotPossible)
    assert f"the Python package {driver}, is missing; run `pip install" in line
    assert package.replace("\\", "") in line


@pytest.mark.parametrize("why", ["Connection refused\n\tIs it running?", 'no database "studies"'])
def test_a_server_that_refuses_says_why_without_the_password(why: str) -> None:
    # SQLAlchemy's own text has the statement and its values
    error = exc.OperationalError("INSERT geheim", {}, Exception(why))
    line = said(URL, NotPossible, error)
    assert line == (
        "cannot use the study's storage postgresql://zfstune:***@db.example/studies: "
        f"{' '.join(why.split())}; check the URL, and that the server has this database, user "
        "and password (~/.pgpass)"
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:geheim@h:port/d", "is not the URL of a database; write DIALECT://"),
        ("postgresql://u:ge@heim@h/d", "has more than one @; write %40"),
    ],
)
def test_an_invalid_url_is_refused(url: str, words: str) -> None:
    line = said(url, UsageError)
    assert words in line
    assert "heim" not in line


def test_an_unknown_database_is_refused() -> None:
    line = said("nosuchdb://u:geheim@h/d", NotPossible)
    assert "nosuchdb; write DIALECT://USER@HOST/DATABASE" in line


@pytest.mark.parametrize("path", ["{}", "sqlite:///{}", "{}/no/study.db", "sqlite:///{}/no/x.db"])
def test_a_path_that_cannot_be_a_file_is_refused(path: str, tmp_path: Path) -> None:
    line = said(path.format(tmp_path), NotPossible)
    assert "sqlalche.me" not in line
    assert "; name a" in line


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no database\n" * 100)
    assert "file is not a database; name a writable" in said(str(tmp_path / "x"), NotPossible)


def test_only_the_owner_reads_a_file(tmp_path: Path) -> None:
    storage.opened(str(tmp_path / "study.db"))
    assert stat.S_IMODE((tmp_path / "study.db").stat().st_mode) == 0o600


def test_a_file_where_others_may_put_links_is_refused(tmp_path: Path) -> None:
    """SQLite would follow one that is named as its journal."""
    tmp_path.chmod(0o1777)
    assert "others may write into" in said(str(tmp_path / "study.db"), NotPossible)
    assert list(tmp_path.iterdir()) == []


def test_tables_being_made_by_another_host_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "TRY_S", 0)
    errors = [exc.IntegrityError("CREATE", {}, Exception("there")) for _ in range(storage.TRIES)]

    made = object()

    def connect(_url: str, _kwargs: object) -> object:
        if errors:
            raise errors.pop()
        return made

    monkeypatch.setattr(storage, "_connect", connect)
    assert storage.opened(URL) is made


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_lost_server_ends_the_session(wrapped: bool) -> None:
    error: Exception = exc.OperationalError("SELECT geheim", {}, Exception("closed\n"))
    if wrapped:
        outer = optuna.exceptions.StorageInternalError("An exception is raised")
        outer.__cause__ = error
        error = outer
    with pytest.raises(storage.StorageLost) as raised, storage.losing(URL):
        raise error
    assert raised.value.in_one_line() == (
        "the study's storage postgresql://zfstune:***@db.example/studies failed: closed; all "
        "parameters are restored; continue with --resume when it works again"
    )
    assert raised.value.status == 4


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), storage.losing(URL):
        raise ZeroDivisionError
