"""LinuxHost on a fake /proc and /sys: names, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.paths import DATA

from zfs_linux import checks
from zfs_linux.host import LinuxHost
from zfs_linux.traces import ThrottleWithParams, TracedFsyncs
from zfstrace.bpf.fsync import FsyncTrace
from zfstrace.errors import TraceError
from zfstrace.types import Check, FsyncOptions, TraceOptions

ALL = "CapEff:\t000001ffffffffff\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for directory in ("proc/spl/kstat/zfs/tank", "proc/self", "proc/12", "sys/module/zfs"):
        (tmp_path / directory).mkdir(parents=True)
    for directory in ("sys/kernel/btf", "sys/kernel/tracing"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "sys/module/zfs/version").write_text("2.3.2-1\n")
    (tmp_path / "sys/kernel/btf/vmlinux").write_text("")
    (tmp_path / "sys/kernel/tracing/events").write_text("")
    (tmp_path / "proc/self/status").write_text(ALL)
    (tmp_path / "proc/12/status").write_text("Name:\tx\nTgid:\t11\nPid:\t12\n")
    (tmp_path / "proc/spl/kstat/zfs/zil").write_text("")
    (tmp_path / "proc/spl/kstat/zfs/tank/txgs").write_text("")
    write_objset(tmp_path, 0x36, "tank")
    write_mounts(tmp_path, {50: "tank"})
    return tmp_path


def write_objset(root: Path, objset: int, name: str) -> Path:
    path = root / f"proc/spl/kstat/zfs/tank/objset-0x{objset:x}"
    path.write_text(f"1 1 1\nname type data\ndataset_name                    7    {name}\n")
    return path


def write_mounts(root: Path, mounts: dict[int, str]) -> None:
    lines = [f"40 23 0:{minor} / /{name} rw - zfs {name} rw\n" for minor, name in mounts.items()]
    (root / "proc/self/mountinfo").write_text("".join(lines))


def test_written_bytes_come_from_objsets(root: Path) -> None:
    recorded = DATA / "trixie/objset-0x4b"
    (root / "proc/spl/kstat/zfs/tank/objset-0x4b").write_text(recorded.read_text())
    now, found = LinuxHost(root).written("tank")
    # the objset of the fixture has no such counter
    assert found == {0x4B: 163840}
    assert now > 0
    assert LinuxHost(root).written("gone")[1] == {}


@pytest.mark.parametrize(("state", "held"), [("ONLINE", []), ("SUSPENDED", ["tank"])])
def test_a_pool_that_blocks_writes_holds_probes(root: Path, state: str, held: list[str]) -> None:
    (root / "proc/spl/kstat/zfs/tank/state").write_text(f"{state}\n")
    assert LinuxHost(root).pools_blocking_detach() == held


def test_a_zpool_that_hangs_does_not_hold_up_a_trace_of_devices(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that opens it has two minutes until its watchdog."""
    pools, now, opened = [f"p{i}" for i in range(25)], [100.0], list[int]()
    for pool in pools:
        (root / "proc/spl/kstat/zfs" / pool).mkdir()
        (root / "proc/spl/kstat/zfs" / pool / "state").write_text("ONLINE\n")

    def hangs(_host: LinuxHost, _pool: str) -> dict[int, str]:
        now[0] += 10
        return {}

    def trace(**given: Any) -> None:
        opened.append(given["max_vdevs"])

    monkeypatch.setattr("zfstrace.bpf.pools.DeviceTrace", trace)
    monkeypatch.setattr("zfstrace.zpool.list.time", SimpleNamespace(monotonic=lambda: now[0]))
    for names, seconds in ((lambda *_: {1: "sda", 2: "sdb"}, 0), (hangs, 10)):
        monkeypatch.setattr(LinuxHost, "vdev_names", names)
        begun = now[0]
        LinuxHost(root).open_device_trace(TraceOptions())
        assert now[0] - begun == seconds
    # 16 spare, and as many for a pool that says nothing
    assert opened == [26 * 2 + 16, 26 * 16 + 16]


