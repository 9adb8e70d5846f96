"""What the scenario faults does in its own way on each system: parameters by the system's means and
not by the product's, the module, processes, a load."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from labkit import kernel_ints, sh
from zfstune.tunables import catalogue

Values = dict[str, int]

# Variables of the module that a parameter of 0 does not show (arc.c, arc_tuning_update()).
VARIABLES = {
    "zfs_arc_grow_retry": ("arc_grow_retry",),
    "zfs_arc_shrink_shift": ("arc_shrink_shift", "arc_no_grow_shift"),
}


class Linux:
    run = Path("/run/zfstune-faults")
    stderr = ("pipe", "terminal")  # what can stall
    stops = ("SIGSTOP", "frozen cgroup")
    variables = VARIABLES
    _parameters = Path("/sys/module/zfs/parameters")

    def parameters(self, names: Iterable[str]) -> Values:
        return {name: int((self._parameters / name).read_text()) for name in names}

    def set(self, name: str, value: int) -> None:
        """By this process."""
        (self._parameters / name).write_text(str(value))

    def setting(self, name: str, value: int) -> list[str]:
        """A program that sets it, and starts no other."""
        return ["sh", "-c", f"echo {value} > {self._parameters / name}"]

    def in_force(self) -> Values:
        return kernel_ints([name for names in self.variables.values() for name in names])

    def state(self, pid: int) -> str:
        """The state of a process: R, S, D, T, Z ..."""
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    def reload(self) -> None:
        """The module; no pool is imported."""
        sh(
            "for i in $(seq 50); do modprobe -r zfs; [ -e /sys/module/zfs ] || break; sleep 0.1; "
            "done; modprobe zfs"
        )

    def load(self) -> str:
        return (
            "exec fio --name=load --directory=/tank --rw=write --bs=16k --size=32M --fsync=8 "
            "--rate=1m --time_based --runtime=7200 --thread --output=/dev/null"
        )


class FreeBSD:
    run = Path("/var/run/zfstune-faults")
    stderr = ("terminal",)
    stops = ("SIGSTOP",)
    # what restores the others cannot be seen here
    variables: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def parameters(self, names: Iterable[str]) -> Values:
        wanted = list(names)
        return dict(zip(wanted, self._sysctl(*map(self.oid, wanted)), strict=True))

    @staticmethod
    def oid(name: str) -> str:
        return catalogue.freebsd_names()[name]

    @staticmethod
    def _sysctl(*oids: str) -> list[int]:
        return [int(line) for line in sh(f"sysctl -n {' '.join(oids)}").splitlines()]

    def set(self, name: str, value: int) -> None:
        from zfs_freebsd.sysctl import Sysctl

        Sysctl().set(self.oid(name), value)

    def setting(self, name: str, value: int) -> list[str]:
        return ["sysctl", "-q", f"{self.oid(name)}={value}"]

    def in_force(self) -> Values:
        # shrink_shift lowers it
        return {"arc_no_grow_shift": self._sysctl("vfs.zfs.arc.no_grow_shift")[0]}

    def state(self, pid: int) -> str:
        return sh(f"ps -o state= -p {pid}").strip()[:1]

    def reload(self) -> None:
        sh("for i in $(jot 50); do kldunload zfs && break; sleep 0.1; done; kldload zfs")

    def load(self) -> str:
        return (
            "while dd if=/dev/zero of=/tank/load bs=16k count=8 conv=fsync status=none; "
            "do sleep 0.1; done"
        )


if sys.platform == "linux":
    SYSTEM = Linux()
else:
    SYSTEM = FreeBSD()
