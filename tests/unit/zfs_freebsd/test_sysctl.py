"""The ctypes side of sysctl(3): types, sizes and errors, on a stand-in for libc."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.freebsd import standin
from support.freebsd.standin import ROOT, Table

from zfs_freebsd.kstat import Kstats
from zfs_freebsd.sysctl import Sysctl, SysctlError
from zfstrace.kstat.parse import parse_history
from zfstrace.kstat.txgs import parse_txgs


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setenv("SYSCTL_STANDIN_TABLE", str(tmp_path / "table"))
    return Table(tmp_path / "table").host(["tank"]).write()


@pytest.fixture
def sysctl(table: Table) -> Sysctl:
    return Sysctl(str(standin.build()))


VALUES: dict[str, tuple[object, str]] = {
    "int": (-7, "I"),
    "uint": (0xFFFFFFFF, "IU"),
    "long": (-(1 << 62), "L"),
    "ulong": ((1 << 64) - 1, "LU"),
    "s64": (-(1 << 63), "Q"),
    "u64": ((1 << 64) - 1, "QU"),
    "string": ("two\nlines \\ é", "A"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_each_type_are_read(table: Table, sysctl: Sysctl, kind: str) -> None:
    value, text = VALUES[kind]
    table.add("kern/x", kind, value).write()
    assert sysctl.get("kern.x") == value
    assert sysctl.format(sysctl.mib("kern.x"), "kern.x").text == text


def test_opaque_values_are_bytes(sysctl: Sysctl) -> None:
    assert sysctl.get("kern.boot_id") == bytes.fromhex("4c8609698ad1a11cdc00cf6eb7d954e1")


@pytest.mark.parametrize("kind", ["int", "uint", "long", "ulong", "s64", "u64"])
def test_values_of_each_type_are_set(table: Table, sysctl: Sysctl, kind: str) -> None:
    table.add("kern/x", kind, 5, "w").write()
    sysctl.set("kern.x", 77)
    assert sysctl.get("kern.x") == 77
    assert table.read("kern/x") == 77


@pytest.mark.parametrize(
    ("kind", "value"), [("uint", -1), ("uint", 1 << 32), ("int", 1 << 31), ("u64", -1)]
)
def test_values_out_of_range_are_refused(
    table: Table, sysctl: Sysctl, kind: str, value: int
) -> None:
    table.add("kern/x", kind, 5, "w").write()
    with pytest.raises(OverflowError):
        sysctl.set("kern.x", value)
    assert sysctl.get("kern.x") == 5


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("vfs.zfs.nothing", errno.ENOENT),
        ("vfs.zfs", errno.ENOENT),  # a node
        ("hw.physmem", errno.EPERM),
        ("vfs.zfs.arc.max", errno.EINVAL),
        ("vfs.zfs.version.module", errno.EINVAL),  # a text
    ],
)
def test_errors_have_errno_and_name(sysctl: Sysctl, name: str, number: int) -> None:
    with pytest.raises(SysctlError) as raised:
        sysctl.set(name, 5)
    assert raised.value.errno == (number if name != "vfs.zfs" else errno.EINVAL)
    assert raised.value.filename == name


def test_without_privilege_nothing_is_set(sysctl: Sysctl, monkeypatch: pytest.MonkeyPatch) -> None:
    # getenv(3) sees what os.environ sets
    monkeypatch.setenv("SYSCTL_STANDIN_USER", "1")
    with pytest.raises(SysctlError) as raised:
        sysctl.set("vfs.zfs.txg.timeout", 9)
    assert raised.value.errno == errno.EPERM
    assert sysctl.get("vfs.zfs.txg.timeout") == 5


def test_a_node_has_no_value(sysctl: Sysctl) -> None:
    with pytest.raises(SysctlError) as raised:
        sysctl.get("vfs.zfs.txg")
    assert raised.value.errno == errno.EISDIR


def test_flags_of_a_node_are_read(table: Table, sysctl: Sysctl) -> None:
    def flags(name: str) -> tuple[bool, bool, bool]:
        form = sysctl.format(sysctl.mib(name), name)
        return form.node, form.writable, form.tunable

    assert flags("vfs.zfs.txg.timeout") == (False, True, True)
    assert flags("vfs.zfs.dirty_data_max_max") == (False, False, True)
    assert flags("hw.physmem") == (False, False, False)
    assert flags("vfs.zfs.txg") == (True, False, False)


def test_a_text_that_grows_is_read_again(table: Table, sysctl: Sysctl) -> None:
    table.add("kstat/zfs/tank/txgs", "string", "\ntxg birth\n1 2\n", "sg").write()
    text = sysctl.get("kstat.zfs.tank.txgs")
    assert isinstance(text, str)
    # two times longer than it was when its size was asked for
    assert len(text) == len("\ntxg birth\n1 2\n") + 2 * 3000
    assert parse_history(text) == [{"txg": 1, "birth": 2}]


def test_children_of_a_node_are_listed(table: Table, sysctl: Sysctl) -> None:
    def names(parent: str, *, hidden: bool = False) -> list[str]:
        return [name for _mib, name in sysctl.children(sysctl.mib(parent), hidden=hidden)]

    table.add("kstat/zfs/a.b/misc/iostats/x", "u64", 1)
    table.add("kstat/zfs/only_hidden/txgs", "string", "", "s").write()
    assert names("kstat.zfs") == ["a.b", "misc", "tank"]
    assert names("kstat.zfs", hidden=True) == ["a.b", "misc", "only_hidden", "tank"]
    assert names("kstat.zfs.tank") == ["dataset", "misc"]
    assert names("kstat.zfs.tank", hidden=True) == ["dataset", "misc", "txgs"]
    assert names("kstat.zfs.tank.misc") == ["iostats"]
    assert names("hw.physmem") == []


def test_kstats_are_read(table: Table, sysctl: Sysctl) -> None:
    kstats = Kstats(sysctl)
    assert kstats.pools() == ["tank"]
    assert kstats.named("arcstats")["c_min"] == 2 << 30
    assert kstats.named("tank/iostats") == {"trim_extents_written": 7}
    assert kstats.named("tank/objset-0x4b")["nwritten"] == 163840
    assert kstats.objset_field(kstats.objset("tank", 0x4B), "dataset_name") == "tank/db"
    assert list(kstats.objsets("tank")) == [0x4B]
    assert kstats.text("tank", "misc", "state") == "ONLINE\n"
    recorded = (standin.RECORDED / "txgs").read_text()
    assert kstats.txg_rows("tank") == parse_txgs(recorded) != []


def test_a_kstat_is_walked_once(
    table: Table, sysctl: Sysctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    kstats = Kstats(sysctl)
    walks: list[object] = []
    children = sysctl.children

    def counted(parent: tuple[int, ...], *, hidden: bool = False) -> object:
        walks.append(parent)
        return children(parent, hidden=hidden)

    monkeypatch.setattr(sysctl, "children", counted)
    assert kstats.named("arcstats")["c_min"] == 2 << 30
    table.put("kstat/zfs/misc/arcstats/c_min", 1 << 30)
    assert kstats.named("arcstats")["c_min"] == 1 << 30
    assert len(walks) == 1
    table.remove("kstat/zfs/misc/arcstats").write()
    assert kstats.named("arcstats") == {}


def test_missing_kstats_are_empty(table: Table, sysctl: Sysctl) -> None:
    kstats = Kstats(sysctl)
    assert kstats.named("gone") == kstats.named("gone/iostats") == {}
    assert kstats.txg_rows("gone") == []
    assert kstats.objsets("gone") == {}
    assert kstats.objset_field(kstats.objset("tank", 0x4B), "gone") is None
    table.remove("kstat").write()
    assert kstats.pools() == []


@pytest.mark.parametrize("written", ["my.old.pool", "my%25old%25pool"])
def test_dots_in_the_name_of_a_pool_are_read(table: Table, sysctl: Sysctl, written: str) -> None:
    table.pool(written)
    table.write()
    kstats = Kstats(sysctl)
    assert kstats.pools() == ["my.old.pool", "tank"]
    assert kstats.text("my.old.pool", "misc", "state") == "ONLINE\n"
    assert kstats.txg_rows("my.old.pool") == kstats.txg_rows("tank")
    assert kstats.named("my.old.pool/iostats") == {"trim_extents_written": 7}
    assert list(kstats.objsets("my.old.pool")) == [0x4B]


def test_a_pool_named_misc_is_found(table: Table, sysctl: Sysctl) -> None:
    table.pool("misc")
    table.write()
    assert Kstats(sysctl).pools() == ["misc", "tank"]


EXERCISE = """
from zfs_freebsd.kstat import Kstats
from zfs_freebsd.sysctl import Sysctl, SysctlError
import sys
sysctl = Sysctl(sys.argv[1])
kstats = Kstats(sysctl)
for name in ("vfs.zfs.txg.timeout", "vfs.zfs.arc.max"):
    for value in (9, 16 << 30, 0):
        try:
            sysctl.set(name, value)
        except (SysctlError, OverflowError) as error:
            print(error)
for name in ("kern.boot_id", "vfs", "vfs.", "", "vfs.zfs.txg.timeout.x", "x" * 900):
    try:
        print(sysctl.get(name))
    except SysctlError as error:
        print(error.errno)
for pool in kstats.pools():
    text = kstats.text(pool, "txgs")[:20]
    print(repr(text), kstats.objsets(pool), kstats.named("arcstats")["size"])
"""


def test_the_standin_passes_the_sanitizers(table: Table) -> None:
    """What the stand-in does wrong must not look like an error of the caller."""
    table.pool("my.pool")
    table.add("kstat/zfs/tank/txgs", "string", "\ntxg birth\n1 2\n", "sg").write()
    asan = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(asan).is_absolute():
        pytest.skip("no libasan here")
    folders = ("tracers", "platform/freebsd")
    done = subprocess.run(
        [sys.executable, "-S", "-c", EXERCISE, str(standin.build(*standin.SANITIZE))],
        env={
            **os.environ,
            "LD_PRELOAD": asan,
            # Python frees nothing before its end
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in folders),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "runtime error" not in done.stderr
    assert r"\ntxg birth\n1 2\n" in done.stdout
