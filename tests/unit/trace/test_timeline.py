"""`trace slow --timeline` without a kernel. tests/flame has a real reader of the format."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost, FakeSession, FakeStop, args_of
from support.hostile import EVIL
from support.samples import counts, slow_event, txg

from zfstrace.errors import TraceError
from zfstrace.stages import NAMES
from zfstrace.types import FsyncOptions, Losses, SlowEvent, SlowFsync
from zfstune import cli
from zfstune.errors import NotPossible, UsageError
from zfstune.term.units import MS, SECOND
from zfstune.trace import slow
from zfstune.trace.live import Run
from zfstune.trace.timeline import Timeline

Slices = dict[tuple[int, int], list[dict[str, Any]]]


def named(event: SlowEvent, dataset: str | None = "tank/db") -> SlowFsync:
    return slow.slow_fsync(event, "tank", dataset, FakeHost(), FakeSession())


def written(timeline: Timeline, path: Path) -> dict[str, Any]:
    timeline.write(str(path), {"over_ns": 1})
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def slices(found: dict[str, Any], *categories: str) -> Slices:
    """By process and thread."""
    rows: Slices = defaultdict(list)
    for event in found["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in (categories or ("operation", "stage", "txg")):
            rows[event["pid"], event["tid"]].append(event)
    return rows


def names(found: dict[str, Any], what: str) -> list[str]:
    return [e["args"]["name"] for e in found["traceEvents"] if e["name"] == what]


def run(host: FakeHost, path: Path, **given: Any) -> str:
    args = args_of(over=10 * MS, timeline=str(path), duration=2 * SECOND, **given)
    stop, out = FakeStop(), io.StringIO()
    host.session.on_poll = stop.passed
    options = FsyncOptions(pool=args.pool, dataset=args.dataset, slow_ns=args.over)
    slow.trace(Run(args, options, host, out, stop))
    return out.getvalue()


def host_with(events: list[SlowEvent], *txgs: Any) -> FakeHost:
    host = FakeHost(FakeSession([[counts(objset=68, total=[1])]], events, Losses(event=2)))
    host.sessions["txg"] = FakeSession(events=txgs, losses=Losses(event=1))
    return host


def test_an_operation_is_a_slice_with_its_stages_inside(tmp_path: Path) -> None:
    made = Timeline()
    event = slow_event(issue=4, flush=93, log_write=3)
    made.add(event, named(event))
    found = written(made, tmp_path / "t.json")
    operation, *stages = slices(found)[4711, 4712]
    assert (operation["name"], operation["dur"]) == ("fdatasync tank/db", 100_000)
    assert operation["args"]["ns"] == {"issue": 4 * MS, "log_write": 3 * MS, "flush": 93 * MS}
    assert (operation["args"]["txg"], operation["args"]["txg state"]) == (77, "syncing")
    assert [(s["name"], s["ts"] - operation["ts"], s["dur"]) for s in stages] == [
        ("issue", 0, 4000),
        ("log_write", 4000, 3000),
        ("flush", 7000, 93_000),
    ]
    assert names(found, "process_name") == ["postgres"]
    assert found["otherData"]["left_out"] == 0
    assert found["otherData"]["begin"][:4] == time.strftime("%Y", time.gmtime())


@given(st.lists(st.lists(st.integers(0, 10**7), min_size=11, max_size=11), max_size=5))
def test_slices_of_a_thread_are_nested_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, spans: list[list[int]]
) -> None:
    """Readers add times as floating point: those here are whole us, and end where they should."""
    made, start = Timeline(), 10**9
    for stage_ns in spans:
        event = replace(
            slow_event(), start_ns=start, total_ns=sum(stage_ns), stage_ns=tuple(stage_ns)
        )
        start += event.total_ns
        made.add(event, named(event))
    found = written(made, tmp_path_factory.mktemp("t") / "t.json")
    end = within = 0
    for one in slices(found)[4711, 4712]:
        assert type(one["ts"]) is type(one["dur"]) is int
        assert one["ts"] >= end
        if one["cat"] == "operation":
            within = one["ts"] + one["dur"]
        else:
            end = one["ts"] + one["dur"]
            assert end <= within
            assert one["name"] in NAMES


def test_txgs_of_a_row_do_not_overlap(tmp_path: Path) -> None:
    """Each begins to be open when the last one quiesces; their ends are rounded to ms."""
    made = Timeline()
    spans: dict[str, Any] = {
        "open_ns": 5 * MS,
        "quiesce_ns": 999_999,
        "wait_ns": 0,
        "sync_ns": 4 * MS,
    }
    ends = ("49:12.345", "49:12.350", "49:12.354")
    txgs = [txg(n, time=f"2026-11-21T09:{end}Z", **spans) for n, end in enumerate(ends)]
    made.add_txgs([*txgs, txg(9, "idle", open_ns=None, sync_ns=None)])
    found = written(made, tmp_path / "t.json")
    rows = slices(found, "txg")
    assert len(rows) == 4  # nothing is known of txg 9
    for row in rows.values():
        for one, after in itertools.pairwise(row):
            assert one["ts"] + one["dur"] <= after["ts"]
    assert [one["name"] for one in rows[1 << 30, 5]] == ["txg 0", "txg 1", "txg 2"]
    assert names(found, "process_name") == ["pools"]
    assert names(found, "thread_name")[4] == "tank txg open"


def test_the_earliest_are_left_out_and_counted(tmp_path: Path) -> None:
    made = Timeline(most=3)
    for number in range(10):
        event = replace(slow_event(flush=1), start_ns=number * SECOND, object=number)
        made.add(event, named(event))
    made.add_txgs(txg(number) for number in range(5))
    found = written(made, tmp_path / "t.json")
    operations = slices(found, "operation")[4711, 4712]
    assert [one["args"]["object"] for one in operations] == [7, 8, 9]
    assert found["otherData"]["left_out"] == 7 + 2


def test_names_are_printable(tmp_path: Path) -> None:
    made = Timeline()
    event = slow_event(comm=EVIL, flush=20)
    made.add(event, named(event, EVIL))
    made.add_txgs([txg(1, EVIL)])
    found = written(made, tmp_path / "t.json")
    for one in found["traceEvents"]:
        assert one["name"].isprintable()
        assert one["args"].get("name", "").isprintable() if "args" in one else True


def test_the_trace_writes_what_it_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    host = host_with([slow_event(flush=93), slow_event(wakeup=20)], txg(5), txg(6, "idle"))
    text = run(host, path, pool="tank")
    assert "2 fsyncs of 10.0 ms or more" in text
    found = json.loads(path.read_text())
    assert len(slices(found, "operation")[4711, 4712]) == 2
    assert {one["name"] for row in slices(found, "txg").values() for one in row} == {"txg 5"}
    assert found["otherData"]["lost"] == 3
    assert found["otherData"]["duration_ns"] >= 2 * SECOND
    session = host.sessions["txg"]
    assert isinstance(session, FakeSession)
    assert session.closed
    said = capsys.readouterr().err
    assert f"2 operations, 1 txgs, lost 3, written to {path}" in said


class Left(io.StringIO):
    """A pipe whose reader has left when the first line comes."""

    gone = False

    def flush(self) -> None:
        if not self.gone:
            self.gone = True
            raise BrokenPipeError


def test_it_is_written_though_the_reader_of_the_lines_has_left(tmp_path: Path) -> None:
    path, host, stop = tmp_path / "t.json", host_with([slow_event(flush=93)]), FakeStop()
    host.session.on_poll = stop.passed
    args = args_of(over=10 * MS, timeline=str(path), duration=2 * SECOND)
    slow.trace(Run(args, FsyncOptions(slow_ns=args.over), host, Left(), stop))
    assert stop.reader_gone
    assert slices(json.loads(path.read_text()), "operation")


def test_without_txgs_it_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = host_with([slow_event(flush=93)])
    host.sessions["txg"] = TraceError("no such probe")
    run(host, tmp_path / "t.json")
    assert "the timeline has no rows for txgs: no such probe" in capsys.readouterr().err
    assert slices(json.loads((tmp_path / "t.json").read_text()), "operation")


def test_nothing_seen_is_a_file_without_slices(tmp_path: Path) -> None:
    run(host_with([]), tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text())
    assert (found["traceEvents"], found["otherData"]["begin"]) == ([], None)


def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text("before")

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zfstrace.files.write", full)
    with pytest.raises(NotPossible, match=r"cannot write .*: No space left on device"):
        run(host_with([slow_event(flush=93)]), path)
    assert path.read_text() == "before"


@pytest.mark.parametrize(
    ("make", "message", "hint"),
    [
        (lambda at: at / "tank", "not the name of a timeline", "end it in .json"),
        (lambda at: at / ".json", "not the name of a timeline", "end it in .json"),
        (lambda at: at / "none/t.json", "no directory", "create it"),
        (lambda at: (at / "d.json").mkdir() or at / "d.json", "not a regular file", "choose"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_is_attached(
    tmp_path: Path, make: Callable[[Path], Path], message: str, hint: str
) -> None:
    words = ["trace", "slow", "--over", "1ms", "--timeline", str(make(tmp_path))]
    args = cli.build_parser("trace").parse_args(words)
    with pytest.raises(UsageError, match=message) as caught:
        slow.run(args)
    assert caught.value.hint.startswith(hint)
