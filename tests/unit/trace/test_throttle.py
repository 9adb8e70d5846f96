"""`trace throttle` without a kernel."""

from __future__ import annotations

import ctypes
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost, FakeSession, run_of
from support.samples import waits

from zfstrace import throttle
from zfstrace.bpf.pools import ThrottleTrace, Waiter
from zfstrace.throttle import KINDS, ThrottleCounts, ThrottleState
from zfstrace.types import Losses
from zfstune.term.table import Style
from zfstune.term.units import MS, SECOND
from zfstune.trace.throttle import KINDS as WORDS
from zfstune.trace.throttle import trace, view


def run(states: list[list[ThrottleCounts]], **options: Any) -> str:
    out = io.StringIO()
    session = FakeSession(states, losses=Losses(start=1))
    trace(run_of(FakeHost(session), out, **({"duration": 10 * SECOND} | options)))
    assert session.closed
    return out.getvalue()


def busy() -> list[ThrottleCounts]:
    return [
        waits(dirty_delay=[MS] * 100, dirty_hard=[100 * MS] * 50),
        waits(pid=4712, comm="postgres", dirty_delay=[2 * MS] * 300),
        waits("backup", pid=7, comm="\x1b[31mrsync", txg_wait=[SECOND], dirty_bytes=None),
    ]


def test_the_table_has_waits_by_kind_and_process() -> None:
    lines = run([busy()]).splitlines()
    assert max(map(len, lines)) < 100
    assert lines[0] == "tank"
    assert "450 waits in 10.0 s, 5.70 s in all: 0.6 threads delayed on average" in lines[1]
    assert lines[4].split() == [
        "pid", "comm", "delays", "hard", "total", "p50", "p99", "max", "dirty",
    ]  # fmt: skip
    assert lines[5].split()[:4] == ["4711", "fio", "100", "50"]
    assert lines[5].endswith("3.00G 75%")
    assert lines[6].split()[:4] == ["4712", "postgres", "300", "0"]
    assert "none of: wrlog, txg_wait" in lines[7]
    text = " ".join(" ".join(lines).split())
    assert "Most of the waiting (88 %) is `hard`: dirty data is at zfs_dirty_data_max" in text
    assert "Most of the waiting (100 %) is `txg_wait`" in text
    assert "lost 1 " in text
    assert "\x1b" not in text


def test_every_kind_has_words() -> None:
    assert tuple(WORDS) == KINDS
    for kind in KINDS:
        assert f"is `{WORDS[kind].column}`: " in run([[waits(**{kind: [MS]})]])  # type: ignore[arg-type]


def test_without_waits_it_says_so() -> None:
    assert run([[]], pool="tank", pid=1).startswith(
        "nothing was throttled in 10.0 s on tank of process 1\n\nlost 1"
    )


def test_without_waits_json_has_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([[]], json=True) == ""
    err = capsys.readouterr().err
    assert "nothing was throttled in 10.0 s" in err
    assert "lost 1" in err


def test_intervals_are_differences() -> None:
    one, two = [waits(dirty_delay=[MS])], [waits(dirty_delay=[MS] * 3)]
    text = run([one, two, two], interval=4 * SECOND, json=True)
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["count"] for line in lines] == [1, 2]
    assert lines[1]["kinds"]["dirty_delay"]["total_ns"] == 2 * MS
    assert [line["kinds"]["dirty_delay"]["count"] for line in lines] == [1, 2]
    assert lines[0]["dirty_data_max"] == 4 << 30
    assert lines[0]["lost"] == 1
    assert lines[1]["lost"] == 0


def test_the_maximum_of_an_interval_is_not_that_of_an_earlier_one() -> None:
    earlier = [waits(dirty_hard=[9 * SECOND], dirty_delay=[MS])]
    now = [waits(dirty_hard=[9 * SECOND], dirty_delay=[MS, MS])]
    [found] = throttle.since(now, earlier)
    assert found.kinds["dirty_hard"] == throttle.Waits()
    assert found.kinds["dirty_delay"] == throttle.Waits(1, MS, MS)


def test_other_pools_are_left_out_but_not_the_rest() -> None:
    found = [*busy(), waits("", 0, "", rest=True, dirty_hard=[MS])]
    text = run([found], pool="backup")
    assert "fio" not in text
    assert "<others>" in text


def test_the_state_of_the_throttle_has_json() -> None:
    state = ThrottleState(3 << 30, 4 << 30, True)
    assert state.to_json() == {"dirty_bytes": 3 << 30, "dirty_percent": 75.0, "delayed": True}
    assert ThrottleState().to_json() == dict.fromkeys(("dirty_bytes", "dirty_percent", "delayed"))


