"""The search for better values: the model's candidates first, then those that a sampler draws.

A study keeps them (ask and tell), so that a search can be stopped and continued, and shared by
hosts with equal facts. Scores are log ratios of the objective to the adjacent baseline: less is
better, 0 is the baseline.

Anything may be written into a shared study. So its contents are only proposals: the session tries
only values of its own parameters within its bounds, and its best candidate was measured here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from zfstune.errors import NotPossible, UsageError
from zfstune.experiment import samplers, statistics
from zfstune.experiment.model import Candidate
from zfstune.experiment.samplers import GRID, LOCAL, SAMPLERS, TPE
from zfstune.experiment.sharing import check_facts, short
from zfstune.experiment.space import Space
from zfstune.experiment.storage import failing, has_sqlite, losing
from zfstune.experiment.study import (
    COMPLETE,
    FAIL,
    PRUNED,
    RUNNING,
    WAITING,
    Entry,
    MemoryStudy,
    Study,
)
from zfstune.term.secrets import masked
from zfstune.tunables import catalogue, guard
from zfstune.tunables import values as sizes
from zfstune.tunables.guard import broken_by
from zfstune.tunables.names import (
    ACTIVE_MAX,
    ACTIVE_MIN,
    ASYNC_MAX,
    ASYNC_MIN,
    DELAY_MIN,
    DIRTY,
    SYNC_PERCENT,
    TXG_TIMEOUT,
    WRLOG,
)

# The part of a host's alpha in a study that a session may spend: later ones can still prove
# something
_ALPHA_SHARE = 0.8
# What a sampler varies where the session may: the queue's depth, and how much is dirty when a txg
# is synced. In eight simulated scenes the others did nothing beside these (docs/search.md)
_MATTER = frozenset((DIRTY, ASYNC_MAX, SYNC_PERCENT, TXG_TIMEOUT))
# Draws of known candidates before the space counts as exhausted.
_PATIENCE = 100
# How many dropped entries of others are reported one by one.
_MOST_SAID = 3

_COUPLED = (
    frozenset((DIRTY, WRLOG)),
    frozenset((ASYNC_MIN, ASYNC_MAX)),
    frozenset((SYNC_PERCENT, ACTIVE_MIN, ACTIVE_MAX, DELAY_MIN)),
)

Values = dict[str, int]
Key = frozenset[tuple[str, int]]


class Exhausted(Exception):
    """The sampler finds nothing new."""


class Searcher:
    """A study: ask() for a candidate, measure it, tell() its score (or prune() or fail() it).

    first: candidates to try before any is drawn. sampler: one of samplers.SAMPLERS. storage: a file
    (SQLite), any URL that Optuna accepts, or None for memory. study: its name there. facts: the
    conditions for sharing scores, see sharing.sharing_facts(). say gets a line when entries of
    others in the study are dropped. vary: the parameters that a sampler
    varies, if it is not the grid.

    Raises UsageError for an unknown sampler, or a study that exists while resume is false,
    NotPossible when a package or the storage is missing, CommandError when the study has other
    facts. Methods that ask or tell raise storage.StorageLost when the storage fails later.
    """

    def __init__(
        self,
        space: Space,
        current: Mapping[str, int],
        host_facts: guard.Facts,
        *,
        first: Sequence[Candidate] = (),
        sampler: str = LOCAL,
        seed: int | None = None,
        storage: str | None = None,
        study: str = "zfstune",
        facts: Mapping[str, str] | None = None,
        resume: bool = False,
        say: Callable[[str], None] = lambda _: None,
        vary: Collection[str] = _MATTER,
    ) -> None:
        self._space, self._now, self._host_facts = space, dict(current), host_facts
        self._kind, self._owner = sampler, socket.gethostname()
        self._bounds = space.bounds()
        self._where, self._say, self.dropped = storage, say, 0
        self._first = [candidate.values for candidate in first]
        self._scores: dict[Key, tuple[Candidate, float]] = {}
        self._tried: set[Key] = set()
        self._turn_of_others = True
        self._by_optuna = by_optuna(storage, sampler)
        with failing(storage), self._silent():
            _exists(storage, study, sampler, resume)
            self._study = _opened(storage, study, sampler, space, seed)
        with self._talking():
            check_facts(self._study, study, dict(facts or {}))
            done = len(self._study.entries())
            # so that a resumed search does not draw the same again
            again = None if seed is None else seed + done
            # a grid goes on by leaving out what is known
            self._draw_point = samplers.sampler(sampler, space, seed if sampler == GRID else again)
        self._fixed = self._not_in(vary)
        if resume:
            self._take_up()
        if not done:
            for candidate in first:
                self._enqueue(candidate)

    def waiting(self) -> int:
        """How many candidates wait to be tried before any is drawn."""
        with self._talking():
            return len(self._study.entries(WAITING))

    def alpha(self) -> float:
        """The probability of a false `better` that this session may spend: part of what sessions of
        this host on this study have left of it."""
        with self._talking():
            left = statistics.ALPHA - self._study.spent(self._owner)
        # others may have written that
        return _ALPHA_SHARE * min(statistics.ALPHA, max(0.0, left))

    def spend(self, alpha: float) -> None:
        """Takes it from what is left, or gives it back."""
        with self._talking():
            self._study.spend(self._owner, alpha)

    def ask(self) -> Candidate:
        """The next candidate to measure. Raises Exhausted."""
        with self._talking():
            # in turns, so that made-up scores in the study cannot choose all
            elsewhere = self._best_elsewhere() if self._turn_of_others else None
            self._turn_of_others = elsewhere is None
            candidate = elsewhere or self._next()
        self._tried.add(_key(candidate))
        return candidate

    def _next(self) -> Candidate:
        for _ in range(_PATIENCE):
            try:
                entry = self._draw()
            except (ValueError, TypeError, ArithmeticError) as error:
                # Optuna, about an entry that others have queued
                self._drop(str(error))
                continue
            candidate = self._candidate(entry)
            if candidate is None:
                self._drop(f"trial {entry.number} does not fit this session")
                self._study.tell(entry.number, FAIL)
                continue
            known = self._known(candidate.values)
            if not candidate.values:
                self._study.tell(entry.number, COMPLETE, 0.0)
            elif self._illegal(candidate.values):
                self._study.tell(entry.number, PRUNED)
            elif known is not None:
                self._study.tell(entry.number, COMPLETE, known)
            elif self._running(candidate):
                self._study.tell(entry.number, FAIL)
            else:
                return candidate
        raise Exhausted

    def _best_elsewhere(self) -> Candidate | None:
        """The best untried candidate of other sessions, if it looks better than any here. Its
        score may be made up."""
        best = self.best()
        limit = min(0.0, best[1] if best else 0.0)
        found = None
        for entry in self._study.entries(COMPLETE):
            candidate = self._read(entry)
            if candidate and candidate.values and _key(candidate) not in self._tried:
                score = entry.score
                legal = not self._illegal(candidate.values)
                if score is not None and -math.inf < score < limit and legal:
                    found, limit = candidate, score
        # without the entry, which has a score already
        return found and replace(found, trial=-1)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        if self.dropped <= _MOST_SAID or self.dropped % _PATIENCE == 0:
            self._say(f"dropped from the study, {self.dropped} so far: {short(why)}")

    def tell(self, candidate: Candidate, score: float) -> None:
        """Records a score: log(objective / baseline)."""
        self._scores.setdefault(_key(candidate), (candidate, score))
        if candidate.trial < 0:
            return
        with self._talking():
            self._study.tell(candidate.trial, COMPLETE, score)

    def prune(self, candidate: Candidate, why: str) -> None:
        """Records that a guardrail stopped the candidate: the search avoids its region."""
        self._end(candidate, why, PRUNED)

    def fail(self, candidate: Candidate, why: str) -> None:
        """Records that the candidate could not be measured: it may be drawn again."""
        self._end(candidate, why, FAIL)

    def _end(self, candidate: Candidate, why: str, state: str) -> None:
        if candidate.trial < 0:
            return
        with self._talking():
            self._study.note(candidate.trial, {"why": why})
            self._study.tell(candidate.trial, state)

    def told(self) -> list[tuple[Candidate, float]]:
        """The candidates that this session measured, with scores, best first; of equal values only
        the first."""
        return sorted(self._scores.values(), key=lambda pair: pair[1])

    def best(self) -> tuple[Candidate, float] | None:
        """The best candidate so far, with its score; None without one."""
        return next(iter(self.told()), None)

    def close(self) -> None:
        """Releases the storage's connections."""
        self._study.close()

    def _silent(self) -> contextlib.AbstractContextManager[None]:
        return _quiet(self._by_optuna)

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        with losing(self._where), self._silent():
            yield

    def _draw(self) -> Entry:
        """The first that waits, or a new one."""
        return self._study.take() or self._drawn(self._fixed)

    def _not_in(self, vary: Collection[str]) -> dict[str, float]:
        """The current values of knobs that a sampler leaves alone: those that are not named, if any
        other is left."""
        now = self._space.point({})
        fixed = {k.name: now[k.name] for k in self._space.knobs if k.name not in vary}
        return fixed if len(fixed) < len(self._space.knobs) else {}

    def _drawn(self, held: Mapping[str, float]) -> Entry:
        if self._kind == TPE:
            # only an OptunaStudy has this sampler
            found: Entry = self._study.draw(held)  # type: ignore[attr-defined]
            return found
        point = self._draw_point(self._told_points(), held)
        if point is None:
            raise Exhausted
        self._study.enqueue(point, {})
        entry = self._study.take()
        if entry is None:
            # another host has just taken it
            raise ValueError("an entry was taken by another host")
        return entry

    def _told_points(self) -> list[tuple[dict[str, float], float]]:
        """The points that have scores, from wherever, each values once."""
        found: dict[str, tuple[dict[str, float], float]] = {}
        for entry in self._study.entries(COMPLETE):
            score = entry.score
            if score is not None and math.isfinite(score) and self._inside(entry.point):
                values = repr(sorted(self._space.values(entry.point).items()))
                found.setdefault(values, (dict(entry.point), score))
        return list(found.values())

    def _inside(self, point: Mapping[str, Any]) -> bool:
        return all(
            isinstance(value := point.get(knob.name), (int, float))
            and knob.low <= value <= knob.high
            for knob in self._space.knobs
        )

    def _candidate(self, entry: Entry) -> Candidate | None:
        """The candidate of an entry: the exact values of a queued one, else of the drawn point.
        None if this session may not try it."""
        if "values" in entry.attributes:
            self._study.note(entry.number, {"owner": self._owner})
            return self._read(entry)
        if not self._inside(entry.point):
            return None
        values = self._space.values(entry.point)
        values = {n: v for n, v in values.items() if v != self._now.get(n)}
        reasons = {n: self._reason(n) for n in values}
        candidate = Candidate(values, self._kind, reasons, entry.number)
        self._study.note(entry.number, _attributes(candidate, self._owner))
        return candidate

    def _read(self, entry: Entry) -> Candidate | None:
        """The candidate in an entry, whoever wrote it; None if its values do not fit this
        session."""
        said = entry.attributes
        values: Any
        values, reasons = said.get("values"), said.get("reasons")
        if not self._space.has(values):
            # return our own: 4.0 would be equal to 4, too
            values = next((own for own in self._first if own and own == values), None)
            if values is None:
                return None
        reasons = reasons if isinstance(reasons, dict) else {}
        why = {name: short(reasons[name]) for name in values if name in reasons}
        return Candidate(dict(values), short(said.get("source")), why, entry.number)

    def _reason(self, name: str) -> str:
        show = functools.partial(sizes.short, unit=catalogue.load()[name].unit)
        low, high = map(show, self._bounds[name])
        how = "on the grid" if self._kind == GRID else f"drawn by {self._kind}"
        return f"{how} from {low} to {high} (now {show(self._now[name])})"

    def _illegal(self, values: Values) -> bool:
        return bool(broken_by(values, self._now, self._host_facts))

    def _known(self, values: Values) -> float | None:
        for entry in self._study.entries(COMPLETE):
            score = entry.score
            finite = score is not None and math.isfinite(score)
            if finite and entry.attributes.get("values") == values:
                return score
        return None

    def _running(self, candidate: Candidate) -> bool:
        return any(
            entry.attributes.get("values") == candidate.values
            for entry in self._study.entries(RUNNING, PRUNED)
            if entry.number != candidate.trial
        )

    def _enqueue(self, candidate: Candidate) -> None:
        with self._talking():
            point = self._space.point(candidate.values)
            self._study.enqueue(point, _attributes(candidate, self._owner))

    def _take_up(self) -> None:
        """Queues the trial again that was running when this host was stopped."""
        with self._talking():
            for entry in self._study.entries(RUNNING):
                if entry.attributes.get("owner") == self._owner:
                    self._study.tell(entry.number, FAIL)
                    candidate = self._read(entry)
                    if candidate and candidate.values:
                        self._enqueue(candidate)