def test_names_of_datasets_are_found_by_objset_and_device(root: Path) -> None:
    host = LinuxHost(root)
    assert host.pools() == ["tank"]
    assert host.dataset_names() == ["tank"]
    assert host.dataset_name("tank", 0x36, (0, 0)) == "tank"
    assert host.dataset_name("", 0, (0, 50)) == "tank"
    assert host.dataset_name("tank", 99, (0, 99)) is None


def test_a_name_outlives_the_mount(root: Path) -> None:
    host = LinuxHost(root)
    path = write_objset(root, 0x44, "tank/db")
    write_mounts(root, {51: "tank/db"})
    host.tick()
    path.unlink()
    write_mounts(root, {})
    host.tick()
    assert host.dataset_name("tank", 0x44, (0, 0)) == "tank/db"
    assert host.dataset_name("", 0, (0, 51)) == "tank/db"
    assert "tank/db" not in host.dataset_names()


def test_a_reused_number_has_the_present_name(root: Path) -> None:
    host = LinuxHost(root)
    host.tick()
    write_objset(root, 0x36, "tank/new")
    write_mounts(root, {50: "tank/new"})
    host.tick()
    assert host.dataset_name("tank", 0x36, (0, 0)) == "tank/new"
    assert host.dataset_name("", 0, (0, 50)) == "tank/new"


def test_an_exported_pool_is_gone(root: Path) -> None:
    host = LinuxHost(root)
    for path in (root / "proc/spl/kstat/zfs/tank").iterdir():
        path.unlink()
    (root / "proc/spl/kstat/zfs/tank").rmdir()
    assert host.pools() == []
    host.tick()
    assert host.txg_state("tank", 0, 1) is None


