"""The causes of causes.toml, and whether one applies."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zfstrace.strict import strict_zip
from zfstune.diagnose.quantities import NAMES, Measurements, number, show
from zfstune.rules import data as rule_data
from zfstune.rules import language, thresholds
from zfstune.rules.language import Unknown

# From the highest to the lowest.
CERTAINTIES = ("sure", "likely", "possible")
# A condition that always holds.
ALWAYS = "1"


@dataclass(frozen=True)
class Cause:
    """An entry of causes.toml, which explains the fields. sure and likely are "" if the cause is
    never that certain; when is "" only beside never."""

    id: str
    number: int
    title: str
    evidence: tuple[str, ...]
    next: tuple[str, ...]
    alike: tuple[str, ...]
    sources: tuple[str, ...]
    why: Mapping[str, str]
    when: str = ""
    sure: str = ""
    likely: str = ""
    explains: Mapping[str, str] = field(default_factory=dict)
    idle: bool = False
    lab: str = ""
    not_produced: str = ""
    never: str = ""

    @property
    def certainties(self) -> tuple[str, ...]:
        """The possible ones, from the highest to the lowest."""
        found = []
        for certainty, condition in strict_zip(CERTAINTIES, (self.sure, self.likely, ALWAYS)):
            if condition:
                found.append(certainty)
            if condition == ALWAYS:
                break
        return tuple(found)


def values_of(found: Measurements) -> dict[str, int]:
    """The names of conditions: the measurements that are known numbers, and the thresholds."""
    numbers = {name: number(found, name) for name in NAMES}
    known = {name: value for name, value in numbers.items() if value is not None}
    return {**thresholds.values(), **known}


def applies(cause: Cause, values: Mapping[str, int]) -> bool:
    """Whether its condition holds. Raises Unknown if that depends on an unknown measurement."""
    return not cause.never and language.holds(cause.when, values)


def certainty(cause: Cause, values: Mapping[str, int]) -> str:
    """One of CERTAINTIES, for a cause that applies."""
    for name, condition in (("sure", cause.sure), ("likely", cause.likely)):
        try:
            if condition and language.holds(condition, values):
                return name
        except Unknown:
            continue
    return cause.certainties[-1]


def fill(text: str, found: Measurements) -> str | None:
    """A text with its {names} replaced; None if one of them is not known."""
    shown = {name: show(name, found[name]) for name in NAMES if found[name] is not None}
    try:
        return text.format(**shown)
    except KeyError:
        return None


@functools.cache
def load() -> tuple[Cause, ...]:
    """All causes, from the particular to the general."""
    data = rule_data.read(__package__, "causes")
    return tuple(_cause(entry) for entry in data["cause"])


def _cause(entry: Mapping[str, Any]) -> Cause:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    return Cause(**given)
