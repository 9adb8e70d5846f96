"""All views together: followed, kept within the budget, and encoded for scrapes.

The main thread calls tick() each second. Threads of the server call encoded(): the first of a
second reads the counters, the others get what it got, so that a thousand scrapers cost one reading.
One lock guards all of it, since a session of libzfstrace is for one thread at a time.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from prometheus_client.core import Metric

from zfstrace.types import Json
from zfstune.exporter import own
from zfstune.exporter.arc import ArcView
from zfstune.exporter.budget import AGAIN_NS, Budget
from zfstune.exporter.device import DeviceView
from zfstune.exporter.encoding import encode, wanted
from zfstune.exporter.families import Counters, Labels, gauge, info, one
from zfstune.exporter.fsync import FsyncView
from zfstune.exporter.kstats import KstatView
from zfstune.exporter.light import LightView
from zfstune.exporter.metrics import KSTAT
from zfstune.exporter.read import ReadView
from zfstune.exporter.throttle import ThrottleView
from zfstune.exporter.txg import TxgView
from zfstune.exporter.views import Setup, View
from zfstune.record.changes import Write
from zfstune.record.following import BUDGET, HOST, NO_POOL, Following
from zfstune.record.traced import Traced
from zfstune.term.log import say
from zfstune.term.units import SECOND, format_percent

_CLASSES: tuple[type[Traced[Any]], ...] = (
    LightView,
    FsyncView,
    TxgView,
    ThrottleView,
    ArcView,
    DeviceView,
    ReadView,
)

# What may fail beside a view, and beside the parts that expect_errors() adds
PARTS = (HOST, "cost", "encode", KSTAT)

# How old the counters may be that a scrape gets
_FRESH_NS = SECOND


def view_named(name: str, setup: Setup) -> Traced[Any]:
    """A view, which is not open yet."""
    return {view.name: view for view in _CLASSES}[name](setup)


class Collector:
    """Implements server.Scraped. instead maps a view to the one that takes its place where the
    system does not have it."""

    def __init__(
        self,
        setup: Setup,
        views: Sequence[str],
        budget: float = 0.01,
        instead: Mapping[str, str] | None = None,
        kstats: KstatView | None = None,
    ) -> None:
        self._host, self._stop = setup.host, setup.stop
        self.lock = threading.RLock()
        self._kstats = kstats or KstatView(setup)
        self._budget = Budget(budget)
        self._errors = Counters("zfstune_exporter_errors_total")
        self._lost = Counters("zfstune_trace_lost_total")
        self._took_s: float | None = None
        self._read_ns: int | None = None
        self._families: list[Metric] = []
        self._encoded: dict[bool, tuple[bytes, str]] = {}
        self._closed = False
        for what in (*PARTS, *views):
            self._errors.add(0, what)
        self._following = Following(
            setup, functools.partial(view_named, setup=setup), views, instead, self._errors.add
        )

    # --- each second

    def tick(self) -> None:
        """Follows the host, and lets the views do what is due. Raises nothing."""
        with self.lock:
            if self._closed:
                return
            self._following.tick()
            self._following.survive(self._kstats.name, self._kstats.tick)
            self._following.survive("cost", self._keep_budget)

    def expect_errors(self, *what: str) -> None:
        """Shows what may fail before it does."""
        with self.lock:
            for part in what:
                self._errors.add(0, part)

    def survive(self, what: str, call: Callable[[], Any]) -> None:
        """Calls another part of the exporter, which asks the same host; its failure is counted, and
        said once."""
        with self.lock:
            self._following.survive(what, call)

    def count_error(self, what: str) -> None:
        """Counts a failure of another part of the exporter."""
        with self.lock:
            self._errors.add(1, what)

    # --- the budget

    def _keep_budget(self) -> None:
        on = self._following.on()
        sessions = {kept.name: kept.view.session for kept in on if not kept.view.by_kstat}
        gone = self._budget.tick(self._stop.now(), sessions)
        for kept in on:
            if kept.name in gone:
                cost, share = _percent(self._budget.cost), _percent(self._budget.share)
                say(f"view {kept.name} is off: tracing costs {cost} of a CPU, --budget is {share}")
                self._following.off(kept, BUDGET, self._stop.now() + AGAIN_NS)

    # --- a scrape

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """The metrics and their content type; the counters are at most a second old."""
        openmetrics = wanted(accept)
        with self.lock:
            start = time.monotonic()
            if self.read(_FRESH_NS) or not self._families:
                self._families = list(self._made())
                self._encoded = {}
            if openmetrics not in self._encoded:
                self._encoded[openmetrics] = encode(self._families, openmetrics, self._unencoded)
                self._took_s = time.monotonic() - start
            return self._encoded[openmetrics]

    def _unencoded(self, name: str) -> None:
        self._errors.add(1, "encode")
        self._following.tell("encode", f"metric {name} cannot be encoded and is left out")

    def read(self, fresh_ns: int) -> bool:
        """Reads the counters if they are that old; returns whether it did."""
        with self.lock:
            now = self._stop.now()
            if self._closed or (self._read_ns is not None and now - self._read_ns < fresh_ns):
                return False
            # stamped before: what is counted while it reads belongs to the next reading
            self._read_ns = now
            for kept in self._following.on():
                self._following.attempt(kept, kept.view.read)
            self._following.survive(self._kstats.name, self._kstats.read)
            # made when somebody asks
            self._families = []
            return True

    def _made(self) -> Iterator[Metric]:
        # each of _CLASSES implements it
        views = cast("list[View]", [kept.view for kept in self._following.views])
        for view in (*views, self._kstats):
            found: list[Metric] = []
            if self._following.survive(view.name, functools.partial(_take, view, found)):
                yield from found
        yield from self._about_views()
        yield one("zfstune_exporter_scrape_seconds", self._took_s)
        yield self._errors.family()
        yield from own.families(self._host)

    def _about_views(self) -> Iterator[Metric]:
        missing, views = self._following.missing(), self._following.views
        up: dict[Labels, float] = {(kept.name,): float(kept.name not in missing) for kept in views}
        yield gauge("zfstune_trace_up", up)
        yield info("zfstune_trace_off_info", list(missing.items()))
        probes: dict[Labels, float] = {}
        for kept in self._following.on():
            hows = [probe.how for probe in kept.view.probes()]
            for how in ["kstat"] if kept.view.by_kstat else [] if kept.name in missing else hows:
                probes[kept.name, how] = probes.get((kept.name, how), 0.0) + 1
        yield gauge("zfstune_trace_probes", probes)
        for kept in views:
            for reason, number in kept.view.lost():
                self._lost.at_least(number, kept.name, reason)
        yield self._lost.family()
        ratios: dict[Labels, float] = {(n,): ratio for n, ratio in self._budget.ratios.items()}
        yield gauge("zfstune_trace_cost_ratio", ratios)
        yield one("zfstune_trace_budget_ratio", self._budget.share)

    # --- for the recorder: as Following has it

    def rows(self) -> dict[str, list[Json]]:
        with self.lock:
            return self._following.rows()

    def writes(self) -> list[Write]:
        """The writes of parameters since the last call, as they were counted."""
        with self.lock:
            found: list[Write] = []
            written = self._kstats.written
            self._following.survive(self._kstats.name, lambda: found.extend(written.taken()))
            return found

    def missing(self) -> dict[str, str]:
        with self.lock:
            return self._following.missing()

    def in_words(self) -> dict[str, str]:
        with self.lock:
            return self._following.in_words()

    def lost(self) -> dict[str, int]:
        with self.lock:
            return self._following.lost()

    def status(self) -> str:
        """What a person sees who asks for the state of the service."""
        missing = self.missing()
        off = "".join(f"; {name} is off: {why}" for name, why in missing.items())
        count = len(self._following.views)
        return f"{count - len(missing)} of {count} views count{off}"

    def failure(self) -> tuple[str, str] | None:
        """If no view could be opened: the first error, and its hint."""
        views = self._following.views
        failed = [kept.error for kept in views if kept.why not in ("", NO_POOL)]
        return failed[0] if failed and len(failed) == len(views) else None

    def close(self) -> None:
        """Detaches everything; scrapes get what was read last."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self._following.survive("cost", self._budget.close)
            self._following.close()
            self._following.survive(self._kstats.name, self._kstats.close)


def _percent(share: float) -> str:
    """format_percent(), with the digits that small budgets need: ``0.05 %``."""
    return format_percent(share) if share >= 0.001 else f"{100 * share:.2g} %"


def _take(view: View, into: list[Metric]) -> None:
    into.extend(view.families())
