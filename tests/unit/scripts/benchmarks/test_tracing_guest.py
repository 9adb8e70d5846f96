"""What tracing costs, measured in the guest of `make bench-tracing`: with made-up counts and times,
and tools that fail."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import tracing_guest
from benchmarks.loads import LOADS
from benchmarks.tracing_guest import Tool, says

Json = dict[str, Any]
# What is never asked how slow the machine is
REFERENCE: Any = None


def test_programs_are_counted_for_an_fsync() -> None:
    """bpftool names no time for one that never ran, and others were there before."""
    before = [{"id": 1}, {"id": 2, "run_time_ns": 900, "run_cnt": 9}, {"id": 3}, {"id": 4}]
    after = [
        {"id": 1, "name": "fentry_a", "run_time_ns": 4000, "run_cnt": 40},
        {"id": 2, "name": "fentry_b", "run_time_ns": 1900, "run_cnt": 19},
        {"id": 3, "name": "fentry_c"},
        {"id": 4, "name": "fentry_a", "run_time_ns": 1000, "run_cnt": 10},
    ]
    assert tracing_guest.per_fsync(before, after, 10) == {
        "fentry_a": {"ns": 500.0, "runs": 5.0},  # two, whose names the kernel has shortened
        "fentry_b": {"ns": 100.0, "runs": 1.0},
    }


@pytest.mark.parametrize(
    ("output", "events"),
    [
        ("lost 0   unfinished 2\n", 0),
        ('{"lost": 12, "missing": []}', 12),
        ("Lost 7 events\nLost 5 events", 7),
        ("LOST 3 events!", 3),
        ("a histogram", None),
    ],
)
def test_lost_events_are_those_that_a_tool_admits(output: str, events: int | None) -> None:
    assert tracing_guest.lost(output) == events


READY = Tool("sh -c 'echo ready; exec sleep 60'", says("ready"))
LONG = 1e9


@pytest.fixture
def stats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the kernel, in a guest whose loads take no time."""
    file = tmp_path / "bpf_stats_enabled"
    file.write_text("0")
    monkeypatch.setattr(tracing_guest, "BPF_STATS", file)
    monkeypatch.setattr(tracing_guest, "END_S", 1)
    monkeypatch.setattr(tracing_guest, "every_load", lambda *_: dict.fromkeys(LOADS, 2e6))
    monkeypatch.setattr(tracing_guest, "pieces", lambda load: [lambda: None])
    monkeypatch.setattr(tracing_guest, "programs", list)
    return file


def measure(
    monkeypatch: pytest.MonkeyPatch, tool: Tool, done: int = 0, most: int = 2, end: float = LONG
) -> list[Json]:
    """What is found of a tool that has had some rounds."""
    monkeypatch.setattr(tracing_guest, "TOOLS", {"a tool": tool})
    found = list(tracing_guest.measure({"a tool": done}, most, time.monotonic() + end, REFERENCE))
    assert {one.pop("tool") for one in found} <= {"a tool"}
    return found


def test_a_tool_is_measured_between_others(stats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, first, second = measure(monkeypatch, READY)
    assert programs == {"programs": {name: {} for name in LOADS}}
    assert first.keys() == second.keys() == {"attach_seconds", "own", "lost", "loads"}
    assert first["loads"]["disk"] == {"none": 2e6, "traced": 2e6}
    assert stats.read_text() == "0"


def test_what_is_measured_is_not_measured_again(
    stats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measure(monkeypatch, READY, done=2) == []
    assert "loads" in measure(monkeypatch, READY, done=1)[0]
    # there is no time for more than the programs
    assert [*measure(monkeypatch, READY, end=0)[0]] == ["programs"]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("no-such-tool --at-all", "not there"),
        ("sh -c 'echo broken | tr b B'", "did not attach: Broken"),
        ("sh -c 'trap : INT; echo ready; while true; do sleep 0.05; done'", "did not end"),
        ("sh -c 'echo ready'", "ended by itself: ready"),
    ],
)
@pytest.mark.parametrize("done", [0, 1])
def test_a_tool_that_fails_costs_only_itself(
    stats: Path, monkeypatch: pytest.MonkeyPatch, command: str, error: str, done: int
) -> None:
    """And has no second chance, whether its programs are counted or it has a round."""
    assert measure(monkeypatch, Tool(command, says("ready")), done) == [{"error": error}]