def ablation(
    candidate: Candidate, current: Mapping[str, int], facts: guard.Facts
) -> list[tuple[tuple[str, ...], Candidate]]:
    """A candidate with one parameter back at the baseline, for each parameter, as (names that went
    back, the rest); with coupled ones if one cannot go alone. Empty if nothing would be left."""
    out: list[tuple[tuple[str, ...], Candidate]] = []
    for name in candidate.values:
        gone = _together(name, candidate.values, current, facts)
        left = {n: v for n, v in candidate.values.items() if n not in gone}
        if not left or any(set(gone) == set(names) for names, _ in out):
            continue
        reasons = {n: candidate.reasons.get(n, "") for n in left}
        out.append((gone, Candidate(left, "ablation", reasons)))
    return out


def _together(
    name: str, values: Mapping[str, int], current: Mapping[str, int], facts: guard.Facts
) -> tuple[str, ...]:
    group = next((group for group in _COUPLED if name in group), frozenset((name,)))
    coupled = tuple(n for n in values if n in group)
    if name in (DIRTY, WRLOG):
        return coupled
    alone = {n: v for n, v in values.items() if n != name}
    return coupled if broken_by(alone, current, facts) else (name,)


def require(
    storage: str | None, study: str, facts: Mapping[str, str], *, sampler: str, resume: bool
) -> None:
    """Raises what Searcher() would, before a session measures anything; creates no study."""
    with failing(storage), _quiet(by_optuna(storage, sampler)):
        if _exists(storage, study, sampler, resume):
            kept = _opened(storage, study, sampler)
            try:
                check_facts(kept, study, dict(facts))
            finally:
                kept.close()


