"""The configuration of databases, as their servers read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zfstune.advise import config_text, database, postgresql_conf
from zfstune.errors import CommandError, UsageError


def values(path: Path) -> dict[str, str]:
    return {name: setting.value for name, setting in postgresql_conf.load(path, []).items()}


def test_postgresql_conf_is_read_as_the_server_does(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/10-a.conf").write_text("wal_recycle = on\n")
    (tmp_path / "conf.d/20-b.conf").write_text("wal_recycle off\n")
    (tmp_path / "conf.d/.hidden.conf").write_text("not = = read\n")
    (tmp_path / "conf.d/30-c.bak").write_text("not = = read\n")
    (tmp_path / "conf.d/40-old.conf").mkdir()
    (tmp_path / "to nothing.conf").symlink_to("nothing")
    (tmp_path / "more.conf").write_text("Work_Mem='64MB' # per sort\n")
    path = tmp_path / "postgresql.conf"
    path.write_text(
        "# comment\n\n"
        "shared_buffers = 128MB\t# min 128kB\n"
        "full_page_writes=off\r\n"
        "log_line_prefix = '%m [''x''] \\'y\\' '   # blanks\n"
        "my.setting = 'a#b'\n"
        "random_page_cost 1.1\n"
        "include 'more.conf'\n"
        "include_if_exists = 'absent.conf'\n"
        "include_if_exists = 'to nothing.conf'\n"
        "include_dir 'conf.d'\n"
        "shared_buffers = 1GB\n"
    )
    found = values(path)
    assert found["shared_buffers"] == "1GB"
    assert found["full_page_writes"] == "off"
    assert found["log_line_prefix"] == "%m ['x'] 'y' "
    assert found["my.setting"] == "a#b"
    assert found["work_mem"] == "64MB"
    assert found["wal_recycle"] == "off"
    assert found["data_directory"] == str(tmp_path)
    assert values(tmp_path) == found


def test_postgresql_auto_conf_is_last_and_in_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "etc").mkdir()
    path = tmp_path / "etc/postgresql.conf"
    path.write_text("full_page_writes = on\ndata_directory = '../data'\n")
    (tmp_path / "data/postgresql.auto.conf").write_text("full_page_writes = 'off'\n")
    facts = database.load(str(path), "postgresql")
    assert facts.facts["full_page_writes"] == 0
    assert facts.directory == str(tmp_path / "data")


def test_an_inaccessible_postgresql_auto_conf_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "postgresql.conf").write_text("data_directory = '/var/lib/pg'\n")
    monkeypatch.setattr(Path, "is_file", refuse)
    (note,) = database.load(str(tmp_path / "postgresql.conf"), "postgresql").notes
    assert "cannot read /var/lib/pg/postgresql.auto.conf: Permission denied" in note


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_a_link_in_a_directory_of_others_is_hidden(
    error: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise error(f"cannot look at {path}")

    (tmp_path / "postgresql.conf").write_text("data_directory = '/var/lib/pg'\n")
    monkeypatch.setattr(Path, "lstat", refuse)
    found = database.load(str(tmp_path / "postgresql.conf"), "postgresql")
    assert found.hidden is (error is PermissionError)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("16384", 128 << 20),  # pages of 8 KiB
        ("0x4000", 128 << 20),
        ("128MB", 128 << 20),
        ("'1 GB'", 1 << 30),
        ("1.5GB", 3 << 29),
        ("131072kB", 128 << 20),
    ],
)
def test_units_of_postgresql_are_converted(text: str, bytes_: int, tmp_path: Path) -> None:
    path = tmp_path / "postgresql.conf"
    path.write_text(f"shared_buffers = {text}\n")
    assert database.load(str(path), "postgresql").facts["buffers"] == bytes_


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port 5432\nshared_buffers\n", "line 2 is no setting: 'shared_buffers'"),
        ("a = 'open\n", "line 1 is no setting"),
        ("1a = 3\n", "line 1 is no setting"),
        ("a = b c\n", "line 1 is no setting"),
        ("shared_buffers = 12mb\n", "line 1: '12mb' is not a size"),
        ("fsync = perhaps\n", "line 1: 'perhaps' is not on or off"),
        ("full_page_writes = o\n", "line 1: 'o' is not on or off"),
        ("\ninclude 'none.conf'\n", r"none.conf \(included in .*postgresql.conf line 2\)"),
        ("include 'postgresql.conf'\n", "includes are more than 10 levels deep"),
        ("include_dir 'none'\n", "line 1: cannot list"),
        ("includes 'x'\n", "no setting 'includes'"),
        ("data_directory = '\\000'\n", "line 1: a value cannot have a zero byte"),
    ],
)
def test_errors_in_postgresql_conf_are_usage_errors(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "postgresql.conf"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        database.load(str(path), "postgresql")


def test_my_cnf_is_read_as_the_server_does(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/a.cnf").write_text("[mariadb-10.11]\ninnodb-flush-neighbors=0\n")
    (tmp_path / "conf.d/b.txt").write_text("not read\n")
    (tmp_path / "conf.d/c.cnf").mkdir()
    path = tmp_path / "my.cnf"
    path.write_text(
        "# comment\n; comment\n"
        "[client]\nuser = x\ndatadir = /not/this\n"
        "[mysqld]\n"
        "datadir = '/tank/my sql/'   # here\n"
        "innodb-buffer-pool-size = 40G\n"
        "innodb_log_write_ahead_size=16384\n"
        "skip-innodb_doublewrite\n"
        "loose-innodb_flush_method = O_DIRECT\n"
        "!includedir conf.d\n"
        "innodb_use_native_aio = 0\n"
        "[mysqldump]\ninnodb_use_native_aio = 1\n"
    )
    found = database.load(str(path), "mysql")
    assert found.directory == "/tank/my sql"
    assert dict(found.facts) == {
        "config": str(path),
        "page": 16384,
        "buffers": 40 << 30,
        "doublewrite": 0,
        "flush_neighbors": 0,
        "native_aio": 0,
        "write_ahead": 16384,
        "flush_method": "o_direct",
        "flush_log": 1,
    }


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("[mysqld]\ninnodb_buffer_pool_size=40G# of 64G\n", "buffers", 40 << 30),
        ("[mysqld]\nskip-innodb-doublewrite  # ZFS = no torn pages\n", "doublewrite", 0),
        ("[mysqld]\nskip-innodb-doublewrite#\n", "doublewrite", 0),
        ("[mysqld]\ninnodb_flush_method = 'O_DIRECT'# here\n", "flush_method", "o_direct"),
        ("[MySQLd]\ninnodb_flush_neighbors = 2\n", "flush_neighbors", 2),
        ("[mariadb-11.8]\ninnodb_flush_neighbors = 2\n", "flush_neighbors", 2),
        ("[client-server]\ninnodb_flush_neighbors = 2\n", "flush_neighbors", 2),
        ("!include\tmore.cnf\n", "sync_binlog", 7),
        ("!  include more.cnf\n", "sync_binlog", 7),
        ("!includedir\tmore.d\n", "sync_binlog", 8),
    ],
)
def test_what_people_write_in_my_cnf_means_what_it_does_to_a_server(
    text: str, name: str, value: int | str, tmp_path: Path
) -> None:
    (tmp_path / "more.cnf").write_text("[mysqld]\nsync_binlog=7\n")
    (tmp_path / "more.d").mkdir()
    (tmp_path / "more.d/a.cnf").write_text("[mysqld]\nsync_binlog=8\n")
    path = tmp_path / "my.cnf"
    path.write_text(text)
    assert database.load(str(path), "mysql").facts[name] == value


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("datadir=/srv/a#b", "/srv/a"),
        ("datadir='/srv/a#b'  # not 'c'", "/srv/a#b"),
        ('datadir="/srv/it\'s # here"', "/srv/it's # here"),
        (r"datadir='/srv/it\'s # here'", "/srv/it's # here"),
        ("datadir='/srv/open", "'/srv/open"),
        ("datadir=/srv\\sa", "/srv a"),
    ],
)
def test_comments_and_quotes_in_my_cnf(text: str, directory: str, tmp_path: Path) -> None:
    path = tmp_path / "my.cnf"
    path.write_text(f"[mysqld]\n{text}\n")
    assert database.load(str(path), "mysql").directory == directory


def test_the_buffers_of_a_dedicated_server_depend_on_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "my.cnf"
    path.write_text("[mysqld]\ninnodb_dedicated_server = ON\n")
    assert "buffers" not in database.load(str(path), "mysql").facts
    path.write_text("[mysqld]\ninnodb_dedicated_server = ON\ninnodb_buffer_pool_size = 1G\n")
    assert database.load(str(path), "mysql").facts["buffers"] == 1 << 30
    path.write_text("[mysqld]\ninnodb_dedicated_server = OFF\n")
    assert database.load(str(path), "mysql").facts["buffers"] == 128 << 20


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "my.cnf"
    path.write_bytes(b"\xef\xbb\xbf[mysqld]\ndatadir=/x\n")
    assert database.load(str(path), "mysql").directory == "/x"


def test_an_included_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.cnf")
    (tmp_path / "my.cnf").write_text("[mysqld]\n!include fifo.cnf\n")
    message = r"fifo.cnf \(included in .*my.cnf line 2\) is no regular file"
    with pytest.raises(UsageError, match=message):
        database.load(str(tmp_path / "my.cnf"), "mysql")


def test_only_mysql_defaults_that_all_versions_share_are_assumed(tmp_path: Path) -> None:
    path = tmp_path / "my.cnf"
    path.write_text("[mysqld]\ninnodb_doublewrite=DETECT_ONLY\n")
    found = database.load(str(path), "mysql")
    assert found.directory == "/var/lib/mysql"
    assert found.facts["doublewrite"] == 0
    assert "flush_neighbors" not in found.facts
    assert "flush_method" not in found.facts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datadir=/x\n", "line 1: an option before any group"),
        ("[mysqld\n", "line 1: the group has no ]"),
        ("[mysqld]\n!includes x\n", "line 2: '!includes x' is no include"),
        ("!includedir my.cnf\n", "line 1: cannot list .*: Not a directory"),
        ("!include none.cnf\n", r"none.cnf \(included in .*my.cnf line 1\)"),
        ("!include my.cnf\n", "includes are more than 10 levels deep"),
        ("[mysqld]\ninnodb_page_size=big\n", "line 2: 'big' is no number"),
        ("[mysqld]\ninnodb_doublewrite=maybe\n", "line 2: 'maybe' is neither ON nor OFF"),
    ],
)
def test_errors_in_my_cnf_are_usage_errors(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "my.cnf"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        database.load(str(path), "mysql")


def test_what_is_not_a_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nul.cnf").write_bytes(b"[mysqld]\0")
    (tmp_path / "utf16.cnf").write_bytes("[mysqld]".encode("utf-16"))
    for name, message in (
        ("nul.cnf", "is not text"),
        ("utf16.cnf", "is not text"),
        ("", "is a directory"),
        ("absent.cnf", "absent.cnf: No such file or directory"),
    ):
        with pytest.raises(UsageError, match=message):
            database.load(str(tmp_path / name), "mysql")


WORDS = [
    "shared_buffers",
    "=",
    " ",
    "\n",
    "'",
    "\\",
    "#",
    "128MB",
    "on",
    "include ",
    "[mysqld]",
    "!include ",
    "innodb_page_size",
    "16k",
    '"',
    "\t",
    "postgresql.conf",
    "-",
    "9" * 20,
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(parts=st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=30))
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_no_configuration_is_too_strange(kind: str, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "postgresql.conf"
    path.write_bytes("".join(parts).encode("utf-8", "surrogatepass"))
    try:
        database.load(str(path), kind)
    except CommandError as error:
        assert error.status in (2, 3)


@pytest.mark.parametrize("proc", [True, False])
def test_only_regular_files_are_opened(
    proc: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merely opening /dev/watchdog arms it, and the user postgres may include any file."""
    if not proc:
        monkeypatch.setattr(config_text, "OWN_FDS", str(tmp_path / "no"))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/null")
    opened, real = [], os.open

    def watched(path: str, flags: int, *rest: int, **options: int) -> int:
        if not flags & os.O_PATH:
            opened.append((str(path), flags))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", watched)
    for name in ("fifo", "link", "/dev/null"):
        with pytest.raises(UsageError, match="is no regular file"):
            config_text.read(tmp_path / name, "postgresql.conf line 1")
    assert opened == []
    (tmp_path / "real").write_text("a = 1\n")
    (tmp_path / "to real").symlink_to("real")
    assert config_text.read(tmp_path / "to real") == "a = 1\n"
    assert len(opened) == 1
    assert opened[0][1] & (os.O_NONBLOCK | os.O_NOCTTY) == os.O_NONBLOCK | os.O_NOCTTY


def test_a_file_exchanged_before_it_is_opened_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without /proc the name is looked up again."""
    monkeypatch.setattr(config_text, "OWN_FDS", str(tmp_path / "no"))
    (tmp_path / "a").write_text("a = 1\n")
    (tmp_path / "b").write_text("b = 1\n")
    real = os.open

    def exchanging(path: str, flags: int, *rest: int, **options: int) -> int:
        if not flags & os.O_PATH and str(path) == str(tmp_path / "a"):
            (tmp_path / "b").replace(tmp_path / "a")
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", exchanging)
    with pytest.raises(UsageError, match="is another file now"):
        config_text.read(tmp_path / "a")
