"""The facts in a database's configuration that matter to the file system below it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zfstune.advise import my_cnf, postgresql_conf
from zfstune.advise.config_text import is_directory
from zfstune.advise.postgresql_conf import Setting, Settings
from zfstune.advise.subjects import known
from zfstune.errors import UsageError
from zfstune.rules.language import Fact

MIB = 1 << 20

# The default page of a server.
PAGES = {"postgresql": 8192, "mysql": 16384}


@dataclass(frozen=True)
class Database:
    """directory has its files, logs its log, which may be below it on a dataset of its own, or, if
    it is hidden, a link that could not be read; notes say what could not be read."""

    name: str
    directory: str
    facts: Mapping[str, Fact]
    notes: tuple[str, ...] = ()
    logs: str = ""
    hidden: bool = False


def load(path: str, kind: str) -> Database:
    """Reads a configuration; kind is postgresql or mysql. Raises UsageError, NotPossible."""
    read = _postgresql if kind == "postgresql" else _mysql
    return read(Path(path))


def guess(path: str) -> str:
    """The kind of database, by the name of its configuration. Raises UsageError."""
    place = Path(path)
    if is_directory(place) or (place.name.startswith("postgresql") and place.suffix == ".conf"):
        return "postgresql"
    if place.suffix == ".cnf":
        return "mysql"
    raise UsageError(f"{path}: unknown kind of database", "add --for postgresql or --for mysql")


def _postgresql(path: Path) -> Database:
    notes: list[str] = []
    found = postgresql_conf.load(path, notes)
    # defaults: src/backend/utils/misc/guc_tables.c, PostgreSQL 12 to 18
    defaults = ("full_page_writes", "wal_init_zero", "wal_recycle", "fsync")
    facts: dict[str, Fact] = {
        name: int(postgresql_conf.flag(found[name])) if name in found else 1 for name in defaults
    }
    buffers = found.get("shared_buffers")
    facts |= known(
        config=str(path),
        page=PAGES["postgresql"],
        buffers=postgresql_conf.number(buffers, 8192) if buffers else 128 * MIB,
        synchronous_commit=_word(found, "synchronous_commit", "on"),
        wal_compression=_word(found, "wal_compression", "off"),
    )
    home = Path(found["data_directory"].value)
    logs = home / "pg_wal"
    hidden = _hidden(logs)
    return Database("postgresql", str(home), facts, tuple(notes), os.path.realpath(logs), hidden)


def _hidden(path: Path) -> bool:
    """Whether only others may look where it leads to."""
    try:
        path.lstat()
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _mysql(path: Path) -> Database:
    """Defaults on which MySQL, MariaDB or their versions differ are left out."""
    found = my_cnf.load(path)

    def number(name: str) -> int | None:
        return my_cnf.number(found[name]) if name in found else None

    # it takes the size of its buffers from that of memory
    dedicated = "innodb_dedicated_server" in found and my_cnf.flag(found["innodb_dedicated_server"])
    facts = known(
        config=str(path),
        page=number("innodb_page_size") or PAGES["mysql"],
        buffers=number("innodb_buffer_pool_size") or (None if dedicated else 128 * MIB),
        doublewrite=_doublewrite(found),
        flush_neighbors=number("innodb_flush_neighbors"),
        native_aio=my_cnf.flag(found["innodb_use_native_aio"])
        if "innodb_use_native_aio" in found
        else True,
        write_ahead=number("innodb_log_write_ahead_size"),
        flush_method=found["innodb_flush_method"].value.lower()
        if "innodb_flush_method" in found
        else None,
        sync_binlog=number("sync_binlog"),
        flush_log=1
        if "innodb_flush_log_at_trx_commit" not in found
        else number("innodb_flush_log_at_trx_commit"),
    )
    given = found.get("datadir")
    home = given.value.rstrip("/") or "/" if given else "/var/lib/mysql"
    logs = found["innodb_log_group_home_dir"].value if "innodb_log_group_home_dir" in found else "."
    return Database("mysql", home, facts, logs=os.path.realpath(Path(home) / logs))


def _doublewrite(found: Settings) -> bool:
    """MySQL 8.0.30 has values besides ON and OFF."""
    setting = found.get("innodb_doublewrite", Setting("ON", Path(), 0))
    word = setting.value.lower()
    if word in ("detect_only", "detect_and_recover", "fast"):
        return word != "detect_only"
    return my_cnf.flag(setting)


def _word(found: Settings, name: str, default: str) -> str:
    return found[name].value.lower() if name in found else default
