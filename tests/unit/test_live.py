"""The loop that all traces share."""

from __future__ import annotations

from unit.fake_host import FakeSession, FakeStop

from zfstrace.summary import Span
from zfstrace.types import Losses
from zfstune.live import Meter, loop
from zfstune.units import MS, SECOND


def never() -> bool:
    return False


def test_intervals_ticks_and_end() -> None:
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


def test_show_can_end_it() -> None:
    stop = FakeStop()
    assert loop(stop, None, SECOND, never, lambda: True) == SECOND


def test_meter() -> None:
    states = [[1], [3], [6]]
    session = FakeSession(states, losses=Losses(event=2))
    stop = FakeStop()

    def rows(now: list[int], earlier: list[int], _span: Span) -> list[int]:
        return [now[0] - earlier[0]]

    meter = Meter(session, stop, [0], lambda: session._now, rows)
    stop.clock += SECOND
    found, span = meter.measure(step=True)
    assert (list(found), span.duration_ns, span.losses.lost) == ([1], SECOND, 2)
    stop.clock += SECOND
    found, span = meter.measure(step=True)
    assert (list(found), span.duration_ns, span.losses.lost) == ([2], SECOND, 0)
    stop.clock += SECOND
    found, span = meter.measure(step=False)
    assert (list(found), span.duration_ns, span.losses.lost) == ([6], 3 * SECOND, 2)