def default_sampler(storage: str | None) -> str:
    """TPE where Optuna is, since it finds more on noisy hosts (docs/search.md), else LOCAL; so is
    one that continues a study that was begun without Optuna."""
    ours = _writer(storage) == "zfstune"
    return LOCAL if ours or not has_optuna() else TPE


def _writer(storage: str | None) -> str:
    """Who has written it, as file_study.writer() says; "" for memory."""
    if not storage or not has_sqlite():
        return ""
    from zfstune.experiment import file_study

    return file_study.writer(storage)


def has_optuna() -> bool:
    """Whether this Python has it; does not load it."""
    return importlib.util.find_spec("optuna") is not None


def by_optuna(storage: str | None, sampler: str) -> bool:
    """Whether Optuna keeps the study. Raises NotPossible when it does and is not there, UsageError
    for an unknown sampler or a file that Optuna cannot continue."""
    if sampler not in SAMPLERS:
        raise UsageError(f"no sampler {sampler!r}", f"choose from {', '.join(SAMPLERS)}")
    writer = _writer(storage)
    why = ""
    if sampler == TPE:
        why = "--sampler tpe"
    elif storage and "://" in storage:
        why = "--storage with a URL"
    elif writer == "optuna":
        why = f"the study in {masked(storage or '')}, which Optuna wrote,"
    if why and writer == "zfstune":
        raise UsageError(
            f"--sampler {sampler} cannot continue the study in {masked(storage or '')}: it was "
            "begun without Optuna",
            f"use --sampler {LOCAL}, or begin anew with another --out",
        )
    if why and not has_optuna():
        raise NotPossible(
            f"{why} needs optuna: {sys.executable} has none",
            "run `pip install optuna` for that Python, or begin anew without it",
        )
    return bool(why)


