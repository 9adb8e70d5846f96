"""The search for better values: the model's candidates first, then those a sampler draws.

Optuna keeps the study (ask and tell), so it can be stopped and resumed, and shared by hosts of
which the same facts hold. Scores are log ratios of the objective to the adjacent baseline: less is
better, 0 is the baseline.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from zfstune import catalogue, guard, sizes
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.model import ASYNC_MAX, ASYNC_MIN, DIRTY, SYNC_PERCENT, WRLOG, Candidate, broken_by
from zfstune.space import ACTIVE_MAX, ACTIVE_MIN, DELAY_MIN, Knob, Space
from zfstune.storage import failing, losing, masked, opened
from zfstune.units import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import optuna

SAMPLERS = ("tpe", "random", "grid")

# TPE draws at random until it has seen so many; the model's candidates count.
_STARTUP = 6
# How long the slow parameters stay while the others are searched.
_HOLD = 6
# Draws of what was tried already, before the space counts as exhausted.
_PATIENCE = 100
# Sizes of the baseline that differ by less are the same.
_SAME_SIZE = 0.01
# Levels of the first, the second ... parameter of a grid; it goes no further than these.
_GRID = (5, 4, 2, 3, 2)

_COUPLED = (
    frozenset((DIRTY, WRLOG)),
    frozenset((ASYNC_MIN, ASYNC_MAX)),
    frozenset((SYNC_PERCENT, ACTIVE_MIN, ACTIVE_MAX, DELAY_MIN)),
)

Values = dict[str, int]


class Exhausted(Exception):
    """The sampler finds nothing that was not tried."""


class Searcher:
    """A study: ask() for a candidate, measure it, tell() its score (or prune() or fail() it).

    first: candidates to try before any is drawn. storage: a file (SQLite), any URL that Optuna
    takes, or None for memory. study: its name there. facts: under which scores may be
    shared, see sharing_facts(). Raises UsageError for a sampler that does not exist or a
    study that exists while resume is false, NotPossible when a package or the storage is
    missing, CommandError when the study's facts are others. Each method that asks or tells
    raises storage.StorageLost when the storage fails later.
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
    ) -> None:
        self._space, self._now, self._host_facts = space, dict(current), host_facts
        self._kind, self._owner = sampler, socket.gethostname()
        self._bounds = space.bounds()
        self._where = storage
        _require_optuna()
        with self._talking():
            self._storage, self._study = _open(storage, study, resume)
            _check_facts(self._study, study, dict(facts or {}))
            done = len(self._study.get_trials(deepcopy=False))
            # a resumed search shall not draw the same again
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
        """The next to measure. Raises Exhausted."""
        with self._talking():
            for _ in range(_PATIENCE):
                trial = self._draw()
                candidate = self._candidate(trial)
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

    def tell(self, candidate: Candidate, score: float) -> None:
        """What was measured: log(objective / baseline)."""
        with self._talking():
            # a host of the same name may have ended it
            self._study.tell(candidate.trial, score, skip_if_finished=True)

    def prune(self, candidate: Candidate, why: str) -> None:
        """It is bad (a guardrail stopped it): the search keeps away from there."""
        self._end(candidate, why, "PRUNED")

    def fail(self, candidate: Candidate, why: str) -> None:
        """It could not be measured, which says nothing about it: it may be drawn again."""
        self._end(candidate, why, "FAIL")

    def _end(self, candidate: Candidate, why: str, state: str) -> None:
        import optuna

        with (
            self._talking(),
            # a host of the same name has ended it
            contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError),
        ):
            self._asked[candidate.trial].set_user_attr("why", why)
            self._study.tell(candidate.trial, state=_state(state))

    def told(self) -> list[tuple[Candidate, float]]:
        """All with a score, best first; of equal values the first only."""
        out: dict[tuple[tuple[str, int], ...], tuple[Candidate, float]] = {}
        with self._talking():
            trials = self._study.get_trials(deepcopy=False, states=(_state("COMPLETE"),))
        for trial in trials:
            if values := trial.user_attrs.get("values"):
                key = tuple(sorted(values.items()))
                out.setdefault(key, (_told(trial), float(trial.value or 0.0)))
        return sorted(out.values(), key=lambda pair: pair[1])

    def best(self) -> tuple[Candidate, float] | None:
        """The best so far; None when there is none with a score."""
        return next(iter(self.told()), None)

    def close(self) -> None:
        """Gives the storage's connections back."""
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
        """The slow knobs as the last time, or new ones when those were held long enough."""
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

    def _candidate(self, trial: optuna.trial.Trial) -> Candidate:
        """With the exact values of an enqueued one, else those of the drawn point."""
        attributes = trial.user_attrs
        if "values" in attributes:
            trial.set_user_attr("owner", self._owner)
            return replace(_told(trial), trial=trial.number)
        values = self._space.values(trial.params)
        values = {n: v for n, v in values.items() if v != self._now.get(n)}
        reasons = {n: self._reason(n) for n in values}
        candidate = Candidate(values, self._kind, reasons, trial.number)
        for key, value in _attributes(candidate, self._owner).items():
            trial.set_user_attr(key, value)
        return candidate

    def _reason(self, name: str) -> str:
        show = functools.partial(sizes.short, unit=catalogue.load()[name].unit)
        low, high = map(show, self._bounds[name])
        how = "on the grid" if self._kind == "grid" else f"drawn by {self._kind}"
        return f"{how} from {low} to {high} (now {show(self._now[name])})"

    def _illegal(self, values: Values) -> bool:
        return bool(broken_by(values, self._now, self._host_facts))

    def _known(self, values: Values) -> float | None:
        for trial in self._study.get_trials(deepcopy=False, states=(_state("COMPLETE"),)):
            if trial.user_attrs.get("values") == values and values:
                return trial.value
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
        """What this host had begun when it was stopped is tried again, before anything else."""
        with self._talking():
            for trial in self._study.get_trials(states=(_state("RUNNING"),)):
                if trial.user_attrs.get("owner") == self._owner:
                    self._study.tell(trial.number, state=_state("FAIL"))
                    if trial.user_attrs.get("values"):
                        self._enqueue(_told(trial))

    def _grid_points(self, seed: int | None) -> Iterator[dict[str, float]]:
        """Every combination of levels of the knobs that matter most, shuffled; those with the
        same slow knobs together."""
        now = self._space.point({})
        chosen = [*zip(self._space.knobs, _GRID, strict=False)]
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
    """What is left of a candidate when one parameter goes back to the baseline, with the names
    that go: one, or those coupled to it where it cannot go alone. Empty when nothing would
    be left."""
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
    """What must be the same for scores to mean the same: ZFS's upstream version, memory (to a
    tenth), the pool's layout (a hash, say), the workload, the objective and the baseline
    the scores are ratios to (of what the space sets, best)."""
    # a machine of 4 GiB has a little less, and not always the same
    memory = 2 ** (round(8 * math.log2(max(1, memory_bytes))) / 8)
    return {
        "zfs": version.split("-")[0],
        "memory": f"about {format_size(round(memory))}",
        "layout": layout,
        "workload": workload,
        "objective": objective,
        "baseline": " ".join(f"{name}={value}" for name, value in sorted(baseline.items())),
    }