def test_room_is_asked_for_datasets_in_use_and_some_more(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much memory that may take is decided where the tables are made."""
    asked = []

    class Trace:
        def __init__(self, *args: object) -> None:
            asked.append(args[-1])

    monkeypatch.setattr("zfs_linux.traces.TracedFsyncs", Trace)
    host = LinuxHost(root)
    for number in range(2000):
        write_objset(root, 0x100 + number, f"tank/{number}")
    host.open_fsync_trace(FsyncOptions())
    host.open_fsync_trace(FsyncOptions(max_datasets=7))
    assert asked == [2001 + 32, 7]


def test_every_open_trace_ticks_with_its_host(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the throttle, too: `zfstune diagnose` has one, and another with its trace of slow
    fsyncs."""
    ticked: list[object] = []

    class Trace:
        def __init__(self, *_: object) -> None:
            pass

        def tick(self) -> None:
            ticked.append(self)

    monkeypatch.setattr("zfs_linux.traces.ThrottleWithParams", Trace)
    monkeypatch.setattr("zfs_linux.traces.TracedFsyncs", Trace)
    host = LinuxHost(root)
    view, fsyncs = host.open_throttle_trace(TraceOptions()), host.open_fsync_trace(FsyncOptions())
    host.tick()
    assert len(ticked) == 2
    assert {view, fsyncs} == set(ticked)
    # names no longer used are dropped
    ticked.clear()
    del view
    host.tick()
    assert ticked == [fsyncs]


def test_a_trace_that_fails_keeps_no_other_from_its_tick(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor names from being learnt; the first error is raised then."""
    ticked: list[int] = []

    class Trace:
        def __init__(self, *_: object) -> None:
            self.number = len(traces)

        def tick(self) -> None:
            ticked.append(self.number)
            raise TraceError(f"{len(ticked)} failed")

    traces: list[object] = []
    monkeypatch.setattr("zfs_linux.traces.ThrottleWithParams", Trace)
    host = LinuxHost(root)
    for _ in range(3):
        traces.append(host.open_throttle_trace(TraceOptions()))
    with pytest.raises(TraceError, match="1 failed"):
        host.tick()
    assert sorted(ticked) == [0, 1, 2]
    assert host.dataset_name("", 0, (0, 50)) == "tank"


def test_names_are_forgotten_when_there_are_too_many(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest first, and never one that is in use."""
    monkeypatch.setattr("zfstrace.base_host.MOST_NAMES", 64)
    host = LinuxHost(root)
    for number in range(200):
        path = write_objset(root, 0x100 + number, f"tank/{number}")
        write_mounts(root, {50: "tank", 1000 + number: f"tank/{number}"})
        host.tick()
        assert len(host._by_objset) <= 64 and len(host._by_dev) <= 64
        path.unlink()
    write_mounts(root, {50: "tank"})
    host.tick()
    # in use all the time, gone a moment ago, gone for long
    assert host.dataset_name("tank", 0x36, (0, 0)) == host.dataset_name("", 0, (0, 50)) == "tank"
    assert host.dataset_name("tank", 0x100 + 199, (0, 0)) == "tank/199"
    assert host.dataset_name("", 0, (0, 1199)) == "tank/199"
    assert host.dataset_name("tank", 0x100, (0, 1000)) is None


def test_names_in_use_may_be_more_than_that(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zfstrace.base_host.MOST_NAMES", 64)
    host = LinuxHost(root)
    for number in range(200):
        write_objset(root, 0x100 + number, f"tank/{number}")
    for _ in range(2):
        host.tick()
        assert len(host._by_objset) == 201


def test_a_name_that_cannot_be_read_yet_is_read_later(root: Path) -> None:
    host = LinuxHost(root)
    path = write_objset(root, 0x44, "tank/db")
    text = path.read_text()
    path.write_text("")
    host.tick()
    path.write_text(text)
    host.tick()
    path.unlink()
    assert host.dataset_name("tank", 0x44, (0, 0)) == "tank/db"


def test_a_tick_reads_no_kstat_twice(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of datasets it must stay cheap."""
    host = LinuxHost(root)
    for number in range(100):
        write_objset(root, 0x100 + number, f"tank/{number}")
    host.tick()
    read: list[Path] = []

    def note(path: Path) -> str:
        read.append(path)
        return ""

    monkeypatch.setattr("zfs_linux.kstat.read", note)
    for _ in range(10):
        host.tick()
    assert {path.name for path in read} == {"mountinfo"}


def test_every_trace_with_tables_has_its_limit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def refuse(_self: object, name: str, **options: object) -> None:
        asked[name] = options["table_mib"]
        raise TraceError("no")

    monkeypatch.setattr("zfstrace.bpf.session.Session.__init__", refuse)
    host, limits = LinuxHost(root), TraceOptions(table_mib=7)
    for open_one in (
        lambda: host.open_fsync_trace(FsyncOptions(table_mib=5)),
        lambda: host.open_throttle_trace(limits),
        lambda: host.open_device_trace(limits),
        lambda: host.open_read_trace(limits),
    ):
        with pytest.raises(TraceError):
            open_one()
    assert asked == {"fsync": 5, "throttle": 7, "device": 7, "read": 7}


def test_fsyncs_tick_with_the_throttle_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ticked: list[str] = []
    monkeypatch.setattr(FsyncTrace, "tidy", lambda self: ticked.append("fsyncs"))
    monkeypatch.setattr(ThrottleWithParams, "tick", lambda self: ticked.append("throttle"))
    trace = TracedFsyncs.__new__(TracedFsyncs)
    trace._throttle = None
    assert trace.held_up("tank", 0, 1) is None
    trace.tick()
    trace._throttle = ThrottleWithParams.__new__(ThrottleWithParams)
    trace.tick()
    assert ticked == ["fsyncs", "fsyncs", "throttle"]


def test_waits_for_a_pool_that_was_exported_get_no_more(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may be imported where its spa_t was, and its waits would count as theirs."""
    asked: list[list[bool]] = []

    def release(_: ThrottleWithParams, gone: Callable[[str, int], bool]) -> None:
        asked.append([gone("tank", 12), gone("tank", 13), gone("dozer", 12)])

    monkeypatch.setattr(ThrottleWithParams, "release", release)
    monkeypatch.setattr(ThrottleWithParams, "tell", lambda *_: None)
    trace = ThrottleWithParams.__new__(ThrottleWithParams)
    trace._kernel = LinuxHost(root)
    trace.tick()
    assert asked == [[False, True, True]]


def test_threads_and_missing_processes_are_errors(root: Path) -> None:
    host = LinuxHost(root)
    assert host.process_error(12) == "12 is a thread of process 11"
    assert host.process_error(13) == "there is no process 13"


def blocking(root: Path) -> list[str]:
    return [check.name for check in kinds(root, "blocking")]


def kinds(root: Path, status: str) -> list[Check]:
    return [check for check in LinuxHost(root).checks() if check.status == status]


def test_a_complete_host_passes_all_checks(root: Path) -> None:
    assert [c for c in LinuxHost(root).checks() if c.status != "ok" and c.kind != "library"] == []


def test_what_prevents_tracing_is_blocking(root: Path) -> None:
    (root / "sys/module/zfs/version").unlink()
    (root / "sys/module/zfs").rmdir()
    (root / "sys/kernel/btf/vmlinux").unlink()
    (root / "proc/self/status").write_text("CapEff:\t0000000000000000\n")
    assert {"ZFS", "kernel BTF", "privileges"} <= set(blocking(root))
    with pytest.raises(TraceError):
        LinuxHost(root).open_fsync_trace(FsyncOptions())


def test_an_empty_root_raises_nothing(tmp_path: Path) -> None:
    host = LinuxHost(tmp_path)
    assert host.checks()
    assert host.pools() == []
    assert host.dataset_names() == []


def caps(*bits: int) -> str:
    return f"{sum(1 << bit for bit in bits):x}"


ADMIN, DAC, BPF, PERFMON, SYSLOG = 21, 1, 39, 38, 34


@pytest.mark.parametrize(
    ("mask", "uid", "module_btf", "status"),
    [
        ("000001ffffffffff", 0, False, "ok"),
        (caps(ADMIN, DAC), 0, False, "ok"),
        (caps(ADMIN), 0, True, "ok"),
        (caps(ADMIN), 0, False, "missing"),
        # the least; fentry is not possible, so tracefs must be
        (caps(BPF, PERFMON, DAC), 998, True, "ok"),
        (caps(BPF, PERFMON), 0, True, "ok"),
        (caps(BPF, PERFMON), 998, True, "missing"),
        (caps(BPF, SYSLOG, DAC), 0, True, "blocking"),
        (caps(PERFMON, SYSLOG, DAC), 0, True, "blocking"),
        ("0", 0, True, "blocking"),
        ("rubbish", 0, True, "blocking"),
    ],
)
def test_the_needed_capabilities_are_checked(
    mask: str, uid: int, module_btf: bool, status: str
) -> None:
    text = f"Name:\tx\nUid:\t7\t{uid}\t7\t7\nCapEff:\t{mask}\n"
    check = checks.privileges(text, module_btf)
    assert check.status == status
    if status == "blocking":
        # both profiles
        assert checks.NEEDED in check.fix and checks.LEAST in check.fix
    elif status == "missing":
        assert "CAP_DAC_OVERRIDE" in check.fix


def test_capabilities_that_are_contained_are_not_listed() -> None:
    root = checks.privileges(ALL, False)
    assert root.value == "CAP_DAC_OVERRIDE, CAP_SYS_ADMIN"
    least = checks.privileges(f"CapEff:\t{caps(BPF, PERFMON, DAC)}\n", True)
    assert least.value == "CAP_BPF, CAP_DAC_OVERRIDE, CAP_PERFMON: kprobes, no fentry"


@pytest.mark.parametrize(("level", "status"), [("2\n", "ok"), ("-1\n", "ok"), ("4\n", "missing")])
def test_a_level_that_forbids_kprobes_is_named(level: str, status: str, root: Path) -> None:
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/perf_event_paranoid").write_text(level)
    (root / "proc/self/status").write_text(f"CapEff:\t{caps(BPF, PERFMON, DAC)}\n")
    (found,) = (check for check in LinuxHost(root).checks() if check.name == "privileges")
    assert found.status == status
    if status != "ok":
        assert "kernel.perf_event_paranoid is 4" in found.value
        assert "sysctl kernel.perf_event_paranoid=2" in found.fix
    # with CAP_SYS_ADMIN no level matters
    (root / "proc/self/status").write_text(ALL)
    (found,) = (check for check in LinuxHost(root).checks() if check.name == "privileges")
    assert found.status == "ok"