def _opened(
    storage: str | None,
    name: str,
    sampler: str,
    space: Space | None = None,
    seed: int | None = None,
) -> Study:
    if not by_optuna(storage, sampler):
        if not storage:
            return MemoryStudy()
        from zfstune.experiment.file_study import FileStudy

        return FileStudy(storage, name)
    from zfstune.experiment.optuna_study import OptunaStudy

    return OptunaStudy(storage, name, space.knobs if space else (), seed)


def _exists(storage: str | None, name: str, sampler: str, resume: bool) -> bool:
    """Raises UsageError if it exists and resume is false."""
    if by_optuna(storage, sampler):
        from zfstune.experiment import optuna_study

        found = optuna_study.names(storage)
    elif storage:
        from zfstune.experiment import file_study

        found = file_study.names(storage)
    else:
        found = set()
    if name in found and not resume:
        raise UsageError(
            f"study {name} already exists in {masked(storage or '')}",
            "continue it with --resume DIR, or use another --study",
        )
    return name in found


def _attributes(candidate: Candidate, owner: str) -> dict[str, Any]:
    return {
        "values": candidate.values,
        "source": candidate.source,
        "reasons": candidate.reasons,
        "owner": owner,
    }


def _key(candidate: Candidate) -> Key:
    return frozenset(candidate.values.items())


@contextlib.contextmanager
def _quiet(optunas: bool) -> Iterator[None]:
    if not optunas:
        yield
        return
    from zfstune.experiment import optuna_study

    with optuna_study.quiet():
        yield
