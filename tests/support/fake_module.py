"""A zfs module whose parameters are files, so that several processes share them, and that
takes ARC limits as the kernel does (kernel.py)."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from support.fake_host import FakeHost
from support.kernel import TUNED, Arc

from zfstrace.errors import ParameterError
from zfstrace.params import LOADED_ANEW, BootConfig, Change
from zfstune.changes.lock import Busy, Lock
from zfstune.changes.state_dir import Places

MIB = 1 << 20
GIB = 1 << 30

DEFAULTS = {
    "zfs_arc_dnode_limit": 0,
    "zfs_arc_dnode_limit_percent": 10,
    "zfs_arc_grow_retry": 0,
    "zfs_arc_max": 0,
    "zfs_arc_min": 0,
    "zfs_arc_min_prefetch_ms": 0,
    "zfs_arc_shrink_shift": 0,
    "zfs_arc_sys_free": 0,
    "zfs_commit_timeout_pct": 10,
    "zfs_delay_min_dirty_percent": 60,
    "zfs_delay_scale": 500000,
    "zfs_dirty_data_max": 4 * GIB,
    "zfs_dirty_data_max_max": 4 * GIB,
    "zfs_dirty_data_sync_percent": 20,
    "zfs_txg_timeout": 5,
    "zfs_vdev_async_write_active_max_dirty_percent": 60,
    "zfs_vdev_async_write_active_min_dirty_percent": 30,
    "zfs_vdev_async_write_max_active": 10,
    "zfs_vdev_async_write_min_active": 2,
    "zfs_wrlog_data_max": 8 * GIB,
    "zil_slog_bulk": 64 * MIB,
}
# 2.3, whose limits differ a little from those that such a host would have
LOADED = {
    "version": (2, 3),
    "memory": 64 * GIB,
    "c_min": 2 * GIB,
    "c_max": 62 * GIB,
    "dnode_limit": 62 * GIB // 10,
    "sys_free": 2608 * MIB + 1,
}
ARC = Arc(**LOADED).stats()  # type: ignore[arg-type]
NAMES = [name for name in DEFAULTS if name != "zfs_dirty_data_max_max"]


class QueueWatch:
    """Reports what a test has put into changes."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.closed = False

    def poll(self) -> list[Change]:
        changes, self.changes[:] = list(self.changes), []
        return changes

    def close(self) -> None:
        self.closed = True


class FileParameters:
    """Implements zfstrace.params.Parameters; a write replaces a file atomically."""

    def __init__(self, root: Path, watch_: QueueWatch | None = None) -> None:
        self.root = root
        self.watch_ = watch_ or QueueWatch()
        # name -> what a write of it raises
        self.refuse: dict[str, ParameterError] = {}
        # every write of this process
        self.log: list[tuple[str, int]] = []

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.glob("z*"))

    def read(self, name: str) -> int | None:
        try:
            return int((self.root / name).read_text())
        except FileNotFoundError:
            return None

    def writable(self, name: str) -> bool:
        return (self.root / name).exists()

    def write(self, name: str, value: int, identity: str | None = None) -> None:
        if identity not in (None, self.identity()):
            raise ParameterError(f"cannot set {name}, {LOADED_ANEW}")
        if name in self.refuse:
            raise self.refuse[name]
        if not (self.root / name).exists():
            raise ParameterError(f"cannot set {name}, ZFS has no such parameter here")
        self.log.append((name, value))
        self.put(name, value)

    def put(self, name: str, value: int) -> None:
        """A write by another program."""
        self._replace(self.root / name, str(value))
        if name in TUNED:
            self._replace(self.root / ".arc", json.dumps(vars(self.arc_tuning_update())))

    def _replace(self, path: Path, text: str) -> None:
        new = self.root / f".{path.name}.{os.getpid()}"
        new.write_text(text)
        new.replace(path)

    def variables(self) -> Arc:
        """What the parameters have made of the ARC."""
        found = json.loads((self.root / ".arc").read_text())
        return Arc(**{**found, "version": tuple(found["version"])})

    def arc(self) -> dict[str, int]:
        """What arcstats has of it."""
        return self.variables().stats()

    def arc_tuning_update(self) -> Arc:
        arc = self.variables()
        names = (name for name in TUNED if (self.root / name).exists())
        arc.arc_tuning_update({name: self.read(name) or 0 for name in names})
        return arc

    def identity(self) -> str:
        try:
            return (self.root / ".identity").read_text()
        except FileNotFoundError:
            return ""

    def watch(self, names: Sequence[str], ours: Collection[int] = ()) -> QueueWatch:
        return self.watch_

    def shell(self, name: str, value: int) -> str:
        return f"echo {value} > {self.root / name}"

    def loading(self) -> str:
        return "modprobe zfs"

    def who(self) -> str:
        return "root"

    def boot(self) -> BootConfig:
        from zfs_linux.boot import ModprobeConfig

        return ModprobeConfig(self.root.parent)


class ModuleHost(FakeHost):
    """A host with this module; the directories of the journal are beside it."""

    def __init__(self, root: Path, *, create: bool = True) -> None:
        super().__init__()
        self.where = Places(root / "state", root / "run/zfstune")
        directory = root / "parameters"
        if create:
            directory.mkdir()
            (directory / ".identity").write_text("boot:1")
            (directory / ".arc").write_text(json.dumps(LOADED))
            for name, value in DEFAULTS.items():
                (directory / name).write_text(str(value))
        self.params = FileParameters(directory)

    def parameters(self) -> FileParameters:  # type: ignore[override]
        return self.params

    def kstat(self, name: str) -> dict[str, int]:
        if name == "arcstats":
            return {**self.params.arc(), "size": GIB}
        return self.kstats.get(name, {})

    def now(self) -> dict[str, int]:
        """All parameters and their values."""
        found = ((name, self.params.read(name)) for name in self.params.names())
        return {name: value for name, value in found if value is not None}


def untouched(host: ModuleHost) -> bool:
    """Whether all values and the limits of the ARC are the defaults."""
    arc = host.params.arc()
    return host.now() == DEFAULTS and arc["c_max"] == 62 << 30 and arc["c_min"] == 2 << 30


def lock_is_free(host: ModuleHost) -> bool:
    """Whether no session holds the lock."""
    try:
        Lock.take(host.where, "test", 0).release()
    except Busy:
        return False
    return True
