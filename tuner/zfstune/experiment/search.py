"""The search for better values: the model's candidates first, then those that a sampler draws.

Optuna keeps the study (ask and tell), so it can be stopped, resumed, and shared by hosts with equal
facts. Scores are log ratios of the objective to the adjacent baseline: less is better, 0 is the
baseline.

Anything may be written into a shared study. So its contents are only proposals: the session tries
only values of its own parameters within its bounds, and its best candidate was measured here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
import os
import random
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from zfstrace.printable import printable
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.experiment.model import Candidate
from zfstune.experiment.space import Knob, Space
from zfstune.experiment.storage import failing, losing, opened
from zfstune.term.secrets import masked
from zfstune.term.units import format_size
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
    WRLOG,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import optuna

SAMPLERS = ("tpe", "random", "grid")

# TPE draws at random for this many trials, the model's candidates included.
_STARTUP = 6
# Trials for which the slow parameters stay while the others are searched.
_HOLD = 6
# Draws of known candidates before the space counts as exhausted.
_PATIENCE = 100
# How many dropped entries of others are reported one by one, and how long their texts may be.
_MOST_SAID = 3
_MOST_TEXT = 500
# Sizes of two baselines that differ by less count as the same.
_SAME_SIZE = 0.01
# Levels of the first, the second ... parameter of a grid; it has no more parameters.
_GRID = (5, 4, 2, 3, 2)

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

    first: candidates to try before any is drawn. storage: a file (SQLite), any URL that Optuna
    accepts, or None for memory. study: its name there. facts: the conditions for sharing scores,
    see sharing_facts(). say gets a line when entries of others in the study are dropped.

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
        sampler: str = "tpe",
        seed: int | None = None,
        storage: str | None = None,
        study: str = "zfstune",
        facts: Mapping[str, str] | None = None,
        resume: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._space, self._now, self._host_facts = space, dict(current), host_facts
        self._kind, self._owner = sampler, socket.gethostname()
        self._bounds = space.bounds()
        self._where, self._say, self.dropped = storage, say, 0
        self._first = [candidate.values for candidate in first]
        self._scores: dict[Key, tuple[Candidate, float]] = {}
        self._tried: set[Key] = set()
        self._turn_of_others = True
        _require_optuna()
        with self._talking():
            self._storage, self._study = _open(storage, study, resume)
            _check_facts(self._study, study, dict(facts or {}))
            done = len(self._study.get_trials(deepcopy=False))
            # so that a resumed search does not draw the same again
            self._sampler = _sampler(sampler, None if seed is None else seed + done)
            self._study.sampler = self._sampler
        self._asked: dict[int, optuna.trial.Trial] = {}
        self._held: dict[str, float] = {}
        self._hold_left = 0
        self._grid = self._grid_points(seed) if sampler == "grid" else iter(())
        if resume:
            self._take_up()
        if not done:
            for candidate in first:
                self._enqueue(candidate)

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
                trial = self._draw()
            except (ValueError, TypeError, ArithmeticError) as error:
                # Optuna, about an entry that others have queued
                self._drop(str(error))
                continue
            candidate = self._candidate(trial)
            if candidate is None:
                self._drop(f"trial {trial.number} does not fit this session")
                self._study.tell(trial, state=_state("FAIL"))
                continue
            known = self._known(candidate.values)
            if not candidate.values:
                self._study.tell(trial, 0.0)
            elif self._illegal(candidate.values):
                self._study.tell(trial, state=_state("PRUNED"))
            elif known is not None:
                self._study.tell(trial, known)
            elif self._running(candidate):
                self._study.tell(trial, state=_state("FAIL"))
            else:
                self._asked[trial.number] = trial
                return candidate
        raise Exhausted

    def _best_elsewhere(self) -> Candidate | None:
        """The best untried candidate of other sessions, if it looks better than any here. Its
        score may be made up."""
        best = self.best()
        limit = min(0.0, best[1] if best else 0.0)
        found = None
        for trial in self._study.get_trials(deepcopy=False, states=(_state("COMPLETE"),)):
            candidate = self._read(trial)
            if candidate and candidate.values and _key(candidate) not in self._tried:
                score = trial.value
                legal = not self._illegal(candidate.values)
                if score is not None and -math.inf < score < limit and legal:
                    found, limit = candidate, score
        # without the trial, which has a score already
        return found and replace(found, trial=-1)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        if self.dropped <= _MOST_SAID or self.dropped % _PATIENCE == 0:
            self._say(f"dropped from the study, {self.dropped} so far: {_text(why)}")

    def tell(self, candidate: Candidate, score: float) -> None:
        """Records a score: log(objective / baseline)."""
        self._scores.setdefault(_key(candidate), (candidate, score))
        if candidate.trial < 0:
            return
        with self._talking():
            # a host of the same name may have finished it
            self._study.tell(candidate.trial, score, skip_if_finished=True)

    def prune(self, candidate: Candidate, why: str) -> None:
        """Records that a guardrail stopped the candidate: the search avoids its region."""
        self._end(candidate, why, "PRUNED")

    def fail(self, candidate: Candidate, why: str) -> None:
        """Records that the candidate could not be measured: it may be drawn again."""
        self._end(candidate, why, "FAIL")

    def _end(self, candidate: Candidate, why: str, state: str) -> None:
        import optuna

        if candidate.trial < 0:
            return
        with (
            self._talking(),
            # a host of the same name has finished it
            contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError),
        ):
            self._asked[candidate.trial].set_user_attr("why", why)
            self._study.tell(candidate.trial, state=_state(state))

    def told(self) -> list[tuple[Candidate, float]]:
        """The candidates that this session measured, with scores, best first; of equal values only
        the first."""
        return sorted(self._scores.values(), key=lambda pair: pair[1])

    def best(self) -> tuple[Candidate, float] | None:
        """The best candidate so far, with its score; None without one."""
        return next(iter(self.told()), None)

    def close(self) -> None:
        """Releases the storage's connections."""
        self._storage.remove_session()

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        with _quiet(), losing(self._where):
            yield

    def _draw(self) -> optuna.trial.Trial:
        if self._kind == "grid" and not self._waiting():
            point = next(self._grid, None)
            if point is None:
                raise Exhausted
            self._study.enqueue_trial(point)
        slow = [knob for knob in self._space.knobs if knob.slow]
        if not slow or self._kind == "grid" or self._waiting():
            return self._study.ask(_distributions(self._space.knobs))
        return self._draw_held(slow)

    def _draw_held(self, slow: Sequence[Knob]) -> optuna.trial.Trial:
        """Draws with the slow knobs as before, or new ones when they were held long enough."""
        import optuna

        fresh = self._hold_left <= 0
        held = optuna.samplers.PartialFixedSampler(self._held, self._sampler)
        self._study.sampler = self._sampler if fresh else held
        trial = self._study.ask(_distributions(self._space.knobs))
        if fresh:
            self._held = {knob.name: trial.params[knob.name] for knob in slow}
            self._hold_left = _HOLD
        self._hold_left -= 1
        return trial

    def _waiting(self) -> bool:
        return bool(self._study.get_trials(deepcopy=False, states=(_state("WAITING"),)))

    def _candidate(self, trial: optuna.trial.Trial) -> Candidate | None:
        """The candidate of a trial: the exact values of an enqueued one, else of the drawn point.
        None if this session may not try it."""
        if "values" in trial.user_attrs:
            trial.set_user_attr("owner", self._owner)
            return self._read(trial)
        if not all(knob.low <= trial.params[knob.name] <= knob.high for knob in self._space.knobs):
            return None
        values = self._space.values(trial.params)
        values = {n: v for n, v in values.items() if v != self._now.get(n)}
        reasons = {n: self._reason(n) for n in values}
        candidate = Candidate(values, self._kind, reasons, trial.number)
        for key, value in _attributes(candidate, self._owner).items():
            trial.set_user_attr(key, value)
        return candidate

    def _read(self, trial: optuna.trial.Trial | optuna.trial.FrozenTrial) -> Candidate | None:
        """The candidate in a trial, whoever wrote it; None if its values do not fit this
        session."""
        said: dict[str, Any] = trial.user_attrs
        values: Any
        values, reasons = said.get("values"), said.get("reasons")
        if not self._space.has(values):
            # return our own: 4.0 would be equal to 4, too
            values = next((own for own in self._first if own and own == values), None)
            if values is None:
                return None
        reasons = reasons if isinstance(reasons, dict) else {}
        why = {name: _text(reasons[name]) for name in values if name in reasons}
        return Candidate(dict(values), _text(said.get("source")), why, trial.number)

    def _reason(self, name: str) -> str:
        show = functools.partial(sizes.short, unit=catalogue.load()[name].unit)
        low, high = map(show, self._bounds[name])
        how = "on the grid" if self._kind == "grid" else f"drawn by {self._kind}"
        return f"{how} from {low} to {high} (now {show(self._now[name])})"

    def _illegal(self, values: Values) -> bool:
        return bool(broken_by(values, self._now, self._host_facts))

    def _known(self, values: Values) -> float | None:
        for trial in self._study.get_trials(deepcopy=False, states=(_state("COMPLETE"),)):
            score = trial.value
            finite = score is not None and math.isfinite(score)
            if finite and trial.user_attrs.get("values") == values:
                return score
        return None

    def _running(self, candidate: Candidate) -> bool:
        states = (_state("RUNNING"), _state("PRUNED"))
        return any(
            trial.user_attrs.get("values") == candidate.values
            for trial in self._study.get_trials(deepcopy=False, states=states)
            if trial.number != candidate.trial
        )

    def _enqueue(self, candidate: Candidate) -> None:
        with self._talking():
            point = self._space.point(candidate.values)
            self._study.enqueue_trial(point, user_attrs=_attributes(candidate, self._owner))

    def _take_up(self) -> None:
        """Queues the trial again that was running when this host was stopped."""
        with self._talking():
            for trial in self._study.get_trials(states=(_state("RUNNING"),)):
                if trial.user_attrs.get("owner") == self._owner:
                    self._study.tell(trial.number, state=_state("FAIL"))
                    candidate = self._read(trial)
                    if candidate and candidate.values:
                        self._enqueue(candidate)

    def _grid_points(self, seed: int | None) -> Iterator[dict[str, float]]:
        """Every combination of levels of the knobs that matter most, shuffled, but grouped by the
        slow knobs."""
        now = self._space.point({})
        chosen = [*zip(self._space.knobs, _GRID)]
        chosen += [(knob, 3) for knob in self._space.knobs[len(_GRID) :] if knob.slow]
        axes = [[(knob, level) for level in knob.levels(count)] for knob, count in chosen]
        combinations = list(itertools.product(*axes))
        random.Random(seed).shuffle(combinations)
        combinations.sort(key=lambda pairs: [level for knob, level in pairs if knob.slow])
        for pairs in combinations:
            yield {**now, **{knob.name: level for knob, level in pairs}}


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


