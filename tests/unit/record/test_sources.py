"""The views of the recorder, and what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.paths import ROOT
from support.samples import arc, counts, from_values, slow_event, txg, waits

from zfstrace.light import CommitCounts, Sample, SlowCommit, Window
from zfstrace.stages import NAMES
from zfstrace.types import Check, FsyncOptions, Losses, TraceOptions
from zfstune.errors import NotPossible
from zfstune.incident.reader import taken
from zfstune.record.args import DEFAULT_VIEWS, VIEWS
from zfstune.record.interval import picked
from zfstune.record.sources import require, view_named
from zfstune.record.traced import Attach
from zfstune.term.units import MS, SECOND

NO_ROOT = Check("privileges", "privilege", "none", "blocking", "no BPF", "run as root")
NO_ZFS = Check("zfs", "zfs", "not loaded", "blocking", "nothing to trace", "modprobe zfs")


def light_session() -> FakeSession:
    hist = from_values([5 * MS] * 9)
    db = CommitCounts("tank", 68, (0, 0), False, hist, hist, hist)
    sample = Sample("tank", 68, (0, 0), False, 30, (1,) * len(NAMES))
    slow = Window(
        "2026-11-26T11:59:58.000Z", 2 * SECOND, (sample,), SlowCommit(SECOND, 12, "postgres")
    )
    return FakeSession([([db], [], [slow])], losses=Losses(start=2))


def busy() -> FakeHost:
    host = FakeHost()
    many = counts(objset=68, stages={"flush": [40 * MS] * 5})
    host.sessions = {
        "light": light_session(),
        "fsync": FakeSession([[many]], [slow_event(), slow_event(comm="mysqld", flush=200)]),
        "txg": FakeSession(events=[txg(5)]),
        "throttle": FakeSession([[waits(dirty_hard=[SECOND])]]),
        "device": FakeSession([[]]),
        "arc": FakeSession([arc(1), arc(2)]),
    }
    return host


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("light", {"light_summary", "light_window"}),
        ("fsync", {"fsync_summary", "slow_fsync"}),
        ("txg", {"txg"}),
        ("throttle", {"throttle"}),
        ("device", set()),
        ("arc", {"arc"}),
    ],
)
def test_a_view_gives_rows_that_a_reader_takes(name: str, types: set[str]) -> None:
    view = view_named(name, Attach(busy(), FakeStop()))
    view.open()
    view.tick()
    rows = [row.to_json() for row in view.rows()]
    assert {row["type"] for row in rows} == types
    for record in picked({name: rows}).records:
        assert taken(dict(record))
    assert view.losses().lost == (2 if name == "light" else 0)
    if name == "fsync":
        comms = {row["comm"] for row in rows if row["type"] == "slow_fsync"}
        assert comms == {"postgres", "mysqld"}


def test_tables_in_the_kernel_are_limited() -> None:
    host = busy()
    for name in VIEWS:
        view_named(name, Attach(host, FakeStop(), table_mib=7, max_datasets=5)).open()
        if isinstance(host.options, TraceOptions):
            assert host.options.table_mib == 7
        elif isinstance(host.options, FsyncOptions):
            assert (host.options.table_mib, host.options.max_datasets) == (32, 5)


def test_the_recorder_needs_no_client_of_prometheus() -> None:
    """It runs by the standard library alone."""
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import zfstune.record.sources, zfstune.record.following, zfstune.record.command\n"
        "print(sorted(name for name in sys.modules if 'exporter' in name))"
    )
    paths = ":".join(str(ROOT / one) for one in ("tracers", "tuner"))
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_privilege_it_is_refused_unless_kstats_suffice() -> None:
    host = FakeHost(checks=[NO_ZFS, NO_ROOT])
    host.unloaded = True
    with pytest.raises(NotPossible, match="privileges none"):
        require(host, DEFAULT_VIEWS)
    require(host, ["txg", "arc"])
    # ZFS may come
    require(FakeHost(checks=[NO_ZFS]), DEFAULT_VIEWS)