def _check_facts(study: optuna.Study, name: str, facts: dict[str, str]) -> None:
    before = study.user_attrs.get("facts")
    if before is None:
        study.set_user_attr("facts", facts)
        return
    for key in sorted(before.keys() | facts.keys()):
        there, here = before.get(key), facts.get(key)
        if there != here and not (key == "baseline" and there and here and _alike(there, here)):
            raise CommandError(
                f"the study {name} was made where {key} is {there!r}, here it is {here!r}, so "
                "its scores mean nothing here: give another --study"
            )


def _alike(one: str, other: str) -> bool:
    """Whether two baselines are the same but for a hundredth of a size: ZFS derives limits from
    memory, of which a host does not have the same at each boot."""
    a, b = (dict(pair.split("=") for pair in text.split()) for text in (one, other))
    return a.keys() == b.keys() and all(
        a[name] == b[name]
        or (
            catalogue.load()[name].unit == "bytes"
            and math.isclose(int(a[name]), int(b[name]), rel_tol=_SAME_SIZE)
        )
        for name in a
    )


def require(storage: str | None, study: str, facts: Mapping[str, str], *, resume: bool) -> None:
    """Raises what Searcher() would, before a session measures anything. Makes no study."""
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
            f'the search needs optuna ({error}): see "What it needs" in the README'
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
            # another host has made it just now
            raise _there(storage, name) from None
        return kept, study


def _exists(
    kept: optuna.storages.BaseStorage, storage: str | None, name: str, resume: bool
) -> bool:
    """Raises UsageError when it does and is not to be resumed."""
    import optuna

    there = name in optuna.get_all_study_names(kept)
    if there and not resume:
        raise _there(storage, name)
    return there


def _there(storage: str | None, name: str) -> UsageError:
    return UsageError(
        f"there is a study {name} in {masked(storage or '')} already: give --resume DIR to go on "
        "with it, or another --study"
    )


def _sampler(kind: str, seed: int | None) -> optuna.samplers.BaseSampler:
    if kind not in SAMPLERS:
        raise UsageError(f"there is no sampler {kind!r}: give one of {', '.join(SAMPLERS)}")
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


def _told(trial: optuna.trial.Trial | optuna.trial.FrozenTrial) -> Candidate:
    attributes = trial.user_attrs
    return Candidate(
        dict(attributes["values"]), attributes["source"], attributes["reasons"], trial.number
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Optuna writes a line per trial, and warns of what is experimental in it."""
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