def sharing_facts(
    *,
    version: str,
    memory_bytes: int,
    layout: str,
    workload: str,
    objective: str,
    baseline: Mapping[str, int],
) -> dict[str, str]:
    """What must be equal for scores to be comparable: ZFS's upstream version, memory (to a tenth),
    the pool's layout, the workload, the objective, and the baseline to which scores are ratios
    (of the parameters in the space)."""
    # a machine with 4 GiB reports a little less, and not always the same
    memory = 2 ** (round(8 * math.log2(max(1, memory_bytes))) / 8)
    return {
        "zfs": version.split("-")[0],
        "memory": f"about {format_size(round(memory))}",
        "layout": layout,
        "workload": workload,
        "objective": objective,
        "baseline": " ".join(f"{name}={value}" for name, value in sorted(baseline.items())),
    }


def workload_name(command: str | None) -> str:
    """A name for the load in a shared study: enough to tell two apart. The command may contain a
    password that masked() misses; the few bits of a slow hash do not reveal it."""
    if not command:
        return "observed"
    first = (command.split() or [""])[0]
    program = os.path.basename(first.partition("=")[0])  # noqa: PTH119
    mark = hashlib.pbkdf2_hmac("sha256", os.fsencode(command), b"zfstune", 100_000)[:2]
    return f"{program} ({mark.hex()})"


