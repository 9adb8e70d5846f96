"""A fake host for `zfstune advise`, and fakes of the tools that it runs, zpool(8) and zfs(8)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from support.fake_host import FakeHost, FakeParameters

from zfstrace.disk import Disk
from zfstrace.params import BootConfig, Kept
from zfstune.advise.command import advise
from zfstune.advise.gather import Asked

MIRROR = """\
  pool: tank
 state: ONLINE
config:

\tNAME        STATE     READ WRITE CKSUM
\ttank        ONLINE       0     0     0
\t  mirror-0  ONLINE       0     0     0
\t    vdb     ONLINE       0     0     0
\t    vdc     ONLINE       0     0     0

errors: No known data errors
"""
SINGLE = """\
  pool: tank
 state: ONLINE
config:

\tNAME        STATE     READ WRITE CKSUM
\ttank        ONLINE       0     0     0
\t  vdb       ONLINE       0     0     0  block size: 512B configured, 4096B native
\tlogs\t
\t  vdd       ONLINE       0     0     0

errors: No known data errors
"""
POOL = {"size": "8589934592", "free": "8000000000", "capacity": "6", "fragmentation": "1"}
POOL |= {"health": "ONLINE", "autotrim": "off", "ashift": "0"}
# As a new pool of 2.3 has them.
DATASET = {
    "type": "filesystem",
    "mounted": "yes",
    "recordsize": "131072",
    "compression": "on",
    "atime": "on",
    "relatime": "on",
    "checksum": "on",
    "dedup": "off",
    "copies": "1",
    "primarycache": "all",
    "secondarycache": "all",
    "logbias": "latency",
    "sync": "standard",
    "xattr": "on",
    "redundant_metadata": "all",
    "special_small_blocks": "0",
    "direct": "standard",
}
VOLUME = {name: value for name, value in DATASET.items() if name not in ("recordsize", "mounted")}
VOLUME |= {"type": "volume", "volblocksize": "16384"}


def rows(name: str, values: Mapping[str, str], source: str = "default") -> str:
    """Lines of `zfs get`; a value may give its own source after a blank: "off local"."""
    lines = []
    for key, value in values.items():
        word, _, own = value.partition(" ")
        lines.append(f"{name}\t{key}\t{word}\t{own or source}\n")
    return "".join(lines)


class Tools:
    """Answers like zpool(8) and zfs(8), "" to unknown commands. asked has every command line."""

    def __init__(
        self,
        datasets: Mapping[str, Mapping[str, str]] | None = None,
        status: str = MIRROR,
        pool: Mapping[str, str] | None = None,
        json_status: str = "",
        vdevs: str = "",
    ) -> None:
        self.datasets = {name: dict(given) for name, given in (datasets or {"tank": {}}).items()}
        self.status, self.pool = status, {**POOL, **(pool or {})}
        self.json_status, self.vdevs = json_status, vdevs
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str], timeout_s: float) -> str:
        self.asked.append([*argv])
        last = argv[-1]
        if argv[:2] == ["zpool", "status"]:
            if "-j" in argv:
                return self.json_status
            return self.status.replace(" vd", " /dev/vd") if "-P" in argv else self.status
        if argv[:2] == ["zpool", "get"]:
            return self.vdevs if last == "all-vdevs" else rows(last, self.pool, "-")
        if argv[:2] == ["zfs", "list"]:
            return "".join(f"{name}\n" for name in self.datasets)
        found = ""
        for name, given in self.datasets.items():
            if name == last or name.startswith(f"{last}/"):
                base = VOLUME if given.get("type") == "volume" else DATASET
                mount = {"mountpoint": f"/{name}"} if base is DATASET else {}
                found += rows(name, base | mount | given)
        return found


class Boot(BootConfig):
    """A boot configuration with these values."""

    def __init__(self, kept: Mapping[str, int]) -> None:
        self.kept = dict(kept)

    def values(self) -> dict[str, int]:
        return self.kept

    def preview(self, values: Mapping[str, int], drop: Any = ()) -> Kept:
        raise AssertionError("advise writes nothing")

    update = preview


class ReadParameters(FakeParameters):
    def __init__(self, values: dict[str, int], kept: Mapping[str, int]) -> None:
        super().__init__(values)
        self.kept = kept

    def boot(self) -> BootConfig:
        return Boot(self.kept)

    def write(self, name: str, value: int, identity: str | None = None) -> None:
        raise AssertionError("advise writes nothing")


class AdviseHost(FakeHost):
    """Memory 64 GiB, pools tank and idle, disks with sectors of 4 KiB."""

    def __init__(self, **parameters: int) -> None:
        super().__init__()
        self.values = parameters or {"zfs_txg_timeout": 5}
        self.kept: dict[str, int] = {}
        disk = Disk(512, 4096, rotational=False, volatile=True)
        self.disks = {f"/dev/vd{letter}": disk for letter in "bcdef"}
        self.kstats = {"arcstats": {"c_max": 32 << 30, "c_min": 2 << 30, "size": 1 << 30}}

    def parameters(self) -> FakeParameters:
        return ReadParameters(self.values, self.kept)


def run(
    tools: Tools, asked: Asked | None = None, host: FakeHost | None = None
) -> tuple[int, dict[str, Any]]:
    """Runs `zfstune advise --json`: its status, and the JSON."""
    out = io.StringIO()
    what = asked or Asked("tank")
    status = advise(host or AdviseHost(), what, out, as_json=True, run=tools)
    return status, json.loads(out.getvalue())


def text(tools: Tools, asked: Asked | None = None, host: FakeHost | None = None) -> str:
    out = io.StringIO()
    advise(host or AdviseHost(), asked or Asked("tank"), out, as_json=False, run=tools)
    return out.getvalue()


def found(tools: Tools, asked: Asked | None = None, host: FakeHost | None = None) -> list[str]:
    """The ids of the rules that hold."""
    return [finding["rule"] for finding in run(tools, asked, host)[1]["findings"]]
