"""`trace slow` without a kernel."""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop
from support.samples import counts, slow_event

from zfstrace.types import Losses, SlowEvent
from zfstune.term.units import MS, SECOND
from zfstune.trace.fsync import options_of
from zfstune.trace.largest import largest_stages
from zfstune.trace.live import Run
from zfstune.trace.slow import slow_fsync, trace


def run(events: list[SlowEvent], out: io.StringIO | None = None, **given: Any) -> str:
    defaults: dict[str, Any] = {
        "pool": None,
        "dataset": None,
        "pid": None,
        "duration": 2 * SECOND,
        "json": False,
        "no_fentry": False,
        "over": 10 * MS,
        "count": None,
        "timeline": None,
    }
    args = argparse.Namespace(**(defaults | given))
    stop = FakeStop()

    def waited(ms: int) -> None:
        stop.clock += ms * 1_000_000

    states = [[counts(objset=68, total=[1]), counts("other", 1, total=[1])]]
    session = FakeSession(states, events, Losses(event=2), on_poll=waited)
    out = out or io.StringIO()
    trace(Run(args, options_of(args), FakeHost(session), out, stop))
    assert session.closed
    return out.getvalue()


def test_each_slow_fsync_has_a_line() -> None:
    lines = run([slow_event(flush=93, issue=4, log_write=3), slow_event(wakeup=20)]).splitlines()
    assert lines[0].split() == [
        "TIME", "(UTC)", "PID", "COMM", "DATASET", "KIND", "OBJECT", "TOTAL",
        "TXG", "DIRTY", "STAGES",
    ]  # fmt: skip
    assert lines[1].split()[1:] == [
        "4711", "postgres", "tank/db", "fdatasync", "17", "100", "ms",
        "sync", "75%!", "flush", "93%", "issue", "4%",
    ]  # fmt: skip
    assert lines[1].index("flush") == lines[0].index("STAGES") == lines[2].index("wakeup")
    assert max(map(len, lines)) < 100
    assert lines[3] == "2 fsyncs of 10.0 ms or more in 2.0 s"
    assert lines[4].startswith("lost 2 (no room 0, missed 0, slow events 2)   unfinished 0")
    assert lines[5].startswith("missing probe cv_timedwait: ")


def test_json_has_stages_txg_and_throttle(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run([slow_event(flush=93)], json=True).splitlines()
    assert len(lines) == 1
    line = json.loads(lines[0])
    assert (line["type"], line["dataset"], line["tid"]) == ("slow_fsync", "tank/db", 4712)
    assert sum(line["stages"].values()) == line["total_ns"]
    assert (line["txg_state"], line["txg"], line["txg_sync_ns"]) == ("syncing", 77, 1_200_000_000)
    assert line["throttle"] == {"dirty_bytes": 3 << 30, "dirty_percent": 75.0, "delayed": True}
    assert "lost 2" in capsys.readouterr().err


def test_the_time_of_the_tracer_is_preferred() -> None:
    seen = replace(slow_event(flush=20), wall_ns=1_795_295_113_046_812_000)
    slow = slow_fsync(seen, None, None, FakeHost(), FakeSession())
    assert slow.time == "2026-11-21T21:05:13.046Z"


def test_an_unknown_state_of_the_pool_is_null() -> None:
    host, session, slow = FakeHost(), FakeSession(), replace(slow_event(flush=20), dirty_bytes=None)
    session.held = None
    found = slow_fsync(slow, "tank", "tank/db", host, session).throttle
    assert found == {"dirty_bytes": None, "dirty_percent": None, "delayed": None}
    session.held = 0
    found = slow_fsync(slow, "tank", "tank/db", host, session).throttle
    assert found == {"dirty_bytes": None, "dirty_percent": None, "delayed": False}
    # not even the pool is known
    nowhere = slow_fsync(slow, None, None, host, session)
    assert (nowhere.txg_state, nowhere.throttle) == (None, None)


def test_count_ends_it() -> None:
    text = run([slow_event(flush=20)] * 5, count=3)
    assert text.count("4711") == 3
    assert "3 fsyncs of" in text


def test_other_pools_are_left_out() -> None:
    assert "other" not in run([slow_event(1, flush=20)], pool="tank").partition("lost")[0]


def test_other_datasets_are_left_out() -> None:
    text = run([slow_event(0, flush=20), slow_event(7, flush=20)], dataset="tank/home")
    assert "tank/db" not in text
    # a nameless dataset may be the one
    assert "<unknown>" in text


def test_without_slow_fsyncs_it_says_so() -> None:
    assert run([]).startswith("no fsync of 10.0 ms or more in 2.0 s\nlost 2")


def test_a_nameless_dataset_is_unknown() -> None:
    assert "<unknown>" in run([slow_event(7, flush=20)])


def test_escape_codes_in_a_name_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in run([slow_event(comm="\x1b[31mred", flush=20)])


def test_the_largest_stages_fill_the_column() -> None:
    assert largest_stages({"flush": 93, "issue": 4, "other": 3}, 18) == "flush 93% issue 4%"
    assert largest_stages({"issuer_lock": 55, "batch_wait": 45}, 18) == "issuer_lock 55%"
    assert largest_stages({"flush": 1, "issue": 0}, 18) == "flush 100%"
    assert largest_stages({"flush": 0}, 18) == ""