def _check_facts(study: optuna.Study, name: str, facts: dict[str, str]) -> None:
    before = study.user_attrs.get("facts")
    if before is None:
        study.set_user_attr("facts", facts)
        return
    if not isinstance(before, dict) or not all(isinstance(v, str) for v in before.values()):
        raise CommandError(f"the facts of study {name} are malformed", "use another --study")
    for key in sorted(before.keys() | facts.keys()):
        there, here = before.get(key), facts.get(key)
        if there != here and not (key == "baseline" and there and here and _alike(there, here)):
            raise CommandError(
                f"the scores of study {name} mean nothing here: its {_text(key)} is {there!r}, "
                f"here it is {here!r}",
                "use another --study",
            )


def _alike(one: str, other: str) -> bool:
    """Whether two baselines are the same, sizes to a hundredth: ZFS derives limits from the size of
    memory, which may differ between boots."""
    a, b = (dict(pair.partition("=")[::2] for pair in text.split()) for text in (one, other))
    return a.keys() == b.keys() and all(
        a[name] == b[name]
        or (
            catalogue.load()[name].unit == "bytes"
            and a[name].isdecimal()
            and b[name].isdecimal()
            and math.isclose(int(a[name]), int(b[name]), rel_tol=_SAME_SIZE)
        )
        for name in a
    )


