"""Views that cost too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.exported import Exported
from support.exported_host import busy, fsyncs, light_state, whys
from support.fake_host import FakeSession
from support.samples import ios, vdev, waits

from zfstrace.errors import TraceError
from zfstune.term.units import MS


class Costly(FakeSession):
    """A session whose programs take a share of a CPU while the kernel counts."""

    def __init__(self, share: float, clock: Callable[[], int], states: Any = ((),)) -> None:
        super().__init__(states)
        self.share, self._clock, self.counting = share, clock, False
        self.began = 0

    def count_cost(self) -> None:
        self.counting = True

    def end_cost(self) -> None:
        self.counting = False

    def costs(self) -> Any:
        class Cost:
            run_ns = int(self._clock() * self.share)

        return [(None, Cost)]


def costly(budget: float = 0.01, **shares: float) -> tuple[Exported, dict[str, Costly]]:
    host = busy()
    it = Exported(host, *shares, budget=budget)
    states: Any = {
        "fsync": [fsyncs(1)],
        "light": [light_state()],
        "txg": ((),),
        "throttle": [[waits(rest=True)]],
        "device": [[vdev(1, flush=ios([MS]))]],
    }
    sessions = {
        name: Costly(share, lambda: it.stop.clock, states[name]) for name, share in shares.items()
    }
    host.sessions |= sessions
    return it, sessions


def test_what_tracing_costs_is_measured_now_and_then() -> None:
    it, sessions = costly(fsync=0.004, txg=0.001)
    assert it.scrape(29).of("zfstune_trace_cost_ratio") == {}
    counted = 0
    for _ in range(1300):
        it.tick()
        counted += any(session.counting for session in sessions.values())
    assert 4 <= counted <= 9
    ratios = it.scrape().of("zfstune_trace_cost_ratio")
    assert ratios == {("fsync",): pytest.approx(0.004), ("txg",): pytest.approx(0.001)}
    assert whys(it.scrape()) == {}


def test_above_the_budget_views_go_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    it, sessions = costly(light=0.002, fsync=0.006, txg=0.001, device=0.02, throttle=0.0)
    it.tick(40)
    scrape = it.scrape()
    assert whys(scrape) == {"device": "budget"}
    assert sessions["device"].closed
    assert "view device is off: tracing costs 2.9 % of a CPU, --budget is 1.0 %" in (
        capsys.readouterr().err
    )
    assert ("device",) not in scrape.of("zfstune_trace_cost_ratio")
    sessions["fsync"].share = 0.05
    it.tick(40)
    assert whys(it.scrape()) == {"device": "budget", "fsync": "budget"}
    sessions["device"].share = sessions["fsync"].share = 0.0001
    it.tick(1830)
    assert whys(it.scrape()) == {}


def test_another_module_is_no_reason_to_try_again_what_cost_too_much() -> None:
    it, _sessions = costly(light=0.0, device=0.02)
    it.tick(40)
    assert whys(it.scrape()) == {"device": "budget"}
    it.host.loaded_as = "boot:2"
    it.tick(5)
    assert whys(it.scrape()) == {"device": "budget"}


def test_what_cannot_make_up_for_light_stays() -> None:
    it, sessions = costly(light=0.02, txg=0.001, throttle=0.001, device=0.03)
    it.tick(40)
    # it is too much by itself
    assert whys(it.scrape()) == {"device": "budget"}
    sessions["throttle"].share = 0.02
    it.tick(40)
    assert whys(it.scrape()) == {"device": "budget", "throttle": "budget"}


def test_small_budgets_are_not_shown_as_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    it, _sessions = costly(txg=0.0004, budget=0.0002)
    it.tick(40)
    assert whys(it.scrape()) == {"txg": "budget"}
    said = "view txg is off: tracing costs 0.04 % of a CPU, --budget is 0.02 %"
    assert said in capsys.readouterr().err


def test_what_has_begun_to_count_ends_also_after_an_error() -> None:
    it, sessions = costly(fsync=0.1, txg=0.1)
    counting: list[bool] = []

    def refuse() -> Any:
        counting.append(sessions["fsync"].counting)
        raise TraceError("cannot count")

    sessions["fsync"].costs = refuse  # type: ignore[method-assign]
    it.tick(100)
    assert counting == [True]
    assert not any(session.counting for session in sessions.values())


def test_light_stays_whatever_it_costs() -> None:
    it, _sessions = costly(light=0.5, txg=0.0)
    it.tick(40)
    scrape = it.scrape()
    assert whys(scrape) == {}
    assert scrape.get("zfstune_trace_cost_ratio", view="light") == pytest.approx(0.5)


def test_a_view_that_is_closed_while_the_kernel_counts_for_it() -> None:
    it, sessions = costly(fsync=0.9, throttle=0.0)
    it.tick(31)
    assert sessions["fsync"].counting and sessions["throttle"].counting
    it.host.imported = []
    it.tick(5)
    it.host.imported = ["tank"]
    assert whys(it.scrape(2)) == {}
    it.tick(40)
    assert whys(it.scrape()) == {"fsync": "budget"}


def test_where_the_kernel_does_not_count_it_says_so_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    it, sessions = costly(fsync=0.1)

    def refuse() -> None:
        raise TraceError("cannot count what tracing costs: the kernel is older than Linux 5.8")

    sessions["fsync"].count_cost = refuse  # type: ignore[method-assign]
    it.tick(2000)
    scrape = it.scrape()
    assert scrape.get("zfstune_exporter_errors_total", what="cost") == 4
    assert capsys.readouterr().err.count("older than Linux 5.8") == 1
    assert whys(scrape) == {}
