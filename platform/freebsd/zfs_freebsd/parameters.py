"""The module parameters of ZFS below vfs.zfs, by their Linux names.

The kernel checks only the limits of the ARC: out of bounds, they are refused with EINVAL and not
stored; 0 is stored but changes nothing (module/os/freebsd/zfs/sysctl_os.c, param_set_arc_max() and
param_set_arc_min(), 2.1 to 2.4).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from zfs_freebsd.boot import BootFiles, Order, by_name
from zfs_freebsd.sysctl import Format, Sysctl, SysctlError
from zfs_freebsd.watch import SCRIPT, TracedWatch
from zfstrace.errors import ParameterError, TraceError
from zfstrace.params import LOADED_ANEW, BootConfig, ComparingWatch, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfs_freebsd.dtrace.process import Dtrace

# Older names of the same variables: sysctl_os.c, "LEGACY"; debugflags has its own handler.
# arc.free_target and arc.no_grow_shift came with 2.2.
ALIASES = {
    "vfs.zfs.arc_max": "vfs.zfs.arc.max",
    "vfs.zfs.arc_min": "vfs.zfs.arc.min",
    "vfs.zfs.arc_free_target": "vfs.zfs.arc.free_target",
    "vfs.zfs.arc_no_grow_shift": "vfs.zfs.arc.no_grow_shift",
    "vfs.zfs.top_maxinflight": "vfs.zfs.vdev.max_active",
    "vfs.zfs.debugflags": "vfs.zfs.flags",
}
_OLDER = {name: alias for alias, name in ALIASES.items()}
_ARC_LIMITS = ("vfs.zfs.arc.max", "vfs.zfs.arc.min")

Names = Callable[[], Mapping[str, str]]


class FreeBSDParameters:
    """Implements zfstrace.params.Parameters. names gives the sysctls by Linux name; /etc and /boot
    are below root; order is for BootFiles."""

    def __init__(
        self, sysctl: Sysctl, names: Names, order: Order = by_name, root: str | Path = "/"
    ) -> None:
        self._sysctl, self._names, self._order = sysctl, names, order
        self._root = Path(root)
        self._comparing: list[ComparingWatch] = []

    def names(self) -> list[str]:
        return sorted(name for name in self._names() if self._format(name))

    def _oid(self, name: str) -> str | None:
        """The sysctl of a parameter, under its older name if this host has only that; None if it
        has neither."""
        oid = self._names().get(name)
        for candidate in (oid, _OLDER.get(oid or "")):
            if candidate and self._has(candidate):
                return candidate
        return None

    def _has(self, oid: str) -> bool:
        try:
            return bool(self._sysctl.mib(oid))
        except SysctlError:
            return False

    def _format(self, name: str) -> Format | None:
        oid = self._oid(name)
        try:
            return self._sysctl.format(self._sysctl.mib(oid), oid) if oid else None
        except SysctlError:
            return None

    def read(self, name: str) -> int | None:
        oid = self._oid(name)
        return self._sysctl.get_int(oid) if oid else None

    def writable(self, name: str) -> bool:
        form = self._format(name)
        return form is not None and form.writable and os.geteuid() == 0 and not self._jailed()

    def _jailed(self) -> bool:
        """Then nothing can be set (PRIV_SYSCTL_WRITE)."""
        return bool(self._sysctl.get_int("security.jail.jailed"))

    def write(self, name: str, value: int, identity: str | None = None) -> None:
        oid = self._oid(name)
        if identity not in (None, self.identity()):
            raise ParameterError(f"cannot set {name}: {LOADED_ANEW}", "run the command again")
        if oid is None:
            raise ParameterError(f"cannot set {name}: ZFS has no such parameter here")
        try:
            self._sysctl.set(oid, value)
        except OverflowError as error:
            raise ParameterError(f"cannot set {name} ({oid}) to {value}: {error}") from None
        except SysctlError as error:
            raise self._refused(name, oid, value, error) from None
        for watch in self._comparing:
            watch.known(name, self.read(name))  # which may be another value (ARC limits)

    def _refused(self, name: str, oid: str, value: int, error: SysctlError) -> ParameterError:
        what = f"cannot set {name}"
        if error.errno == errno.ENOENT:
            return ParameterError(f"{what}: ZFS has no such parameter here ({oid})")
        form = self._format(name)
        if error.errno == errno.EPERM and form and not form.writable:
            return ParameterError(f"{what}: {oid} is read-only", "set it in /boot/loader.conf")
        if error.errno == errno.EPERM:
            return ParameterError(f"{what}: no permission to write {oid}", f"run as {self.who()}")
        why = error.strerror
        if error.errno == errno.EINVAL and ALIASES.get(oid, oid) in _ARC_LIMITS:
            why = "it must be between the other limit and the memory"
        return ParameterError(f"{what} to {value}: the kernel refuses it for {oid}: {why}")

    def identity(self) -> str:
        # OIDs of a module are numbered when it is loaded, and numbers are not reused soon
        # (OID_AUTO, sysctl_register_oid() in sys/kern/kern_sysctl.c)
        try:
            module = self._sysctl.mib("vfs.zfs.version.module")
        except SysctlError:
            return ""
        return f"{self._boot()}:{'.'.join(map(str, module))}"

    def _boot(self) -> str:
        """kern.boot_id is random; before FreeBSD 13 there is only kern.boottime, which moves when
        the clock is set."""
        for name in ("kern.boot_id", "kern.boottime"):
            try:
                value = self._sysctl.get(name)
            except SysctlError:
                continue
            return value.hex() if isinstance(value, bytes) else str(value)
        return ""

    def watch(self, names: Sequence[str], ours: Collection[int] = ()) -> Watch:
        watch = ComparingWatch(self.read, names, self._forget)
        self._comparing.append(watch)
        trace = self._trace_writes()
        return TracedWatch(watch, trace, self._known_as(names), ours) if trace else watch

    def _trace_writes(self) -> Dtrace | None:
        """None if DTrace is not available."""
        from zfs_freebsd.dtrace import scripts

        if scripts.why_not(self._root)[0]:
            return None
        from zfs_freebsd.dtrace.process import Dtrace

        try:
            # the script exits with this process
            return Dtrace(scripts.script(SCRIPT), str(os.getpid()))
        except TraceError:
            return None

    def _known_as(self, names: Sequence[str]) -> dict[str, str]:
        """These parameters by all names of their sysctls and by their numbers, which sysctl(8)
        uses."""
        found = {}
        for name in names:
            oid = self._names().get(name, "")
            for known in filter(self._has, (oid, _OLDER.get(oid, ""))):
                found[known] = name
                found[".".join(map(str, self._sysctl.mib(known)))] = name
        return found

    def _forget(self, watch: ComparingWatch) -> None:
        """Stops telling it of our own writes."""
        self._comparing = [other for other in self._comparing if other is not watch]

    def shell(self, name: str, value: int) -> str:
        return f"sysctl {self._oid(name) or self._names().get(name, name)}={value}"

    def loading(self) -> str:
        return "kldload zfs"

    def who(self) -> str:
        return "root outside jails" if self._jailed() else "root"

    def boot(self) -> BootConfig:
        names = {name: self._oid(name) or oid for name, oid in self._names().items()}
        return BootFiles(self._root, names, ALIASES, self._tunable_only, self._order)

    def _tunable_only(self, name: str) -> bool:
        """Whether only the loader can set it."""
        form = self._format(name)
        return form is not None and form.tunable and not form.writable