def require(storage: str | None, study: str, facts: Mapping[str, str], *, resume: bool) -> None:
    """Raises what Searcher() would, before a session measures anything; creates no study."""
    _require_optuna()
    import optuna

    with _quiet(), failing(storage):
        kept = opened(storage)
        try:
            if _exists(kept, storage, study, resume):
                _check_facts(optuna.load_study(study_name=study, storage=kept), study, dict(facts))
        finally:
            kept.remove_session()


def _require_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise NotPossible(
            f"the search needs optuna: {error}", "docs/dependencies.md says how to install it"
        ) from None


def _open(
    storage: str | None, name: str, resume: bool
) -> tuple[optuna.storages.BaseStorage, optuna.Study]:
    import optuna

    with failing(storage):
        kept = opened(storage)
        _exists(kept, storage, name, resume)
        try:
            study = optuna.create_study(storage=kept, study_name=name, load_if_exists=resume)
        except optuna.exceptions.DuplicatedStudyError:
            # another host has just created it
            raise _there(storage, name) from None
        return kept, study


def _exists(
    kept: optuna.storages.BaseStorage, storage: str | None, name: str, resume: bool
) -> bool:
    """Raises UsageError if it exists and resume is false."""
    import optuna

    there = name in optuna.get_all_study_names(kept)
    if there and not resume:
        raise _there(storage, name)
    return there


def _there(storage: str | None, name: str) -> UsageError:
    return UsageError(
        f"study {name} already exists in {masked(storage or '')}",
        "continue it with --resume DIR, or use another --study",
    )


def _sampler(kind: str, seed: int | None) -> optuna.samplers.BaseSampler:
    if kind not in SAMPLERS:
        raise UsageError(f"no sampler {kind!r}", f"choose from {', '.join(SAMPLERS)}")
    import optuna

    if kind == "tpe":
        return optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=_STARTUP, multivariate=True, constant_liar=True
        )
    return optuna.samplers.RandomSampler(seed=seed)


def _distributions(knobs: Sequence[Knob]) -> dict[str, optuna.distributions.BaseDistribution]:
    from optuna.distributions import FloatDistribution, IntDistribution

    return {
        knob.name: IntDistribution(int(knob.low), int(knob.high), log=knob.log)
        if knob.whole
        else FloatDistribution(knob.low, knob.high, log=knob.log)
        for knob in knobs
    }


def _state(name: str) -> optuna.trial.TrialState:
    from optuna.trial import TrialState

    return TrialState[name]


def _attributes(candidate: Candidate, owner: str) -> dict[str, Any]:
    return {
        "values": candidate.values,
        "source": candidate.source,
        "reasons": candidate.reasons,
        "owner": owner,
    }


def _key(candidate: Candidate) -> Key:
    return frozenset(candidate.values.items())


def _text(said: object) -> str:
    """Safe to print, and not too long."""
    return printable(str(said))[:_MOST_TEXT]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences Optuna's line per trial, and its warnings of experimental features."""
    try:
        import optuna
    except ImportError:
        yield
        return
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
