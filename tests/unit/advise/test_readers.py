"""What zpool(8) and zfs(8) print, and what the system says about disks: samples and nonsense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_advise import MIRROR, SINGLE

from zfs_freebsd import disks as freebsd_disks
from zfs_linux import disks as linux_disks
from zfstrace.disk import Disk
from zfstrace.zpool import properties, status
from zfstrace.zpool.properties import Property

BIG = """\
  pool: big
 state: DEGRADED
status: One or more devices could not be opened.
action: Attach the missing device and online it using 'zpool online'.
  scan: resilvered 1.5G in 00:00:10 with 0 errors on Sat Nov 21 10:00:00 2026
config:

\tNAME                      STATE     READ WRITE CKSUM
\tbig                       DEGRADED     0     0     0
\t  raidz2-0                DEGRADED     0     0     0
\t    sda                   ONLINE       0     0     0
\t    replacing-1           DEGRADED     0     0     0
\t      12345678901234567   UNAVAIL      0     0     0  was /dev/sdb1
\t      sdc                 ONLINE       0     0     0  (resilvering)
\t    /img/my file.raw      ONLINE       0     0     0
\tdedup\t
\t  sdd                     ONLINE       0     0     0
\tspecial\t
\t  mirror-2                ONLINE       0     0     0
\t    sde                   ONLINE       0     0     0
\t    sdf                   ONLINE       0     0     0  block size: 512B configured, 4096B native
\tlogs\t
\t  mirror-3                ONLINE       0     0     0
\t    sdg                   ONLINE       0     0     0
\t    sdh                   ONLINE       0     0     0
\tcache
\t  sdi                     ONLINE       0     0     0
\tspares
\t  sdj                     AVAIL

errors: No known data errors

  pool: other
 state: ONLINE
config:

