"""All views together: opened, closed and tried again as the host changes, and encoded for scrapes.

The main thread calls tick() each second. Threads of the server call encoded(): the first of a
second reads the counters, the others get what it got, so that a thousand scrapers cost one reading.
One lock guards all of it, since a session of libzfstrace is for one thread at a time.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from prometheus_client.core import Metric

from zfstrace.errors import Hinted, LibraryMissing, NoPrivilege, NotSupported, NoZfs
from zfstrace.types import Json
from zfstune.errors import in_one_line
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
from zfstune.record.traced import Traced
from zfstune.term.log import say
from zfstune.term.units import SECOND, format_percent, format_span

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
PARTS = ("host", "cost", "encode", KSTAT)

# How old the counters may be that a scrape gets
_FRESH_NS = SECOND

NO_ZFS, NO_POOL, BUDGET, ERROR = "no_zfs", "no_pool", "budget", "error"
_WHY: tuple[tuple[type[Exception], str], ...] = (
    (NoPrivilege, "privilege"),
    (NoZfs, NO_ZFS),
    (NotSupported, "not_supported"),
    (LibraryMissing, "library"),
)
_MEANING = {
    NO_ZFS: "ZFS is not loaded",
    NO_POOL: "no pool is imported",
    BUDGET: "above the budget",
}


def view_named(name: str, setup: Setup) -> Traced[Any]:
    """A view, which is not open yet."""
    return {view.name: view for view in _CLASSES}[name](setup)


@dataclass
class Kept:
    """A view, and why it is off: "" if it is on. It is tried again at retry_ns."""

    view: Traced[Any]
    why: str = NO_ZFS
    retry_ns: int = 0
    # the error because of which it is off, and its hint
    error: tuple[str, str] = ("", "")
    # what was said of a session that goes on
    said: str = ""

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def on(self) -> bool:
        return not self.why

    def waits_for(self, loaded: bool, pools: bool) -> str:
        """Why there is nothing that it could attach to now, "" if there is."""
        if not loaded:
            return NO_ZFS
        free = self.view.lasting or self.view.only_kstat
        return "" if pools or free else NO_POOL


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
        self._setup, self._host, self._stop = setup, setup.host, setup.stop
        self.lock = threading.RLock()
        self._kstats = kstats or KstatView(setup)
        self._views = [Kept(view_named(name, setup)) for name in views]
        self._instead = dict(instead or {})
        self._budget = Budget(budget)
        self._module = ""
        self._said: dict[str, str] = {}
        self._errors = Counters("zfstune_exporter_errors_total")
        self._lost = Counters("zfstune_trace_lost_total")
        self._took_s: float | None = None
        self._read_ns: int | None = None
        self._families: list[Metric] = []
        self._encoded: dict[bool, tuple[bytes, str]] = {}
        self._closed = False
        for what in (*PARTS, *(kept.name for kept in self._views)):
            self._errors.add(0, what)

    # --- each second

    def tick(self) -> None:
        """Follows the host, and lets the views do what is due. Raises nothing."""
        with self.lock:
            if self._closed:
                return
            self._try("host", self._follow)
            if not self._try("host", self._host.tick):
                # one of its traces cannot go on: which?
                for kept in self._on():
                    self._attempt(kept, kept.view.tick_session)
            for kept in self._on():
                self._attempt(kept, kept.view.tick)
                self._notice(kept)
            self._try(self._kstats.name, self._kstats.tick)
            self._try("cost", self._keep_budget)

    def _on(self) -> list[Kept]:
        return [kept for kept in self._views if kept.on]

    def _follow(self) -> None:
        """Closes what has lost its module or all pools, and opens what can be opened."""
        loaded, module = self._host.loaded(), self._host.parameters().identity()
        pools = bool(self._host.pools())
        anew, self._module = module != self._module, module
        for kept in self._views:
            lacking = kept.waits_for(loaded, pools)
            if kept.on and not kept.view.lasting and (anew or lacking):
                self._off(kept, lacking or NO_ZFS)
            elif anew and not kept.on and kept.why != BUDGET:
                kept.retry_ns = 0
            if kept.on:
                continue
            if lacking and kept.why in (NO_ZFS, NO_POOL):
                kept.why = lacking
                self._tell(kept.name, f"view {kept.name} waits: {_MEANING[lacking]}")
            elif not lacking and self._stop.now() >= kept.retry_ns:
                self._open(kept)

    def _open(self, kept: Kept) -> None:
        try:
            kept.view.open()
        except Exception as error:
            other = self._instead.get(kept.name)
            if isinstance(error, NotSupported) and other:
                kept.view = view_named(other, self._setup)
                self._errors.add(0, other)
                self._open(kept)
                return
            self._fail(kept, error)
            return
        kept.why = ""
        self._said.pop(kept.name, None)
        how = "by kstats" if kept.view.by_kstat else _attached(kept.view)
        say(f"view {kept.name}: {how}")

    def _off(self, kept: Kept, why: str, retry_ns: int = 0) -> None:
        """Closes a view; its sums stay."""
        kept.why, kept.retry_ns = why, retry_ns
        self._try(kept.name, kept.view.close)

    # --- failures

    def _attempt(self, kept: Kept, call: Callable[[], Any]) -> Any:
        """What a call of a view returns; None after a failure, and then the view is off."""
        try:
            return call()
        except Exception as error:
            self._fail(kept, error)
            return None

    def _fail(self, kept: Kept, error: Exception) -> None:
        why = next((why for kind, why in _WHY if isinstance(error, kind)), ERROR)
        self._errors.add(1, kept.name)
        text = in_one_line(error)
        kept.error = (str(error), error.hint) if isinstance(error, Hinted) else (text, "")
        # the traceback would keep a session alive that Host.tick() then ticks
        error.__traceback__ = None
        self._off(kept, why, self._stop.now() + kept.view.retry_ns)
        again = format_span(kept.view.retry_ns)
        self._tell(kept.name, f"view {kept.name} is off: {text}; it is tried again in {again}")

    def _notice(self, kept: Kept) -> None:
        """Counts and says what a session lacks that goes on."""
        problem = kept.view.problem
        if problem != kept.said:
            kept.said = problem
            if problem:
                self._errors.add(1, kept.name)
                say(f"view {kept.name}: {problem}")

    def _try(self, what: str, call: Callable[[], Any]) -> bool:
        """Whether a call succeeded; a failure is counted, and said once."""
        try:
            call()
        except Exception as error:
            self._errors.add(1, what)
            self._tell(what, f"{what}: {in_one_line(error)}")
            error.__traceback__ = None
            return False
        return True

    def _tell(self, what: str, text: str) -> None:
        """Says something that is not what it said last."""
        if self._said.get(what) != text:
            self._said[what] = text
            say(text)

    def expect_errors(self, *what: str) -> None:
        """Shows what may fail before it does."""
        with self.lock:
            for part in what:
                self._errors.add(0, part)

    def survive(self, what: str, call: Callable[[], Any]) -> None:
        """Calls another part of the exporter, which asks the same host; its failure is counted, and
        said once."""
        with self.lock:
            self._try(what, call)

    def count_error(self, what: str) -> None:
        """Counts a failure of another part of the exporter."""
        with self.lock:
            self._errors.add(1, what)

    # --- the budget

    def _keep_budget(self) -> None:
        sessions = {kept.name: kept.view.session for kept in self._on() if not kept.view.by_kstat}
        gone = self._budget.tick(self._stop.now(), sessions)
        for kept in self._on():
            if kept.name in gone:
                cost, share = _percent(self._budget.cost), _percent(self._budget.share)
                say(f"view {kept.name} is off: tracing costs {cost} of a CPU, --budget is {share}")
                self._off(kept, BUDGET, self._stop.now() + AGAIN_NS)

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
        self._tell("encode", f"metric {name} cannot be encoded and is left out")

    def read(self, fresh_ns: int) -> bool:
        """Reads the counters if they are that old; returns whether it did."""
        with self.lock:
            now = self._stop.now()
            if self._closed or (self._read_ns is not None and now - self._read_ns < fresh_ns):
                return False
            # stamped before: what is counted while it reads belongs to the next reading
            self._read_ns = now
            for kept in self._on():
                self._attempt(kept, kept.view.read)
            self._try(self._kstats.name, self._kstats.read)
            # made when somebody asks
            self._families = []
            return True

    def _made(self) -> Iterator[Metric]:
        # each of _CLASSES implements it
        views = cast("list[View]", [kept.view for kept in self._views])
        for view in (*views, self._kstats):
            found: list[Metric] = []
            if self._try(view.name, functools.partial(_take, view, found)):
                yield from found
        yield from self._about_views()
        yield one("zfstune_exporter_scrape_seconds", self._took_s)
        yield self._errors.family()
        yield from own.families(self._host)

    def _about_views(self) -> Iterator[Metric]:
        why = {kept.name: self._why(kept) for kept in self._views}
        up: dict[Labels, float] = {(name,): float(not off) for name, off in why.items()}
        yield gauge("zfstune_trace_up", up)
        yield info("zfstune_trace_off_info", [(name, off) for name, off in why.items() if off])
        probes: dict[Labels, float] = {}
        for kept in self._on():
            hows = [probe.how for probe in kept.view.probes()]
            for how in ["kstat"] if kept.view.by_kstat else [] if why[kept.name] else hows:
                probes[kept.name, how] = probes.get((kept.name, how), 0.0) + 1
        yield gauge("zfstune_trace_probes", probes)
        for kept in self._views:
            for reason, number in kept.view.lost():
                self._lost.at_least(number, kept.name, reason)
        yield self._lost.family()
        ratios: dict[Labels, float] = {(n,): ratio for n, ratio in self._budget.ratios.items()}
        yield gauge("zfstune_trace_cost_ratio", ratios)
        yield one("zfstune_trace_budget_ratio", self._budget.share)

    def _why(self, kept: Kept) -> str:
        """Why it counts nothing: also a session that waits for a pool."""
        if kept.on and kept.view.waiting:
            if kept.view.problem:
                return ERROR
            return NO_POOL if self._host.loaded() else NO_ZFS
        return kept.why

    # --- for the recorder

    def rows(self) -> dict[str, list[Json]]:
        """What each view has counted since the last call, as `trace --json` has it. A view that is
        off and has counted nothing is left out: it does not know that there was nothing."""
        with self.lock:
            found: dict[str, list[Json]] = {}
            for kept in self._views:
                rows = self._attempt(kept, kept.view.rows)
                if rows or (kept.on and rows is not None):
                    found[kept.name] = [row.to_json() for row in rows]
            return found

    def writes(self) -> list[Write]:
        """The writes of parameters since the last call, as they were counted."""
        with self.lock:
            found: list[Write] = []
            self._try(self._kstats.name, lambda: found.extend(self._kstats.written.taken()))
            return found

    def missing(self) -> dict[str, str]:
        """The views that count nothing, and why, as a label."""
        with self.lock:
            return {kept.name: why for kept in self._views if (why := self._why(kept))}

    def off(self) -> dict[str, str]:
        """The same for a person."""
        with self.lock:
            views = {kept.name: kept for kept in self._views}
            return {name: _in_words(views[name], why) for name, why in self.missing().items()}

    def losses(self) -> dict[str, int]:
        """How much each view could not count, since the process began."""
        with self.lock:
            return {kept.name: kept.view.losses().lost for kept in self._views}

    def status(self) -> str:
        """What a person sees who asks for the state of the service."""
        missing = self.missing()
        off = "".join(f"; {name} is off: {why}" for name, why in missing.items())
        return f"{len(self._views) - len(missing)} of {len(self._views)} views count{off}"

    def failure(self) -> tuple[str, str] | None:
        """If no view could be opened: the first error, and its hint."""
        failed = [kept.error for kept in self._views if kept.why not in ("", NO_POOL)]
        return failed[0] if failed and len(failed) == len(self._views) else None

    def close(self) -> None:
        """Detaches everything; scrapes get what was read last."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self._try("cost", self._budget.close)
            for kept in self._views:
                if kept.on:
                    self._off(kept, "closed")
            self._try(self._kstats.name, self._kstats.close)


def _percent(share: float) -> str:
    """format_percent(), with the digits that small budgets need: ``0.05 %``."""
    return format_percent(share) if share >= 0.001 else f"{100 * share:.2g} %"


def _in_words(kept: Kept, why: str) -> str:
    """Why a view counts nothing."""
    problem = kept.view.problem if kept.on else "; ".join(filter(None, kept.error))
    return _MEANING.get(why) or problem or why


def _take(view: View, into: list[Metric]) -> None:
    into.extend(view.families())


def _attached(view: Traced[Any]) -> str:
    probes = view.probes()
    there = sum(not probe.missing for probe in probes)
    return f"{there} of {len(probes)} probes attached"