times = st.lists(st.integers(0, 99 * SECOND), max_size=3)
processes = st.builds(
    lambda pid, comm, dirty, kinds: waits(pid=pid, comm=comm, dirty_bytes=dirty, **kinds),
    st.integers(1, 4_194_304),
    st.text(min_size=1, max_size=15),
    st.none() | st.integers(0, 1 << 45),
    st.fixed_dictionaries(dict.fromkeys(KINDS, times)),
)


@given(st.lists(processes, max_size=6), st.none() | st.integers(1, 1 << 45))
def test_any_table_fits(found: list[ThrottleCounts], limit: int | None) -> None:
    rows = throttle.rows(found, "t", 10 * SECOND, limit, Losses())
    lines = view(rows, Style(clip=True), 10 * SECOND, "tank")
    assert max(map(len, lines)) < 100
    assert len(lines) >= len(rows)
    for row in rows:
        line = json.loads(json.dumps(row.to_json()))
        assert sum(kind["count"] for kind in line["kinds"].values()) == line["count"]


def test_an_ended_wait_is_found_among_those_seen_before() -> None:
    """The kernel has only the last one: an fsync that ended before it is looked up in those
    that were seen before."""
    seen = throttle.Seen(most=3)
    for who, start, end in ((1, 10, 20), (1, 10, 20), (2, 15, 18), (1, 30, 40)):
        seen.note("tank", who, start, end)
    seen.note("idle", 9, 0, 0)
    seen.note("tank", 3, 50, 45)
    assert [seen.within("tank", *span) for span in ((0, 9), (20, 29), (16, 35), (41, 99))] == [
        0,
        1,
        2,
        0,
    ]
    assert seen.within("idle", 0, 100) == 0
    seen.note("tank", 4, 60, 70)
    # the oldest is forgotten
    assert seen.within("tank", 19, 25) == 0


def test_ended_waits_stay_in_the_sum() -> None:
    """Processes that are no longer kept apart are in the rest, with their waits of the interval."""
    others = throttle.Ended(most=2)
    rest = waits(rest=True, comm="<others>")

    def state(*live: ThrottleCounts) -> list[ThrottleCounts]:
        return [others.rest(rest), *others.last(), *live]

    first = replace(waits(pid=11, txg_wait=[MS] * 3), life=1)
    before = state(first)
    others.add(replace(waits(pid=11, txg_wait=[MS] * 5), life=1))
    for life in (2, 3):
        others.add(replace(waits(pid=10 + life, txg_wait=[MS] * life), life=life))
    now = state(replace(waits(pid=11, txg_wait=[MS] * 7), life=4))
    assert [(c.life, c.latency.count) for c in now] == [(0, 5), (2, 2), (3, 3), (4, 7)]
    new = throttle.since(now, before)
    assert [(c.life, c.latency.count) for c in new] == [(0, 2), (2, 2), (3, 3), (4, 7)]
    assert new[0].kinds["txg_wait"].total_ns == 2 * MS
    assert sum(c.latency.count for c in new) == 5 + 2 + 3 + 7 - 3


def test_entries_of_ended_processes_are_freed() -> None:
    released = []

    class Library:
        def zfstrace_release(self, _handle: object, i: int) -> int:
            released.append(i)
            ctypes.memset(ctypes.addressof(table[i]), 0, ctypes.sizeof(Waiter))
            return 0

    table = (Waiter * 4)()
    trace = object.__new__(ThrottleTrace)
    trace._waiters, trace._ended, trace._seen = table, throttle.Ended(), throttle.Seen()
    trace._lib, trace._handle = Library(), ctypes.c_void_p(1)  # type: ignore[assignment]
    for i, pid in ((1, 100), (3, 300)):
        table[i].used, table[i].pid, table[i].life = 1, pid, i
        table[i].latency.bucket[9] = table[i].count[3] = i
        table[i].latency.sum_ns = 9 * i
        table[i].pool, table[i].last_start, table[i].last_end = b"tank", 10, 20
    before = trace.waits()
    trace.release(lambda pool, pid: (pool, pid) == ("tank", 100))
    assert released == [1]
    assert not table[1].used
    assert [(c.pid, c.latency.count) for c in trace.waits()] == [(0, 0), (100, 1), (300, 3)]
    assert all(not c.latency.count for c in throttle.since(trace.waits(), before))
    # the last wait of a process is still known when another has its entry
    assert trace.held_up("tank", 0, 100) == 2
    table[1].used, table[1].pid, table[1].life, table[1].pool = 1, 400, 4, b"tank"
    table[1].last_start, table[1].last_end = 30, 40
    assert trace.held_up("tank", 0, 100) == 3
    table[1].used = 0
    assert set(trace._seen._last) == {("tank", 3), ("tank", 4)}
    trace._handle = None
    trace.release(lambda _pool, _pid: True)
    assert released == [1]
