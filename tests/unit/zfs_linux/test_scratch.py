"""Whether a disk is free on Linux, and what is on it, on a fake /sys and /proc."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfs_freebsd.host import FreeBSDHost
from zfs_linux import scratch
from zfs_linux.scratch import NotFree
from zfstrace import processes
from zfstrace.disk import Scratch
from zfstrace.errors import NotSupported, TraceError, UnknownName

MIB = 1 << 20
SWAPS = "Filename Type Size Used Priority\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk sdx with two partitions, not in use."""
    for name, dev in (("sdx", "8:16"), ("sdx/sdx1", "8:17"), ("sdx/sdx2", "8:18")):
        entry = tmp_path / "sys/block" / name
        (entry / "holders").mkdir(parents=True)
        (entry / "dev").write_text(f"{dev}\n")
        (entry / "ro").write_text("0\n")
        if "/" in name:
            (entry / "partition").write_text("1\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/swaps").write_text(SWAPS)
    (tmp_path / "proc/self/mountinfo").write_text("")
    monkeypatch.setattr(scratch, "_exclusively", lambda _device: None)
    monkeypatch.setattr(processes, "output", lambda _argv, _timeout: "")
    return tmp_path


def in_use(root: Path, name: str = "sdx") -> str | None:
    entry = root / "sys/block" / name
    return scratch._in_use(root, entry, root / "sys/block/sdx", f"/dev/{entry.name}")


def mounted(dev: str, where: str, source: str = "/dev/none") -> Callable[[Path], object]:
    line = f"29 1 {dev} / {where} rw,relatime shared:1 - ext4 {source} rw\n"
    return lambda root: write(root / "proc/self/mountinfo", line)


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return ""


CASES: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "nobody": (lambda root: None, None),
    "mounted": (mounted("8:16", "/home"), "is mounted on /home"),
    "with a blank": (mounted("8:16", "/my\\040disk"), "is mounted on /my disk"),
    "a partition mounted": (mounted("8:18", "/boot"), "is mounted on /boot"),
    "another disk mounted": (mounted("8:32", "/home"), None),
    "swap": (
        lambda root: write(root / "proc/swaps", f"{SWAPS}/dev/sdx2 partition 1 0 -2\n"),
        "is used for swap",
    ),
    "swap elsewhere": (
        lambda root: write(root / "proc/swaps", f"{SWAPS}/dev/sdy partition 1 0 -2\n"),
        None,
    ),
    "dm": (
        lambda root: (
            write(root / "sys/block/sdx/sdx1/holders/dm-3", "")
            or write(root / "sys/block/dm-3/dm/name", "vg-root\n")
        ),
        "is used by vg-root",
    ),
    "md": (
        lambda root: (root / "sys/block/sdx/holders/md0").mkdir(),
        "is used by md0",
    ),
    "loop": (
        lambda root: write(root / "sys/block/loop3/loop/backing_file", "/dev/sdx1\n"),
        "is behind loop3",
    ),
    "loop of a file": (
        lambda root: write(root / "sys/block/loop3/loop/backing_file", "/image\n"),
        None,
    ),
    "read-only": (lambda root: write(root / "sys/block/sdx/ro", "1\n"), "is read-only"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_disk_in_use_says_by_what(root: Path, name: str) -> None:
    prepare, expected = CASES[name]
    prepare(root)
    assert in_use(root) == expected


def test_a_partition_is_judged_by_itself(root: Path) -> None:
    mounted("8:18", "/boot")(root)
    assert in_use(root, "sdx/sdx1") is None
    assert in_use(root, "sdx/sdx2") == "is mounted on /boot"


def test_a_volume_of_a_pool_is_in_use(root: Path) -> None:
    entry = root / "sys/block/zd0"
    entry.mkdir()
    assert scratch._in_use(root, entry, entry, "/dev/zd0") == "is a volume of a pool"


ZPOOL = """\
tank\t3.75G\t1.2M\t3.75G\t-\t-\t0%\t0%\t1.00x\tONLINE\t-
\t/dev/sdx1\t3.75G\t1.2M\t3.75G\t-\t-\t0%\t0.03%\t-\tONLINE
logs\t-\t-\t-\t-\t-\t-\t-\t-\t-
\t/dev/sdy\t1G\t0\t1G\t-\t-\t0%\t0%\t-\tONLINE
"""


@pytest.mark.parametrize("device", ["/dev/sdx1", "/dev/sdy"])
def test_disks_of_a_pool_are_found(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(processes, "output", lambda _argv, _timeout: ZPOOL)
    # the heading of the log devices has no indent either
    assert scratch._pool_of({device}) == "tank"
    assert scratch._pool_of({"/dev/sdz"}) is None


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], []),
        ([{"type": "ext4", "label": "home"}], ["ext4 home"]),
        ([{"type": "gpt", "label": None}, {"type": "gpt"}, {"type": "PMBR"}], ["GPT"]),
        ([{"type": "zfs_member", "label": "tank"}] * 20, ["ZFS tank"]),
        ([{"type": "dos"}, {"type": "swap"}], ["MBR", "swap"]),
        (["?", None], []),
    ],
)
def test_signatures_are_read_from_wipefs(entries: list[Any], expected: list[str]) -> None:
    assert scratch.parse_signatures({"signatures": entries}) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values | st.fixed_dictionaries({"signatures": json_values}))
