"""A host shaped like FreeBSD: the stand-in for libc's sysctl calls, and its table, filled with
recordings of ZFS 2.3 on Linux under FreeBSD's names and types."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from support.paths import ROOT as ROOT

from zfs_linux import kstat
from zfstune.tunables import catalogue

SOURCE = ROOT / "tests/support/freebsd/sysctl_standin.c"
RECORDED = ROOT / "tests/data/trixie"
BUILD = ROOT / "build"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MEMORY = 64 << 30
VERSION = "2.3.9-FreeBSD_g0123456789"

_BITS_64 = {"bytes", "ns"}
# of type UINT all the same: vdev_queue.c, zil.c, zfs_log.c (2.3.9)
_BITS_32 = {
    "zfs_vdev_aggregation_limit",
    "zfs_vdev_aggregation_limit_non_rotating",
    "zfs_vdev_read_gap_limit",
    "zfs_vdev_write_gap_limit",
    "zil_maxblocksize",
    "zil_maxcopied",
    "zfs_immediate_write_sz",
    "zfs_arc_average_blocksize",
}
_ARC = {"zfs_arc_max": "M", "zfs_arc_min": "m"}


def build(*options: str) -> Path:
    """The shared library, rebuilt when its source is newer."""
    library = BUILD / ("libsysctl_standin" + ("_asan.so" if options else ".so"))
    if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
        BUILD.mkdir(exist_ok=True)
        new = library.with_suffix(f".{os.getpid()}")
        flags = ["-std=gnu11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
        subprocess.run(
            ["gcc", *flags, *options, "-fPIC", "-shared", "-o", str(new), str(SOURCE)], check=True
        )
        new.replace(library)
    return library


class Table:
    """The sysctls of a host, in a file that several processes share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, tuple[str, str, str]] = {}
        self.generation = 0

    def add(self, name: str, kind: str, value: object, flags: str = "") -> Table:
        """name has / between its parts."""
        text = str(value).replace("\\", "\\\\").replace("\n", "\\n")
        self._lines[name] = (kind, flags, text)
        return self

    def remove(self, beginning: str) -> Table:
        for name in [name for name in self._lines if name.startswith(beginning)]:
            del self._lines[name]
        return self

    def write(self) -> Table:
        lines = [f"# generation {self.generation}"]
        lines += ["\t".join((name, *rest)) for name, rest in self._lines.items()]
        new = self.path.with_name(self.path.name + ".test")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.path)
        return self

    def read(self, name: str) -> int:
        """The value now, whoever wrote it."""
        for line in self.path.read_text().splitlines():
            words = line.split("\t")
            if words[0] == name:
                return int(words[3])
        raise KeyError(name)

    def put(self, name: str, value: int) -> None:
        """A write by another program."""
        lines = [line.split("\t") for line in self.path.read_text().splitlines()]
        lines = [[*w[:3], str(value)] if w[0] == name else w for w in lines]
        new = self.path.with_name(self.path.name + ".test")
        new.write_text("\n".join("\t".join(words) for words in lines) + "\n")
        new.replace(self.path)

    # --- what a host has

    def host(self, pools: Iterable[str] = ("tank",)) -> Table:
        """Everything that zfstune reads."""
        self.add("kern/boot_id", "opaque", "4c8609698ad1a11cdc00cf6eb7d954e1")
        self.add("hw/physmem", "ulong", MEMORY)
        self.add("security/jail/jailed", "int", 0)
        self.add("vfs/zfs/version/module", "string", VERSION)
        self.parameters()
        for name in ("arcstats", "zil"):
            self.kstat(f"kstat/zfs/misc/{name}", RECORDED / name)
        self.add("kstat/zfs/misc/arcstats/c_min", "u64", 2 << 30)
        self.add("kstat/zfs/misc/arcstats/c_max", "u64", 60 << 30)
        self.add("kstat/zfs/misc/arcstats/memory_all_bytes", "u64", MEMORY)
        self.add("kstat/zfs/misc/dmu_tx/dmu_tx_dirty_delay", "u64", 0)
        for pool in pools:
            self.pool(pool)
        return self

    def parameters(self) -> None:
        facts = {"memory": MEMORY, "arc_c_min": 2 << 30, "arc_c_max": 60 << 30}
        for name, one in catalogue.load().items():
            if one.freebsd is None or one.until:
                continue
            value = 0 if name in _ARC else catalogue.default_value(name, "2.3.9", facts)
            wide = one.unit in _BITS_64 and name not in _BITS_32
            flags = "t" if one.access == "load" else "wt" + _ARC.get(name, "")
            self.add(one.freebsd.replace(".", "/"), "u64" if wide else "uint", value or 0, flags)

    def pool(self, pool: str) -> None:
        top = f"kstat/zfs/{pool}"
        # an empty line comes first: kstat_sysctl_raw() in spl_kstat.c
        self.add(f"{top}/txgs", "string", "\n" + (RECORDED / "txgs").read_text(), "s")
        self.add(f"{top}/misc/state", "string", "ONLINE\n", "s")
        self.add(f"{top}/misc/iostats/trim_extents_written", "u64", 7)
        self.kstat(f"{top}/dataset/objset-0x4b", RECORDED / "objset-0x4b")
        self.add(f"{top}/dataset/objset-0x4b/dataset_name", "string", f"{pool}/db")

    def kstat(self, top: str, recorded: Path) -> None:
        for name, value in kstat.parse_named(recorded.read_text()).items():
            if isinstance(value, str):
                self.add(f"{top}/{name}", "string", value)
            else:
                self.add(f"{top}/{name}", "s64" if value < 0 else "u64", value)
