"""The module parameters of ZFS below vfs.zfs, by their Linux names.

The kernel checks almost no value, but two: a limit of the ARC outside of its bounds is refused
with EINVAL and nothing is stored, and 0 is stored for it but changes nothing
(module/os/freebsd/zfs/sysctl_os.c, param_set_arc_max() and param_set_arc_min(), 2.1 to 2.4).
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

# Names of older FreeBSD for the same variables: sysctl_os.c, "LEGACY"; debugflags is a handler
# of its own. arc.free_target and arc.no_grow_shift came with 2.2.
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
    """Implements zfstrace.params.Parameters. names gives the sysctls by Linux name; root is where
    /etc and /boot are; order is for BootFiles."""

    def __init__(
        self, sysctl: Sysctl, names: Names, order: Order = by_name, root: str | Path = "/"
    ) -> None:
        self._sysctl, self._names, self._order = sysctl, names, order
        self._root = Path(root)
        self._comparing: list[ComparingWatch] = []

    def names(self) -> list[str]:
        return sorted(name for name in self._names() if self._format(name))

    def _oid(self, name: str) -> str | None:
        """The sysctl of a parameter: under its older name where it has no other."""
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
        # a jail may not, whoever asks (PRIV_SYSCTL_WRITE)
        jailed = self._sysctl.get_int("security.jail.jailed")
        return form is not None and form.writable and os.geteuid() == 0 and not jailed

    def write(self, name: str, value: int, identity: str | None = None) -> None:
        oid = self._oid(name)
        if identity not in (None, self.identity()):
            raise ParameterError(f"cannot set {name}, {LOADED_ANEW}")
        if oid is None:
            raise ParameterError(f"cannot set {name}, ZFS has no such parameter here")
        try:
            self._sysctl.set(oid, value)
        except OverflowError as error:
            raise ParameterError(f"cannot set {name} ({oid}) to {value}, {error}") from None
        except SysctlError as error:
            raise ParameterError(self._why(name, oid, value, error)) from None
        for watch in self._comparing:
            watch.known(name, self.read(name))  # which may be another value (ARC limits)

    def _why(self, name: str, oid: str, value: int, error: SysctlError) -> str:
        what = f"cannot set {name}"
        if error.errno == errno.ENOENT:
            return f"{what}, ZFS has no such parameter here ({oid})"
        form = self._format(name)
        if error.errno == errno.EPERM and form and not form.writable:
            return f"{what}, {oid} is read-only, set it in /boot/loader.conf"
        if error.errno == errno.EPERM:
            return f"{what}, no permission to write {oid}, run as root outside of jails"
        if error.errno == errno.EINVAL and ALIASES.get(oid, oid) in _ARC_LIMITS:
            why = "it must be between the other limit and the memory"
            return f"{what} to {value}, the kernel refuses it for {oid}: {why}"
        return f"{what} to {value}, the kernel refuses it for {oid}: {error.strerror}"

    def identity(self) -> str:
        # OIDs of a module are numbered as it is loaded, and no number is used again soon
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
        """None where DTrace is not to be had."""
        from zfs_freebsd.dtrace import scripts

        if scripts.why_not(self._root)[0]:
            return None
        from zfs_freebsd.dtrace.process import Dtrace

        try:
            # it ends with this process, however that ends
            return Dtrace(scripts.script(SCRIPT), str(os.getpid()))
        except TraceError:
            return None

    def _known_as(self, names: Sequence[str]) -> dict[str, str]:
        """These parameters by all names of their sysctls, and by their numbers: sysctl(8) asks by
        numbers."""
        found = {}
        for name in names:
            oid = self._names().get(name, "")
            for known in filter(self._has, (oid, _OLDER.get(oid, ""))):
                found[known] = name
                found[".".join(map(str, self._sysctl.mib(known)))] = name
        return found

    def _forget(self, watch: ComparingWatch) -> None:
        """No more word to it of what is written here."""
        self._comparing = [other for other in self._comparing if other is not watch]

    def shell(self, name: str, value: int) -> str:
        return f"sysctl {self._oid(name) or self._names().get(name, name)}={value}"

    def loading(self) -> str:
        return "kldload zfs"

    def boot(self) -> BootConfig:
        names = {name: self._oid(name) or oid for name, oid in self._names().items()}
        return BootFiles(self._root, names, ALIASES, self._tunable_only, self._order)

    def _tunable_only(self, name: str) -> bool:
        """Whether only the loader can set it."""
        form = self._format(name)
        return form is not None and form.tunable and not form.writable
