"""A study that Optuna keeps: in a database that hosts share, or for its TPE sampler."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from zfstune.experiment.space import Knob
from zfstune.experiment.storage import opened
from zfstune.experiment.study import Entry

# TPE draws at random for this many trials, the model's candidates included.
_STARTUP = 6


class OptunaStudy:
    """A study.Study. seed: of its own draws."""

    def __init__(
        self, storage: str | None, name: str, knobs: Sequence[Knob], seed: int | None
    ) -> None:
        self._knobs = {knob.name: _distribution(knob) for knob in knobs}
        self._storage = opened(storage)
        self._study = optuna.create_study(
            storage=self._storage, study_name=name, load_if_exists=True
        )
        # so that a resumed search does not draw the same again
        self._sampler = optuna.samplers.TPESampler(
            seed=None if seed is None else seed + len(self.entries()),
            n_startup_trials=_STARTUP,
            multivariate=True,
            constant_liar=True,
        )
        self._study.sampler = self._sampler
        self._taken: dict[int, optuna.trial.Trial] = {}

    def facts(self) -> object:
        return self._study.user_attrs.get("facts")

    def set_facts(self, facts: dict[str, str]) -> None:
        self._study.set_user_attr("facts", facts)

    def entries(self, *states: str) -> list[Entry]:
        wanted = tuple(TrialState[one] for one in states) or None
        return [
            Entry(one.number, one.state.name, one.value, one.user_attrs, one.params)
            for one in self._study.get_trials(deepcopy=False, states=wanted)
        ]

    def enqueue(self, point: Mapping[str, float], attributes: Mapping[str, Any]) -> None:
        self._study.enqueue_trial(dict(point), user_attrs=dict(attributes))

    def take(self) -> Entry | None:
        return self.draw({}) if self.entries("WAITING") else None

    def draw(self, held: Mapping[str, float]) -> Entry:
        """The first that is WAITING, or if there is none one that TPE draws, with the held knobs as
        given."""
        fixed = optuna.samplers.PartialFixedSampler(dict(held), self._sampler)
        self._study.sampler = fixed if held else self._sampler
        trial = self._study.ask(self._knobs)
        self._taken[trial.number] = trial
        return Entry(trial.number, "RUNNING", None, trial.user_attrs, trial.params)

    def note(self, number: int, attributes: Mapping[str, Any]) -> None:
        # a host of the same name may have finished it
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
            for key, value in attributes.items():
                self._taken[number].set_user_attr(key, value)

    def tell(self, number: int, state: str, score: float | None = None) -> None:
        self._study.tell(number, score, state=TrialState[state], skip_if_finished=True)

    def spent(self, owner: str) -> float:
        said = self._study.user_attrs.get(_spent(owner), 0.0)
        return float(said) if isinstance(said, (int, float)) else 0.0

    def spend(self, owner: str, alpha: float) -> None:
        self._study.set_user_attr(_spent(owner), self.spent(owner) + alpha)

    def close(self) -> None:
        self._storage.remove_session()


def _spent(owner: str) -> str:
    return f"alpha spent by {owner}"


def names(storage: str | None) -> set[str]:
    """The studies in a storage."""
    kept = opened(storage)
    try:
        return set(optuna.get_all_study_names(kept))
    finally:
        kept.remove_session()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences Optuna's line per trial, and its warnings of experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _distribution(knob: Knob) -> BaseDistribution:
    if knob.whole:
        return IntDistribution(int(knob.low), int(knob.high), log=knob.log)
    return FloatDistribution(knob.low, knob.high, log=knob.log)
