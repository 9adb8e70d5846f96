"""The thresholds that rule files share: thresholds.toml."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True)
class Threshold:
    """A number in conditions, with the reason for its value and the source of that."""

    value: int
    reason: str
    source: str


@functools.cache
def thresholds() -> Mapping[str, Threshold]:
    """All thresholds, by name."""
    import tomllib

    with Path(__file__).with_name("thresholds.toml").open("rb") as file:
        data = tomllib.load(file)
    return MappingProxyType({name: Threshold(**entry) for name, entry in data.items()})


@functools.cache
def values() -> Mapping[str, int]:
    """The values of all thresholds by name, as facts for conditions."""
    return MappingProxyType({name: one.value for name, one in thresholds().items()})


def threshold(name: str) -> int:
    """The value of one threshold."""
    return values()[name]
