"""Searches of a session on the host of the samples."""

from __future__ import annotations

from pathlib import Path

from support.sample_host import DEFAULTS, FACTS

from zfstune.experiment import samplers
from zfstune.experiment.model import Candidate
from zfstune.experiment.search import Searcher
from zfstune.experiment.space import Space
from zfstune.tunables import catalogue

DEFAULT = catalogue.default_set()


def searcher(
    *first: Candidate,
    names: tuple[str, ...] = DEFAULT,
    seed: int | None = 1,
    sampler: str = samplers.LOCAL,
    storage: Path | str | None = None,
    facts: dict[str, str] | None = None,
    resume: bool = False,
    said: list[str] | None = None,
) -> Searcher:
    """One whose messages go into `said`."""
    return Searcher(
        Space(names, DEFAULTS, FACTS),
        DEFAULTS,
        FACTS,
        first=first,
        seed=seed,
        sampler=sampler,
        storage=str(storage) if storage else None,
        facts=facts,
        resume=resume,
        say=(said if said is not None else []).append,
    )


def asked(search: Searcher, count: int) -> list[dict[str, int]]:
    """The values of as many candidates, each told a score, better and worse than the baseline's."""
    out = []
    for i in range(count):
        candidate = search.ask()
        out.append(candidate.values)
        search.tell(candidate, float(i % 5) - 2)
    return out
