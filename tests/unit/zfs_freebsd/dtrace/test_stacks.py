"""`zfstune flame` on FreeBSD: what fsyncstack.d can record, and what of it is lost."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from zfs_freebsd.dtrace.stacks import ScriptedStacks, build, check
from zfstrace.errors import NotSupported, TraceError
from zfstrace.recording import NO_STACK, StackLosses, StackOptions
from zfstrace.stacks import label_frames

OUTPUT = """\
Off CPU, ns:
pool tank
stage flush
comm postgres
kernel`sched_switch+0x5c1
kernel`mi_switch+0xc2
kernel`_cv_wait+0x113
zfs.ko`zil_commit_impl+0x9f3
zfs.ko`zfs_fsync+0x9c
500
pool [unknown]
stage writeback
comm postgres
20
Until woken, ns:
pool tank
stage flush
comm postgres
waker zio_write_intr_0
kernel`cv_broadcastpri+0x4c
zfs.ko`zil_lwb_flush_vdevs_done+0x1f2
450
On CPU, samples at 97 Hz:
pool tank
stage issue
comm postgres
zfs.ko`zil_commit_impl+0x9f3
zfs.ko`zfs_fsync+0x9c
3
Not in the stacks: 0 ns before the pool was known, 1 threads still asleep
2 fsyncs of 900 ns, off CPU 520 ns, lost: 4, errors: 5
"""
FRAMES = "zfs_fsync [zfs];zil_commit_impl [zfs];_cv_wait;mi_switch;sched_switch"
OFF = {
    f"tank;flush;postgres;{FRAMES}": 500,
    f"[unknown];writeback;postgres;{NO_STACK}": 20,
}
WAKER = "--;cv_broadcastpri;zil_lwb_flush_vdevs_done [zfs];zio_write_intr_0"


class FakeDtrace:
    """Stands in for zfs_freebsd.dtrace.Dtrace."""

    started: list[tuple[str, ...]] = []  # noqa: RUF012  (of the test alone)

    def __init__(self, script: Path, *args: str) -> None:
        self.started.append((script.name, *args))
        self.drops = 7
        self.open = True

    def finish(self) -> list[str]:
        return OUTPUT.splitlines()

    def close(self) -> None:
        self.open = False


@pytest.fixture
def dtrace(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    monkeypatch.setattr("zfs_freebsd.dtrace.stacks.Dtrace", FakeDtrace)
    monkeypatch.setattr("zfs_freebsd.dtrace.scripts.script", Path)
    monkeypatch.setattr("zfs_freebsd.dtrace.probes.survey", lambda _: ())
    monkeypatch.setattr(FakeDtrace, "started", [])
    return FakeDtrace.started


def test_a_recording_has_stacks_and_losses(dtrace: list[tuple[str, ...]]) -> None:
    session = ScriptedStacks(StackOptions("off-cpu", "fsync"))
    found = session.finish()
    session.close()
    assert dtrace == [("fsyncstack.d", "0", "0", "", str(os.getpid()))]
    assert (found.stacks.kind, found.stacks.unit, found.stacks.counts) == ("off-cpu", "ns", OFF)
    assert found.losses == StackLosses(no_stack=1, sums_full=7, skipped=5, fsyncs=4, asleep=1)
    assert label_frames(found.stacks.counts) == 3
    on = ScriptedStacks(StackOptions("on-cpu", "fsync")).finish()
    assert (on.stacks.unit, on.stacks.total, on.losses.asleep) == ("samples", 3, 0)
    woken = ScriptedStacks(StackOptions("wakeup", "fsync")).finish()
    assert woken.stacks.counts == {f"tank;flush;postgres;{WAKER}": 450}
    assert (woken.losses.no_stack, woken.losses.lost_ns) == (0, 0)


def test_pid_and_pool_reach_the_script(dtrace: list[tuple[str, ...]]) -> None:
    ScriptedStacks(StackOptions("off-cpu", "fsync", pid=181, pool="tank"))
    assert dtrace == [("fsyncstack.d", "0", "181", "tank", str(os.getpid()))]


def test_time_without_stacks_is_reported() -> None:
    text = OUTPUT.replace("off CPU 520", "off CPU 530").replace("stacks: 0 ns", "stacks: 4 ns")
    assert build(text.splitlines(), "off-cpu", 0).losses.lost_ns == 14


def test_incomplete_output_is_an_error() -> None:
    with pytest.raises(TraceError, match="exited before it had printed everything"):
        build(OUTPUT.splitlines()[:-1], "off-cpu", 0)
    with pytest.raises(TraceError, match=r"fsyncstack.d, line 5: the text ends"):
        build(OUTPUT.splitlines()[:6], "off-cpu", 0)


@pytest.mark.parametrize(
    ("kind", "target", "hint"),
    [
        ("off-cpu", "txg-sync", "threads that sync a txg on FreeBSD.*; leave --txg-sync out"),
        ("on-cpu", "zfs", "all threads in ZFS on FreeBSD.*; leave --all-zfs out"),
        ("off-cpu", "pid", r"a whole process on FreeBSD.*; run `fsyncstack.d 0 PID > FILE`"),
    ],
)
def test_unsupported_recordings_are_refused(
    kind: str, target: str, hint: str, dtrace: list[tuple[str, ...]]
) -> None:
    with pytest.raises(NotSupported) as caught:
        ScriptedStacks(StackOptions(kind, target, 181 if target == "pid" else None))
    assert re.search(hint, caught.value.in_one_line())
    assert "\n" not in str(caught.value)
    assert dtrace == []


def test_stacks_of_fsyncs_are_supported() -> None:
    check(StackOptions("off-cpu", "fsync"))
    check(StackOptions("on-cpu", "fsync", 181, "tank"))
    check(StackOptions("wakeup", "fsync"))
