"""Which views are on: opened, closed and tried again as the host changes and traces fail.

Nothing is attached while ZFS is not loaded or no pool is imported, so that the module can be
unloaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zfstrace.errors import Hinted, LibraryMissing, NoPrivilege, NotSupported, NoZfs
from zfstrace.types import Json
from zfstune.errors import in_one_line
from zfstune.record.traced import Attach, Traced
from zfstune.term.log import say
from zfstune.term.units import format_span
from zfstune.trace.live import say_waits

# Why a view is off
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
_NONE = ("", "")
# What fails beside views
HOST = "host"


@dataclass
class Kept:
    """A view, and why it is off: "" if it is on. It is tried again at retry_ns."""

    view: Traced[Any]
    why: str = NO_ZFS
    retry_ns: int = 0
    # the error because of which it is off, and its hint
    error: tuple[str, str] = _NONE
    # what was said of a session that goes on
    said: str = ""

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def on(self) -> bool:
        return not self.why

    def lacks(self, loaded: bool, pools: bool) -> str:
        """Why there is nothing that it could attach to now, "" if there is."""
        if not loaded:
            return NO_ZFS
        free = self.view.lasting or self.view.only_kstat
        return "" if pools or free else NO_POOL


class Following:
    """The named views of a host, for one thread at a time. made makes one, instead maps a view to
    the one that takes its place where the system does not have it, and errors gets a number of
    errors of a view or another part."""

    def __init__(
        self,
        attach: Attach,
        made: Callable[[str], Traced[Any]],
        names: Sequence[str],
        instead: Mapping[str, str] | None = None,
        errors: Callable[[int, str], None] = lambda _number, _what: None,
    ) -> None:
        self._host, self._stop = attach.host, attach.stop
        self._made, self._instead, self._errors = made, dict(instead or {}), errors
        self.views = [Kept(made(name)) for name in names]
        self._module, self._loaded, self._pools = "", False, False
        self._said: dict[str, str] = {}

    def on(self) -> list[Kept]:
        return [kept for kept in self.views if kept.on]

    # --- each second

    def tick(self) -> None:
        """Follows the host, and lets the views do what is due. Raises nothing."""
        self.survive(HOST, self._follow)
        if not self.survive(HOST, self._host.tick):
            # one of its traces cannot go on: which?
            for kept in self.on():
                self.attempt(kept, kept.view.tick_session)
        for kept in self.on():
            self.attempt(kept, kept.view.tick)
            self._notice(kept)

    def _follow(self) -> None:
        """Closes what has lost its module or all pools, and opens what can be opened."""
        loaded, module = self._host.loaded(), self._host.parameters().identity()
        pools = bool(self._host.pools())
        anew, first = module != self._module, pools and not self._pools
        self._module, self._loaded, self._pools = module, loaded, pools
        waits = ""
        for kept in self.views:
            lacking = kept.lacks(loaded, pools)
            if kept.on and not kept.view.lasting and (anew or lacking):
                self.off(kept, lacking or NO_ZFS)
            elif (anew or first) and not kept.on and kept.why != BUDGET:
                kept.retry_ns = 0
            if kept.on:
                if kept.view.instead_of and self._stop.now() >= kept.retry_ns:
                    self._attach(kept)
                continue
            if lacking and kept.why in (NO_ZFS, NO_POOL):
                kept.why = waits = lacking
                kept.error = _NONE
            elif not lacking and self._stop.now() >= kept.retry_ns:
                self._open(kept)
        self._tell_of(waits)

    def _tell_of(self, waits: str) -> None:
        """Says what views wait for, once for all."""
        text = ""
        if waits == NO_ZFS:
            text = f"ZFS is not loaded: waiting for it; run `{self._host.parameters().loading()}`"
        elif waits:
            text = "no pool is imported: waiting for one"
        self.tell("waits", text)

    def _open(self, kept: Kept) -> None:
        try:
            kept.view.open()
        except Exception as error:
            other = self._instead.get(kept.name)
            if isinstance(error, NotSupported) and other:
                say(f"view {kept.name} is not possible here: {error}; tracing {other} instead")
                kept.view = self._made(other)
                self._errors(0, other)
                self._open(kept)
                return
            self._fail(kept, error)
            return
        kept.why, kept.error = "", _NONE
        kept.retry_ns = self._stop.now() + kept.view.retry_ns
        self._said.pop(kept.name, None)
        if not kept.view.instead_of:  # which _notice() says
            self._say_how(kept)

    def _attach(self, kept: Kept) -> None:
        """Attaches a view that kstats serve meanwhile."""
        kept.retry_ns = self._stop.now() + kept.view.retry_ns
        try:
            kept.view.attach()
        except Exception as error:
            if kept.view.session is None:
                self._fail(kept, error)
            else:
                kept.view.instead_of = in_one_line(error)
            return
        self._say_how(kept)

    def _say_how(self, kept: Kept) -> None:
        how = "by kstats" if kept.view.by_kstat else _attached(kept.view)
        say(f"view {kept.name}: {how}")

    def off(self, kept: Kept, why: str, retry_ns: int = 0) -> None:
        """Closes a view; what it has counted stays."""
        kept.why, kept.retry_ns = why, retry_ns
        self.survive(kept.name, kept.view.close)

    def close(self) -> None:
        """Detaches all."""
        if not all(kept.view.by_kstat for kept in self.on()):
            self.survive(HOST, functools.partial(say_waits, self._host))
        for kept in self.on():
            self.off(kept, "closed")

    # --- failures

    def attempt(self, kept: Kept, call: Callable[[], Any]) -> Any:
        """What a call of a view returns; None after a failure, and then the view is off."""
        try:
            return call()
        except Exception as error:
            self._fail(kept, error)
            return None

    def _fail(self, kept: Kept, error: Exception) -> None:
        why = next((why for kind, why in _WHY if isinstance(error, kind)), ERROR)
        self._errors(1, kept.name)
        text = in_one_line(error)
        kept.error = (str(error), error.hint) if isinstance(error, Hinted) else (text, "")
        # the traceback would keep a session alive that Host.tick() then ticks
        error.__traceback__ = None
        self.off(kept, why, self._stop.now() + kept.view.retry_ns)
        again = format_span(kept.view.retry_ns)
        self.tell(kept.name, f"view {kept.name} is off: {text}; it is tried again in {again}")

    def _notice(self, kept: Kept) -> None:
        """Counts and says what a session lacks that goes on."""
        problem = kept.view.problem
        if problem != kept.said:
            kept.said = problem
            if problem:
                self._errors(1, kept.name)
                say(f"view {kept.name}: {problem}")

    def survive(self, what: str, call: Callable[[], Any]) -> bool:
        """Whether a call succeeded; a failure is counted, and said once."""
        try:
            call()
        except Exception as error:
            self._errors(1, what)
            self.tell(what, f"{what}: {in_one_line(error)}")
            error.__traceback__ = None
            return False
        return True

    def tell(self, what: str, text: str) -> None:
        """Says something that is not what it said last."""
        if self._said.get(what, "") != text:
            self._said[what] = text
            if text:
                say(text)

    # --- what is known

    def rows(self) -> dict[str, list[Json]]:
        """What each view has counted since the last call, as `trace --json` has it. A view that is
        off and has counted nothing is left out: it does not know that there was nothing."""
        found: dict[str, list[Json]] = {}
        for kept in self.views:
            rows = self.attempt(kept, kept.view.rows)
            if rows or (kept.on and rows is not None):
                found[kept.name] = [row.to_json() for row in rows]
        return found

    def why(self, kept: Kept) -> str:
        """Why it counts nothing: also a session that waits for a pool."""
        if kept.on and kept.view.waiting:
            if kept.view.problem:
                return ERROR
            return NO_POOL if self._loaded else NO_ZFS
        return kept.why

    def missing(self) -> dict[str, str]:
        """The views that count nothing, and why, as a label."""
        return {kept.name: why for kept in self.views if (why := self.why(kept))}

    def in_words(self) -> dict[str, str]:
        """The same for a person."""
        return {kept.name: _words(kept, why) for kept in self.views if (why := self.why(kept))}

    def lost(self) -> dict[str, int]:
        """How much each view could not count, since the process began."""
        return {kept.name: kept.view.losses().lost for kept in self.views}


def _words(kept: Kept, why: str) -> str:
    problem = kept.view.problem if kept.on else "; ".join(filter(None, kept.error))
    return problem or _MEANING.get(why, why)


def _attached(view: Traced[Any]) -> str:
    probes = view.probes()
    there = sum(not probe.missing for probe in probes)
    return f"{there} of {len(probes)} probes attached"
