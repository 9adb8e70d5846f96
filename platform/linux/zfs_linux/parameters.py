"""The module parameters of ZFS in /sys/module/zfs/parameters.

The kernel checks almost no value: a write takes effect when the variable is next read. The caller
judges the value.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from zfs_linux.boot import ModprobeConfig
from zfstrace.errors import ParameterError
from zfstrace.kstat.parse import is_number
from zfstrace.params import LOADED_ANEW, BootConfig, ComparingWatch, Watch

# there is no room to open a file: it may be there all the same
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class LinuxParameters:
    """Implements zfstrace.params.Parameters. /proc, /sys and /etc are below root. read() and
    identity() raise OSError where no file can be opened: a restore must not take that for a module
    or a parameter that is gone."""

    def __init__(self, root: str | Path = "/") -> None:
        self._root = Path(root)
        self._module = self._root / "sys/module/zfs"
        self._directory = self._module / "parameters"
        self._comparing: list[ComparingWatch] = []

    def names(self) -> list[str]:
        try:
            return sorted(entry.name for entry in self._directory.iterdir())
        except OSError:
            return []

    def read(self, name: str) -> int | None:
        text = _read(self._directory / name)
        return int(text) if is_number(text) else None

    def writable(self, name: str) -> bool:
        path = self._directory / name
        # root may open a file of mode 0444 for writing; the write then fails with EIO
        try:
            return bool(path.stat().st_mode & 0o200) and os.access(path, os.W_OK)
        except OSError:
            return False

    def write(self, name: str, value: int, identity: str | None = None) -> None:
        path = self._directory / name
        anew = ParameterError(f"cannot set {name}: {LOADED_ANEW}", "run the command again")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                # opened first: a file of a module that has gone accepts no write
                if identity not in (None, self.identity()):
                    raise anew
                os.write(fd, f"{value}\n".encode())
            finally:
                os.close(fd)
        except FileNotFoundError:
            raise ParameterError(f"cannot set {name}: ZFS has no such parameter here") from None
        except PermissionError:
            raise ParameterError(
                f"cannot set {name}: no permission to write {path}", "run as root"
            ) from None
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise anew from None
            raise ParameterError(
                f"cannot set {name} to {value}: the kernel refuses it: {error.strerror}"
            ) from None
        for watch in self._comparing:
            watch.known(name, value)

    def identity(self) -> str:
        boot = _read(self._root / "proc/sys/kernel/random/boot_id")
        try:
            # kernfs does not soon reuse the number of a node
            return f"{boot}:{self._module.stat().st_ino}"
        except OSError:
            return ""

    def watch(self, names: Sequence[str], ours: Collection[int] = ()) -> Watch:
        from zfs_linux.fanotify import FanotifyWatch  # ctypes is slow to load

        paths = [self._directory / name for name in names]
        try:
            return FanotifyWatch([path for path in paths if path.exists()], {os.getpid(), *ours})
        except OSError:
            # no CAP_SYS_ADMIN, or a kernel without fanotify
            watch = ComparingWatch(self.read, names, self._forget)
            self._comparing.append(watch)
            return watch

    def _forget(self, watch: ComparingWatch) -> None:
        """Stops telling it of our own writes."""
        self._comparing = [other for other in self._comparing if other is not watch]

    def shell(self, name: str, value: int) -> str:
        return f"echo {value} > {Path('/sys/module/zfs/parameters') / name}"

    def loading(self) -> str:
        return "modprobe zfs"

    def who(self) -> str:
        return "root"

    def boot(self) -> BootConfig:
        return ModprobeConfig(self._root)


def _read(path: Path) -> str:
    """The text of a file; "" if it does not exist or cannot be read. Raises OSError."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return ""
