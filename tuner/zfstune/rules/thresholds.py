"""The thresholds that rule files share: thresholds.toml."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from . import data as rule_data


@dataclass(frozen=True)
class Threshold:
    """A number in conditions, with the reason for its value and the source of that."""

    value: int
    reason: str
    source: str


@functools.cache
def thresholds() -> Mapping[str, Threshold]:
    """All thresholds, by name."""
    data = rule_data.read(__package__, "thresholds")
    return MappingProxyType({name: Threshold(**entry) for name, entry in data.items()})


@functools.cache
def values() -> Mapping[str, int]:
    """The values of all thresholds by name, as facts for conditions."""
    return MappingProxyType({name: one.value for name, one in thresholds().items()})


def threshold(name: str) -> int:
    """The value of one threshold."""
    return values()[name]
