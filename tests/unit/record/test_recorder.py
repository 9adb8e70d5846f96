"""The recorder with clocks that a test sets: intervals, triggers and dumps."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.driven import Driven, all_of, incident
from support.fake_host import FakeHost
from support.hostile import EVIL
from support.recording import NOON, Busy, light_row
from support.samples import txg, waits

from zfstrace import throttle
from zfstrace.clock import iso_utc
from zfstrace.errors import TraceError
from zfstrace.params import Change
from zfstrace.types import Json, Losses
from zfstune.errors import NotPossible, UsageError
from zfstune.incident.reader import Reader
from zfstune.incident.times import ns_of
from zfstune.record import header
from zfstune.record.recorder import Recorder, Settings
from zfstune.record.ring import Limits
from zfstune.term.units import MS, SECOND

HOUR = 3600 * SECOND
Rows = Mapping[str, Sequence[Json]]


def test_an_interval_each_ten_seconds(drive: Any) -> None:
    one = drive()
    one.off, one.lost = {"txg": "no probe"}, {"light": 3}
    one.seconds(35)
    one.lost = {"light": 5}
    one.seconds(5)
    assert one.recorder._dump("asked", one.clock.steady())
    found = one.read()
    assert [interval.end_ns for interval in found.intervals] == [
        NOON + i * 10 * SECOND for i in range(1, 5)
    ]
    assert {interval.duration_ns for interval in found.intervals} == {10 * SECOND}
    assert found.intervals[0].off == {"txg": "no probe"}
    lost = [interval["lost"] for interval in all_of(found, "interval")]
    assert lost == [{"light": 3}, {}, {}, {"light": 2}]
    assert found.header["lost"] == {"light": 5}
    assert found.header["reason"] == "asked"
    assert found.header["host"]["zfs"] == "2.3.9-1"
    assert sorted(found.header["pools"]) == ["idle", "tank"]
    assert found.span == (NOON, NOON + 40 * SECOND)
    assert len(all_of(found, "light_summary")) == 4


def test_rows_of_all_kinds_can_be_read(drive: Any) -> None:
    busy, one = Busy(2), drive()
    one.rows = lambda: busy.rows(one.clock.wall())
    one.seconds(120)
    one.recorder._dump("asked", one.clock.steady())
    found = one.read()
    assert {row["type"] for row in all_of(found)} >= {
        "interval",
        "light_summary",
        "txg",
        "throttle",
        "arc",
        "note",
        "pool_state",
    }


def test_more_rows_than_it_keeps_are_counted(drive: Any) -> None:
    one = drive()
    many = [light_row("tank", dataset=f"tank/{i}") for i in range(40)]
    slow = [{"type": "slow_fsync", "total_ns": i} for i in range(60)]
    one.rows = lambda: {"light": [*many, light_row()], "fsync": slow}
    one.seconds(10)
    assert one.recorder.status()["left_out"] == 17 + 10
    one.recorder._dump("asked", one.clock.steady())
    path = one.recorder.dumps.path / one.files[0]
    with Reader(str(path)) as reader:
        found = list(reader.records())
    assert sum(row["type"] == "light_summary" for row in found) == 24
    # the pool is the sum of all
    assert any(row["type"] == "light_summary" and row["dataset"] is None for row in found)
    notes = [row["text"] for row in found if row["type"] == "note"]
    assert (
        "more rows than the recorder keeps: left out 17 of light, 10 of single operations" in notes
    )


def test_writers_beyond_those_it_keeps_are_summed(drive: Any) -> None:
    one = drive()
    held = [waits(pid=pid, dirty_hard=[SECOND] * (1 + pid % 3)) for pid in range(100)]
    held += [waits("idle", pid=pid, txg_wait=[MS]) for pid in range(20)]
    time = iso_utc(one.clock.wall() + 10 * SECOND)
    rows = [row.to_json() for row in throttle.rows(held, time, 10 * SECOND, None, Losses())]
    one.rows = lambda: {"throttle": rows}
    one.seconds(10)
    assert one.recorder.status()["left_out"] == 0
    one.recorder._dump("asked", one.clock.steady())
    found = all_of(one.read(), "throttle")
    assert len(found) == 16 + 2
    for pool in ("tank", "idle"):
        kept, all_rows = ([r for r in of if r["pool"] == pool] for of in (found, rows))
        for name in ("count", "total_ns"):
            assert sum(r[name] for r in kept) == sum(r[name] for r in all_rows)
        for kind in ("dirty_hard", "txg_wait"):
            counts = [sum(r["kinds"][kind]["count"] for r in of) for of in (kept, all_rows)]
            assert counts[0] == counts[1]
        assert max(r["max"] for r in kept) == max(r["max"] for r in all_rows)
    assert [(r["pid"], r["comm"]) for r in found[16:]] == [(0, "<others>")] * 2


def test_of_many_txgs_the_longest_syncs_are_kept(drive: Any) -> None:
    one = drive()
    time = iso_utc(one.clock.wall() + SECOND)
    rows = [txg(n, time=time, sync_ns=n * MS).to_json() for n in range(1, 41)]
    one.rows = lambda: {"txg": rows}
    one.seconds(10)
    assert one.recorder.status()["left_out"] == 8
    one.recorder._dump("asked", one.clock.steady())
    assert {row["txg"] for row in all_of(one.read(), "txg")} == set(range(9, 41))


def test_a_view_that_fails_does_not_end_it(drive: Any) -> None:
    def failing() -> Rows:
        raise TraceError("cannot read", "look")

    one = drive()
    one.rows = failing
    one.seconds(20)
    one.recorder._dump("asked", one.clock.steady())
    assert one.read().intervals[0].off == {"all": "cannot read; look"}
    assert one.recorder.counts["errors"] == 2


def test_changes_of_parameters_and_pools_are_of_their_time(drive: Any) -> None:
    one = drive()
    one.seconds(3)
    one.host.values["zfs_dirty_data_max"] = 8 << 30
    one.host.changed = [Change("zfs_dirty_data_max", 4711, "bash"), Change("zfs_txg_timeout")]
    one.host.state = "DEGRADED"
    one.seconds(7)
    one.host.imported = ["tank"]
    one.seconds(10)
    one.recorder._dump("asked", one.clock.steady())
    found = one.read()
    (change,) = all_of(found, "parameter_change")
    assert (change["name"], change["old"], change["new"]) == (
        "zfs_dirty_data_max",
        4 << 30,
        8 << 30,
    )
    assert change["by"] == "other"
    states = [(one["pool"], one["state"]) for one in all_of(found, "pool_state")]
    assert states[:2] == [("idle", "ONLINE"), ("tank", "ONLINE")]
    assert sorted(states[2:4]) == [("idle", "DEGRADED"), ("tank", "DEGRADED")]
    assert states[4:] == [("idle", "not imported")]


def test_a_trigger_writes_a_file(drive: Any, capsys: pytest.CaptureFixture[str]) -> None:
    one = drive("commit.p99>200ms for 30s")
    one.p99("tank", 300 * MS)
    one.seconds(29)
    assert not one.files
    one.seconds(3)
    (name,) = one.files
    found = one.read()
    assert found.header["reason"] == "trigger commit.p99>200ms for 30s: 300 ms on tank"
    assert found.header["reason"] in [note["text"] for note in all_of(found, "note")]
    err = capsys.readouterr().err
    assert f"{name} is written: trigger commit.p99" in err
    one.seconds(300)
    assert one.files == [name]


def test_a_second_trigger_does_not_say_that_a_file_was_written(drive: Any, capsys: Any) -> None:
    one = drive("commit.p99>200ms", observed=True)
    for pool in ("tank", "backup"):
        one.p99(pool, 300 * MS)
        one.seconds(10)
    assert not one.files
    assert "no file, since one waits to be written" in capsys.readouterr().err


def test_what_a_view_without_rows_has_lost_fires_a_trigger(drive: Any) -> None:
    one = drive("lost>0")
    one.rows = lambda: {"light": [light_row()], "txg": []}
    one.seconds(10)
    assert not one.files
    one.lost = {"txg": 2}
    one.seconds(10)
    assert one.read().header["reason"] == "trigger lost>0: 2"


def test_no_row_is_later_than_its_interval(drive: Any) -> None:
    """The span of a file has all of its rows, also where reading them takes time."""
    one = drive()

    def slowly() -> Rows:
        one.clock.now += SECOND // 2
        return {"light": [light_row(time=iso_utc(one.clock.wall()))]}

    one.rows = slowly
    one.seconds(20)
    one.recorder._dump("asked", one.clock.steady())
    found = one.read()
    (last,) = found.intervals[-1].records("light_summary")
    assert NOON < (ns_of(last["time"]) or 0) <= found.intervals[-1].end_ns <= found.span[1]


def test_at_most_one_file_an_hour_by_itself(drive: Any, capsys: Any) -> None:
    one = drive("commit.p99>200ms")
    for value in (300, 1, 300, 1):
        one.p99("tank", value * MS)
        one.seconds(10)
    assert len(one.files) == 1
    assert one.recorder.counts["suppressed"] == 1
    assert "no file, since one was written within the hour" in capsys.readouterr().err
    one.clock.now += HOUR
    one.p99("tank", 300 * MS)
    one.seconds(10)
    assert len(one.files) == 2


def test_the_hour_is_remembered_by_the_next_process(drive: Any) -> None:
    one = drive("commit.p99>200ms")
    one.p99("tank", 300 * MS)
    one.seconds(11)
    two = drive("commit.p99>200ms", clock=one.clock)
    two.p99("tank", 300 * MS)
    two.seconds(30)
    assert len(two.files) == 1
    assert two.recorder.counts["suppressed"] == 1
    # a clock that was set back must not mean never again
    two.clock.set(-24 * HOUR)
    three = drive("commit.p99>200ms", clock=two.clock)
    three.p99("tank", 300 * MS)
    three.seconds(30)
    assert len(three.files) == 2


def test_a_trigger_waits_for_its_diagnosis(drive: Any) -> None:
    one = drive("commit.p99>200ms", observed=True)
    observer = one.recorder._observer
    one.p99("tank", 300 * MS)
    one.seconds(25)
    assert not one.files
    assert observer.asked == ["trigger commit.p99>200ms: 300 ms on tank"]
    observer.end(diagnosis(one.clock.wall()))
    one.seconds(1)
    found = one.read()
    (made,) = all_of(found, "diagnosis")
    assert made["verdict"] == "causes"
    assert found.header["pools"]["tank"]["layout"] == ["  tank  ONLINE", "    sda  ONLINE"]


def diagnosis(wall: int) -> Json:
    found = {"schema": 1, "type": "diagnosis", "time": iso_utc(wall), "duration_ns": 10 * SECOND}
    found |= {"pool": "tank", "verdict": "causes", "summary": "x", "causes": []}
    return {**found, "measurements": {"pool": "tank", "p99_ns": 5}}


def test_a_diagnosis_that_runs_already_is_not_that_of_the_trigger(drive: Any) -> None:
    one = drive("commit.p99>200ms", observed=True)
    observer = one.recorder._observer
    one.seconds(15)
    assert observer.asked == ["the clock"]
    one.p99("tank", 300 * MS)
    one.seconds(10)
    observer.end(diagnosis(one.clock.wall()))
    one.seconds(1)
    assert not one.files
    assert observer.asked[1:] == ["trigger commit.p99>200ms: 300 ms on tank"]
    observer.end(diagnosis(one.clock.wall()))
    one.seconds(1)
    assert len(all_of(one.read(), "diagnosis")) == 2


def test_where_the_budget_allows_no_other_the_file_does_not_wait(drive: Any) -> None:
    one = drive("commit.p99>200ms", observed=True)
    observer = one.recorder._observer
    one.seconds(15)
    one.p99("tank", 300 * MS)
    one.seconds(10)
    observer.end(diagnosis(one.clock.wall()))
    observer.refuse = True
    one.seconds(1)
    assert len(one.files) == 1


@pytest.mark.parametrize("end", ["never", "error"])
def test_a_diagnosis_that_fails_does_not_keep_the_file_back(drive: Any, end: str) -> None:
    one = drive("commit.p99>200ms", observed=True)
    one.p99("tank", 300 * MS)
    one.seconds(20)
    if end == "error":
        one.recorder._observer.end(error="no privilege")
    one.seconds(1 if end == "error" else 60)
    texts = [note["text"] for note in all_of(one.read(), "note")]
    assert ("a diagnosis was not possible: no privilege" in texts) is (end == "error")


def test_diagnoses_come_by_the_clock_and_when_it_gets_slow(drive: Any) -> None:
    one = drive(observed=True)
    observer = one.recorder._observer
    one.seconds(9)
    assert observer.asked == []
    one.seconds(1)
    assert observer.asked == ["the clock"]
    observer.end()
    one.p99("tank", 20 * MS)
    one.seconds(400)
    one.p99("tank", 70 * MS)
    one.seconds(10)
    assert observer.asked == ["the clock"]
    one.p99("tank", 90 * MS)
    one.seconds(10)
    assert observer.asked[1:] == ["p99 over 4 times the median of the last hour"]
    observer.end()
    one.p99("tank", 20 * MS)
    one.seconds(901)
    assert observer.asked[2:] == ["the clock"]


def test_without_a_pool_nothing_is_diagnosed(drive: Any) -> None:
    one = drive(observed=True)
    one.host.imported = []
    one.seconds(1000)
    assert one.recorder._observer.asked == []


def test_sigusr1_writes_a_file_without_a_pool(drive: Any) -> None:
    one = drive()
    one.host.imported, one.host.unloaded, one.host.loaded_as = [], True, ""
    one.rows = lambda: {}
    one.seconds(3)
    os.kill(os.getpid(), signal.SIGUSR1)
    one.seconds(1)
    found = one.read()
    assert found.header["reason"] == "SIGUSR1"
    assert found.header["pools"] == found.header["parameters"] == {}
    # it is no automatic one
    assert one.recorder.dumps.automatic_ns() is None


def test_the_handler_of_the_signal_is_as_before_at_the_end(drive: Any) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    one = drive()
    assert signal.getsignal(signal.SIGUSR1) != before
    one.recorder.close()
    one.recorder.close()
    assert signal.getsignal(signal.SIGUSR1) == before


def test_a_full_file_system_is_said_and_tried_again(
    drive: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    one = drive("commit.p99>200ms")
    one.p99("tank", 300 * MS)
    with monkeypatch.context() as patch:
        patch.setattr("zfstrace.files.replace", full)
        one.seconds(130)
        os.kill(os.getpid(), signal.SIGUSR1)
        one.seconds(1)
    err = capsys.readouterr().err
    assert err.count(": No space left on device") == 4
    assert one.recorder.counts["dumps_failed"] == 4
    assert not one.files
    one.seconds(60)
    assert len(one.files) == 1
    assert one.read().header["reason"].startswith("trigger")


def full(*_args: object, **_named: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_system_that_stays_full_ends_the_tries_and_not_the_process(
    drive: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    one = drive("commit.p99>200ms")
    one.p99("tank", 300 * MS)
    monkeypatch.setattr("zfstrace.files.replace", full)
    one.seconds(700)
    assert one.recorder.counts["dumps_failed"] == 10
    one.recorder.close()
    assert "cannot keep the record for the next process: No space left" in capsys.readouterr().err


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_of_the_clock_keeps_the_order(drive: Any, hours: int) -> None:
    one = drive()
    one.seconds(120)
    one.clock.set(hours * HOUR)
    one.seconds(60)
    one.recorder._dump("asked", one.clock.steady())
    with Reader(str(one.recorder.dumps.path / one.files[0])) as reader:
        found = [row["time"] for row in reader.records() if row["type"] == "interval"]
    start = NOON + hours * HOUR
    assert found == [iso_utc(start + i * 10 * SECOND) for i in range(1, 19)]


def test_imported_pools_come_before_those_that_are_gone() -> None:
    host = FakeHost()
    gone = {f"ci-{i:04}": ["x"] for i in range(1000)}
    found = header._pools(host, gone)
    assert {"tank", "idle"} <= set(found) and len(found) == header._MOST


def test_what_waits_for_an_interval_is_of_the_clock_that_is_set(drive: Any) -> None:
    one = drive()
    one.seconds(24)
    one.host.state = "DEGRADED"
    one.seconds(2)
    one.clock.set(HOUR)
    one.seconds(10)
    one.recorder._dump("asked", one.clock.steady())
    with Reader(str(one.recorder.dumps.path / one.files[0])) as reader:
        found = [row for row in reader.records() if row["type"] == "pool_state"]
    assert {row["time"] for row in found if row["state"] == "DEGRADED"} == {
        iso_utc(NOON + HOUR + 25 * SECOND)
    }


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_what_a_view_saw_before_the_clock_was_set_is_corrected(drive: Any, by: int) -> None:
    """Txgs wait in their view until the interval ends. The last one began before the clock was set,
    and ended after it."""
    one = drive()
    one.seconds(24)

    def see(ago: int) -> Json:
        return txg(1).to_json() | {"time": iso_utc(one.clock.wall() - ago * SECOND)}

    seen = [see(1), see(3)]
    one.clock.set(by)
    one.seconds(2)
    seen.append(see(9))
    one.rows = lambda: {"txg": seen}
    one.seconds(4)
    one.recorder._dump("asked", one.clock.steady())
    with Reader(str(one.recorder.dumps.path / one.files[0])) as reader:
        found = [row["time"] for row in reader.records() if row["type"] == "txg"]
    assert sorted(found) == [iso_utc(NOON + by + s * SECOND) for s in (17, 21, 23)]


def test_two_recorders_cannot_have_one_directory(drive: Any, tmp_path: Path) -> None:
    one = drive()
    with pytest.raises(NotPossible, match="another recorder uses it"):
        Driven(tmp_path / "run").start()
    one.seconds(10)
    assert (tmp_path / "run" / "record.sock").exists()


def test_the_socket_of_a_directory_with_a_long_name_is_an_error(tmp_path: Path) -> None:
    one = Driven(tmp_path / ("x" * 110))
    with pytest.raises(NotPossible, match="cannot listen on"):
        one.start()
    # it has given the directory up
    assert not one.recorder.dumps.opened


def answer(one: Driven, request: Json) -> Json:
    return one.recorder._answer(request).body


def test_a_dump_of_a_part_of_the_time(drive: Any) -> None:
    one = drive()
    one.seconds(1200)
    body = answer(one, {"do": "dump", "last_ns": 120 * SECOND})
    found = incident(Path(body["path"]))
    assert 12 <= len(found.intervals) <= 19
    assert found.span[1] == one.clock.wall()
    body = answer(one, {"do": "dump", "at": "12:10", "last_ns": 120 * SECOND})
    found = incident(Path(body["path"]))
    moment = NOON + 600 * SECOND
    assert found.span[0] <= moment - 60 * SECOND < moment + 60 * SECOND <= found.span[1]
    assert found.span[1] - found.span[0] < 300 * SECOND
    with pytest.raises(UsageError, match="--at: 03:05 is not in the record") as caught:
        answer(one, {"do": "dump", "at": "03:05"})
    assert "12:00:00 UTC to 2026-11-27 12:20:00 UTC" in caught.value.hint


def test_dumps_every_two_seconds_keep_no_trigger_from_firing(drive: Any) -> None:
    one = drive("commit.p99>200ms for 20s")
    one.p99("tank", 300 * MS)
    for _ in range(9):
        one.seconds(2)
        answer(one, {"do": "dump"})
    assert one.recorder.counts["fired"] == 0
    one.seconds(2)
    answer(one, {"do": "dump"})
    assert one.recorder.counts["fired"] == 1


def test_a_second_that_a_dump_cuts_off_fires_nothing(drive: Any) -> None:
    one = drive("commit.p99>200ms")
    one.seconds(10)
    one.p99("tank", 300 * MS)
    one.seconds(1)
    answer(one, {"do": "dump"})
    one.p99("tank", MS)
    one.seconds(20)
    assert one.recorder.counts["fired"] == 0


def test_nothing_fires_at_the_end(drive: Any) -> None:
    one = drive("commit.p99>200ms")
    one.p99("tank", 300 * MS)
    one.seconds(9)
    one.recorder.close()
    assert one.recorder.counts["fired"] == 0


@pytest.mark.parametrize(
    "request_",
    [{}, {"do": None}, {"do": "stop"}, {"do": ["dump"]}, {"do": "dump", "at": EVIL}],
)
def test_a_request_that_is_none_is_refused(drive: Any, request_: Json) -> None:
    with pytest.raises(UsageError):
        answer(drive(), request_)


@pytest.mark.parametrize("last", [None, -1, 0, "x", 1.5, True, 10**40])
def test_a_span_that_is_none_is_all(drive: Any, last: object) -> None:
    one = drive()
    one.seconds(60)
    assert answer(one, {"do": "dump", "last_ns": last})["records"] > 0


def test_the_socket_answers_while_it_records(drive: Any) -> None:
    one = drive()
    one.seconds(60)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(one.recorder.dumps.socket))
        client.sendall(b'{"do":"dump","file":true}\n')
        one.seconds(1)
        line, fds, _, _ = socket.recv_fds(client, 4096, 1)
    assert b'"records"' in line
    path = one.recorder.dumps.path / "copy"
    with os.fdopen(fds[0], "rb") as file:
        path.write_bytes(file.read())
    assert len(incident(path).intervals) == 7


def test_hostile_names_can_be_read_and_shown(drive: Any) -> None:
    one = drive()
    one.rows = lambda: {"light": [light_row(EVIL, dataset=EVIL)]}
    one.off = {EVIL: EVIL}
    one.seconds(10)
    one.recorder._dump(EVIL, one.clock.steady())
    found = one.read()
    shown = repr(all_of(found)) + repr(found.header)
    assert "\x1b" not in shown and "\udcff" not in shown


def test_memory_is_bounded_whatever_comes(tmp_path: Path) -> None:
    one = Driven(tmp_path / "run")
    limits = Limits(memory=64 << 10)
    one.recorder = Recorder(
        one.host,
        lambda: {"light": [light_row(dataset=os.urandom(200).hex()) for _ in range(100)]},
        Settings(str(tmp_path / "run"), limits=limits),
        clock=one.clock,
    )
    with contextlib.closing(one.recorder):
        one.start()
        for _ in range(60):
            one.seconds(10)
            assert one.recorder.ring.memory <= limits.memory