def test_any_json_gives_signatures(said: object) -> None:
    assert all(isinstance(one, str) for one in scratch.parse_signatures(said))


def file_of(tmp_path: Path, size: int, fill: bytes = b"x") -> Scratch:
    """A file, which has no numbers of a device."""
    path = tmp_path / "disk"
    path.write_bytes(fill * size)
    return Scratch(str(path), str(path), (0, 0), (0, 0), size, 512, "", None, ())


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "output", lambda _argv, _timeout: "")


@pytest.mark.usefixtures("settled")
def test_erase_makes_both_ends_zero(tmp_path: Path) -> None:
    disk = file_of(tmp_path, 40 * MIB)
    assert not scratch._zero_at_ends(disk.device)
    scratch.erase(disk)
    data = Path(disk.path).read_bytes()
    assert len(data) == 40 * MIB
    assert not data[: 16 * MIB].strip(b"\0") and not data[-16 * MIB :].strip(b"\0")
    # the rest is not worth the time
    assert data[16 * MIB : 24 * MIB] == b"x" * 8 * MIB
    assert scratch._zero_at_ends(disk.device)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("changed", [{"dev": (8, 16)}, {"size_bytes": MIB}])
def test_another_disk_is_not_erased(tmp_path: Path, changed: dict[str, Any]) -> None:
    disk = file_of(tmp_path, 2 * MIB)
    with pytest.raises(NotFree, match="nothing was written"):
        scratch.erase(Scratch(**(vars(disk) | changed)))
    assert Path(disk.path).read_bytes() == b"x" * 2 * MIB


def test_a_busy_disk_is_refused_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(_path: str, _flags: int) -> int:
        raise OSError(16, os.strerror(16))

    monkeypatch.setattr(os, "open", busy)
    monkeypatch.setattr(scratch, "BUSY_S", 0.1)
    with pytest.raises(NotFree, match="is now in use"):
        scratch._open("/dev/sdx", os.O_RDWR)
    assert scratch._exclusively("/dev/sdx") == (
        "is in use (a mount elsewhere, a pool, RAID or the like)"
    )


@pytest.mark.parametrize("at", [0, MIB - 1, 3 * MIB - 1, 2 * MIB])
def test_any_byte_at_the_ends_is_data(tmp_path: Path, at: int) -> None:
    disk = file_of(tmp_path, 3 * MIB, b"\0")
    assert scratch._zero_at_ends(disk.device)
    with Path(disk.path).open("r+b") as file:
        file.seek(at)
        file.write(b"\1")
    assert not scratch._zero_at_ends(disk.device)


def test_what_is_not_a_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="No such file"):
        scratch.inspect(str(tmp_path / "none"))
    with pytest.raises(UnknownName, match="is not a disk"):
        scratch.inspect(str(tmp_path))
    with pytest.raises(UnknownName, match="is not a disk"):
        scratch.inspect("/dev/null")


def test_without_wipefs_no_disk_is_called_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TraceError, match="wipefs is not installed"):
        scratch._signatures("/dev/sdx")


def test_freebsd_is_refused() -> None:
    with pytest.raises(NotSupported, match="only erased on Linux"):
        FreeBSDHost.scratch(FreeBSDHost.__new__(FreeBSDHost), "/dev/ada0")
