"""The numbers that conditions of different rule files share: thresholds.toml."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True)
class Threshold:
    """A number in a condition, why it is that one, and where it comes from."""

    value: int
    reason: str
    source: str


@functools.cache
def thresholds() -> Mapping[str, Threshold]:
    """All of them, by name."""
    import tomllib

    with Path(__file__).with_name("thresholds.toml").open("rb") as file:
        data = tomllib.load(file)
    return MappingProxyType({name: Threshold(**entry) for name, entry in data.items()})


@functools.cache
def values() -> Mapping[str, int]:
    """Their values, as facts for conditions."""
    return MappingProxyType({name: one.value for name, one in thresholds().items()})


def threshold(name: str) -> int:
    """The value of one."""
    return values()[name]