\tNAME        STATE     READ WRITE CKSUM
\tother       ONLINE       0     0     0
\t  sdz       ONLINE       0     0     0
"""


def test_zpool_status_is_read_from_text() -> None:
    vdevs = status.parse_text(BIG)
    assert [(v.name, v.group, v.kind, v.redundant) for v in vdevs] == [
        ("raidz2-0", "data", "raidz", True),
        ("sdd", "dedup", "disk", False),
        ("mirror-2", "special", "mirror", True),
        ("mirror-3", "log", "mirror", True),
        ("sdi", "cache", "disk", False),
        ("sdj", "spare", "disk", False),
    ]
    leaves = [leaf for vdev in vdevs for leaf in vdev.leaves()]
    assert leaves[3].name == "/img/my file.raw" == leaves[3].path
    assert [(v.configured, v.native) for v in leaves if v.native] == [(512, 4096)]
    assert leaves[1].state == "UNAVAIL"


def test_paths_are_taken_from_a_second_call() -> None:
    named = status.parse_text(MIRROR)
    pathed = status.parse_text(MIRROR.replace(" vd", " /dev/vd"))
    (mirror,) = status.with_paths(named, pathed)
    assert mirror.name == "mirror-0"
    assert [leaf.path for leaf in mirror.leaves()] == ["/dev/vdb", "/dev/vdc"]
    assert [leaf.name for leaf in mirror.leaves()] == ["vdb", "vdc"]
    # a disk was replaced in between
    assert status.with_paths(named, status.parse_text(SINGLE)) == named


def leaf(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "vdev_type": "disk", "state": "ONLINE", "path": f"/dev/{name}1", **more}


# As print_status_config() and its JSON twin in cmd/zpool/zpool_main.c of 2.3 build it.
STATUS = {
    "output_version": {"command": "zpool status", "vers_major": 0, "vers_minor": 1},
    "pools": {
        "tank": {
            "name": "tank",
            "state": "ONLINE",
            "vdevs": {
                "tank": {
                    "name": "tank",
                    "vdev_type": "root",
                    "vdevs": {
                        "mirror-0": {
                            "vdev_type": "mirror",
                            "state": "ONLINE",
                            "vdevs": {
                                "sda": leaf("sda", configured_ashift="9", physical_ashift="12"),
                                "sdb": leaf("sdb"),
                            },
                        }
                    },
                }
            },
            "logs": {"sdc": leaf("sdc")},
            "l2cache": {"sdd": leaf("sdd")},
        }
    },
}


def test_zpool_status_is_read_from_json() -> None:
    vdevs = status.parse_json(json.dumps(STATUS), "tank")
    assert [(v.name, v.group) for v in vdevs] == [
        ("mirror-0", "data"),
        ("sdc", "log"),
        ("sdd", "cache"),
    ]
    first, second = vdevs[0].leaves()
    assert (first.path, first.configured, first.native) == ("/dev/sda1", 512, 4096)
    assert second.native == 0
    assert status.parse_json(json.dumps(STATUS), "other") == []


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    status.parse_text(text)
    status.parse_json(text, "tank")
    properties.parse(text)
    freebsd_disks.parse_diskinfo(text)


LINES = BIG.splitlines(keepends=True)


@given(st.lists(st.sampled_from([*LINES, "\t\n", "\tlogs\n", "\t          x  ONLINE  0\n"])))
def test_lines_in_any_order_are_read(lines: list[str]) -> None:
    for vdev in status.parse_text("".join(lines)):
        list(vdev.leaves())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("ONLINE"),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["vdevs", "tank", "state", "path", "logs", "a"]), inner)
    ),
)


@given(VALUES, st.sampled_from(["configured_ashift", "vdevs", "logs", "path"]))
def test_json_of_any_shape_is_read(value: object, key: str) -> None:
    status.parse_json(json.dumps({"pools": {"tank": value}}), "tank")
    inner = {"vdevs": {"tank": {"vdevs": {"a": leaf("a", **{key: value})}}}, "logs": value}
    status.parse_json(json.dumps({"pools": {"tank": inner}}), "tank")


def test_properties_are_read_with_their_origin() -> None:
    text = (
        "tank\trecordsize\t131072\tdefault\n"
        "tank\tcapacity\t12%\t-\n"
        "tank\torg:note\ta\tlocal\n"
        "tank/a b\tsync\tdisabled\tinherited from tank\n"
        "tank\trecordsize\t512\tlocal\n"  # as the value of a user property may fake it
        "nonsense\n"
    )
    found = properties.parse(text)
    assert found["tank"]["recordsize"] == Property(131072, "default")
    assert found["tank"]["capacity"].value == 12
    assert "org:note" not in found["tank"]
    assert properties.origin("tank/a b", found["tank/a b"]["sync"].source) == "tank"


# --- disks


def queue(sys: Path, name: str, **files: str) -> Path:
    entry = sys / "devices" / name
    (entry / "queue").mkdir(parents=True)
    for file, value in files.items():
        (entry / "queue" / file).write_text(f"{value}\n")
    (sys / "class/block").mkdir(parents=True, exist_ok=True)
    (sys / "class/block" / name).symlink_to(entry)
    return entry


def test_disks_are_described_from_sysfs(tmp_path: Path) -> None:
    entry = queue(
        tmp_path,
        "sda",
        logical_block_size="512",
        physical_block_size="4096",
        rotational="1",
        write_cache="write back",
    )
    part = entry / "sda1"
    part.mkdir()
    (part / "partition").write_text("1\n")
    (tmp_path / "class/block/sda1").symlink_to(part)
    (tmp_path / "by-id").symlink_to("/dev/sda1")
    disk = Disk(512, 4096, True, True)
    assert linux_disks.inspect("/dev/sda", tmp_path) == disk
    assert linux_disks.inspect("/dev/sda1", tmp_path) == disk
    assert linux_disks.inspect(str(tmp_path / "by-id"), tmp_path) == disk
    queue(tmp_path, "nvme0n1", rotational="0", write_cache="write through")
    assert linux_disks.inspect("/dev/nvme0n1", tmp_path) == Disk(None, None, False, False)
    queue(tmp_path, "vda", physical_block_size="4096", rotational="1")
    assert linux_disks.inspect("/dev/vda", tmp_path) == Disk(None, 4096, None, None)
    entry = queue(tmp_path, "sdq", physical_block_size="512", rotational="1")
    (entry / "device").mkdir()
    (entry / "device/vendor").write_text("QEMU    \n")
    assert linux_disks.inspect("/dev/sdq", tmp_path) == Disk(None, 512, None, None)
    assert linux_disks.inspect("/img/file", tmp_path) is None
    assert linux_disks.inspect("/img/sda", tmp_path) is None


DISKINFO = """\
/dev/ada0
\t512         \t# sectorsize
\t1000204886016\t# mediasize in bytes (932G)
\t1953525168  \t# mediasize in sectors
\t{stripe}        \t# stripesize
\t0           \t# stripeoffset
\tWDC         \t# Disk descr.
\tYes         \t# TRIM/UNMAP support
\t{rate}        \t# Rotation rate in RPM
"""


@pytest.mark.parametrize(
    ("stripe", "rate", "disk"),
    [
        ("4096", "7200", Disk(512, 4096, True)),
        ("0", "0", Disk(512, 512, False)),
        ("4096", "Unknown", Disk(512, 4096, None)),
    ],
)
def test_disks_are_described_from_diskinfo(stripe: str, rate: str, disk: Disk) -> None:
    assert freebsd_disks.parse_diskinfo(DISKINFO.format(stripe=stripe, rate=rate)) == disk
    assert freebsd_disks.parse_diskinfo("diskinfo: /dev/x: No such file\n") is None
