"""The loop that all traces share."""

from __future__ import annotations

import argparse
import io
from dataclasses import replace

import pytest
from support.fake_host import FakeHost, FakeParameters, FakeSession, FakeStop, run_of

from zfstrace.errors import TraceError
from zfstrace.summary import Span
from zfstrace.types import Losses, TraceOptions
from zfstune.term.table import Style
from zfstune.term.units import MS, SECOND
from zfstune.trace import live
from zfstune.trace.live import Frame, Meter, Run, follow, loop, watch


def never() -> bool:
    return False


def test_intervals_and_ticks_come_in_time() -> None:
    stop = FakeStop()
    start = stop.now()
    shown: list[int] = []
    ticks: list[int] = []

    def note(times: list[int]) -> bool:
        times.append((stop.now() - start) // MS)
        return False

    took = loop(stop, 5 * SECOND, 1500 * MS, lambda: note(ticks), lambda: note(shown))
    assert took == 5 * SECOND
    assert shown == [1500, 3000, 4500]
    assert ticks == [1000, 2000, 3000, 4000]


def test_a_slow_view_does_not_pile_up() -> None:
    stop = FakeStop()
    shown = 0

    def show() -> bool:
        nonlocal shown
        shown += 1
        stop.clock += 3 * SECOND
        return False

    loop(stop, 10 * SECOND, SECOND, never, show)
    assert shown < 5


def test_a_slow_view_leaves_a_pause() -> None:
    """So that no interval is next to nothing, as after a program was suspended."""
    stop = FakeStop()
    ended = stop.now()
    pauses: list[int] = []

    def show() -> bool:
        nonlocal ended
        pauses.append(stop.now() - ended)
        stop.clock += 3 * SECOND
        ended = stop.now()
        return False

    assert loop(stop, 20 * SECOND, SECOND, never, show) == 20 * SECOND
    assert pauses == [SECOND] * 5


def test_a_slow_tick_leaves_a_pause() -> None:
    stop = FakeStop()
    ended = stop.now()
    pauses: list[int] = []

    def tick() -> bool:
        nonlocal ended
        pauses.append(stop.now() - ended)
        stop.clock += 3 * SECOND
        ended = stop.now()
        return False

    assert loop(stop, 20 * SECOND, SECOND, tick, never) == 20 * SECOND
    assert pauses == [SECOND] * 5


@pytest.mark.parametrize("how", ["unloaded", "anew", "there"])
def test_a_trace_ends_with_the_module_that_it_traces(
    how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module that is loaded again has none of the probes."""
    host = FakeHost()
    run = run_of(host)
    if how == "unloaded":
        host.unloaded = True
    elif how == "anew":
        monkeypatch.setattr(FakeParameters, "identity", lambda _self: "boot:2")
    assert run.tick() is (how != "there")
    says = {"unloaded": "was unloaded: ", "anew": "was unloaded and loaded again: ", "there": ""}
    assert says[how] in capsys.readouterr().err


def test_a_suspended_pool_is_named_before_it_is_traced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = FakeHost()
    host.state = "SUSPENDED"
    monkeypatch.setattr("zfstune.trace.live.open_host", lambda: host)
    given = argparse.Namespace(pool="tank", duration=None)
    assert live.run(given, TraceOptions("tank"), lambda _run: None) == 0
    assert "pool tank is SUSPENDED: no fsync ends there; see `zpool status tank`" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("kstat", [False, True])
def test_before_it_detaches_from_a_suspended_pool_it_says_what_may_last(
    capsys: pytest.CaptureFixture[str], kstat: bool
) -> None:
    """Also after an error, and not without programs in the kernel."""
    host = FakeHost()
    host.state = "SUSPENDED"
    run = replace(run_of(host), options=TraceOptions("tank", kstat=kstat))
    said = "detaching may last until `zpool clear tank`"
    with pytest.raises(TraceError), live.attached(run, host.open_txg_trace):
        assert said not in capsys.readouterr().err
        raise TraceError("it cannot go on")
    assert (said in capsys.readouterr().err) is not kstat
    assert host.session.closed


def test_a_view_can_end_the_loop() -> None:
    stop = FakeStop()
    assert loop(stop, None, SECOND, never, lambda: True) == SECOND


class Buffer:
    """Returns one list of events after the other; a refresh adds event 5."""

    def __init__(self, *lists: list[int]) -> None:
        self._lists = list(lists)

    def refresh(self) -> None:
        self._lists = [[*(event for events in self._lists for event in events), 5]]

    def poll(self, _timeout_ms: int) -> list[int]:
        return self._lists.pop(0) if self._lists else []


@pytest.mark.parametrize("by", ["signal", "duration", "reader"])
def test_events_before_the_end_are_shown(by: str) -> None:
    """Events wait in the buffer while others are shown, or come only when it is asked."""
    stop = FakeStop()
    shown: list[int] = []
    session = Buffer([1, 2], [3, 4])

    def show(event: int) -> None:
        shown.append(event)
        stop.asked |= by == "signal"
        stop.reader_gone |= by == "reader"
        stop.clock += 2 * SECOND

    args = argparse.Namespace(duration=3 * SECOND)
    run = Run(args, TraceOptions(), FakeHost(), io.StringIO(), stop)
    took = follow(run, session, show, never)
    assert shown == ([1, 2] if by == "reader" else [1, 2, 3, 4, 5])
    assert took == 4 * SECOND


def test_no_more_events_than_asked_for_are_shown() -> None:
    stop = FakeStop()
    shown: list[int] = []
    run = Run(argparse.Namespace(duration=None), TraceOptions(), FakeHost(), io.StringIO(), stop)
    follow(run, Buffer([1, 2, 3]), shown.append, never, lambda: len(shown) >= 2)
    assert shown == [1, 2]


@pytest.mark.parametrize(("json", "made"), [(True, [False]), (False, [True] * 4)])
def test_lines_are_made_only_if_they_are_shown(
    capsys: pytest.CaptureFixture[str], json: bool, made: list[bool]
) -> None:
    """With --json only at the end, for stderr, and then about the whole trace."""
    calls: list[bool] = []
    args = argparse.Namespace(duration=3500 * MS, interval=SECOND, json=json)
    out = io.StringIO()
    run = Run(args, TraceOptions(), FakeHost(), out, FakeStop())

    def frame(step: bool, _style: Style) -> Frame:
        def lines() -> tuple[list[str], list[str]]:
            calls.append(step)
            return ["body"], ["end"]

        return Frame((), lines)

    watch(run, frame, never)
    assert calls == made
    assert ("end" in out.getvalue()) is not json
    assert capsys.readouterr().err == ("body\nend\n" if json else "")


def test_a_meter_gives_differences_and_sums() -> None:
    states = [[1], [3], [6]]
    session = FakeSession(states, losses=Losses(event=2))
    stop = FakeStop()

    def rows(now: list[int], earlier: list[int], _span: Span) -> list[int]:
        return [now[0] - earlier[0]]

    meter = Meter(session, stop, [0], lambda: session.now, rows)
    stop.clock += SECOND
    found, span = meter.measure(step=True)
    assert (list(found), span.duration_ns, span.losses.lost) == ([1], SECOND, 2)
    stop.clock += SECOND
    found, span = meter.measure(step=True)
    assert (list(found), span.duration_ns, span.losses.lost) == ([2], SECOND, 0)
    stop.clock += SECOND
    found, span = meter.measure(step=False)
    assert (list(found), span.duration_ns, span.losses.lost) == ([6], 3 * SECOND, 2)