def test_after_an_error_the_kernel_counts_no_more(
    stats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> list[Json]:
        assert stats.read_text() == "1"
        raise RuntimeError("no | bpftool")

    monkeypatch.setattr(tracing_guest, "programs", fails)
    assert measure(monkeypatch, READY) == [{"error": "no / bpftool"}]
    assert stats.read_text() == "0"


def test_a_round_that_hangs_ends(stats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_guest, "ROUND_S", 1)
    hangs = Tool(READY.command, lambda _: False)
    assert measure(monkeypatch, hangs) == [{"error": "took longer than 1 s"}]


def test_tools_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have had fewer rounds first. A measurement between two tools is of both, and none
    of two rounds of one."""
    tools = {name: Tool(name, says("")) for name in "abc"}
    befores: list[Json] = []

    def one_round(tool: Tool, _: object, before: Json) -> Json:
        befores.append(before)
        if tool.command == "c":
            raise RuntimeError("broken")
        return {"after": {"after": tool.command}}

    monkeypatch.setattr(tracing_guest, "TOOLS", tools)
    monkeypatch.setattr(tracing_guest, "one_round", one_round)
    end = time.monotonic() + LONG
    found = list(tracing_guest.measure({"a": 3, "b": 1, "c": 1}, 5, end, REFERENCE))
    assert [one["tool"] for one in found] == ["b", "c", "b", "a", "b", "a", "b"]
    assert [one for one in found if len(one) > 1] == [{"tool": "c", "error": "broken"}]
    fresh: Json = {}
    between = [{"after": name} for name in "bab"]
    assert befores == [fresh, {"after": "b"}, fresh, *between, {"after": "a"}]
    befores.clear()
    assert len(list(tracing_guest.measure({"a": 3}, 5, end, REFERENCE))) == 2
    assert befores == [fresh, fresh]


def test_tracers_without_a_command_have_no_time_of_their_own(
    stats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    @contextmanager
    def attached(mode: str) -> Iterator[None]:
        said.append(mode)
        yield
        said.append("end")

    monkeypatch.setattr(tracing_guest, "attached", attached)
    programs, only = measure(monkeypatch, Tool("", says("nothing"), mode="fsync"), most=1)
    assert said == ["fsync", "end"] * 2 and "programs" in programs
    assert only["own"] == 0 and only["lost"] is None


def test_the_time_of_a_process_is_that_of_the_kernel() -> None:
    end = time.thread_time_ns() + 20_000_000
    while time.thread_time_ns() < end:
        pass
    before, now = time.process_time_ns(), tracing_guest.process_clock(os.getpid())
    assert before <= time.clock_gettime_ns(now) <= time.process_time_ns()


def test_a_file_that_perf_has_just_closed_is_no_error() -> None:
    gone = SimpleNamespace(process=SimpleNamespace(pid=1 << 30))
    assert not tracing_guest.has_perf_events(gone)  # type: ignore[arg-type]


def test_a_tool_of_ours_says_when_it_has_attached() -> None:
    """Words of `zfstune trace` and `zfstune exporter`; what comes before them is no sign."""
    attached = tracing_guest.ATTACHED.search
    assert attached("zfstune: fentry, tracing tank; Ctrl-C to end\n")
    before = "zfstune: view arc: 2 of 2 probes attached\n"
    served = "zfstune: serving http on 127.0.0.1, port 9810: /metrics\n"
    assert attached(before + served) and not attached(before)
