"""The subjects of rules: a host, a pool, a dataset and so on, with their known facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zfstune.rules.language import Fact

Facts = Mapping[str, Fact]


@dataclass(frozen=True)
class Subject:
    """scope is one of rules.SCOPES. facts include those of its pool and host; origins has for each
    property the dataset that sets its value, "" for a default."""

    scope: str
    name: str
    facts: Facts
    origins: Mapping[str, str] = field(default_factory=dict)
    load: str = ""


def known(**facts: Fact | bool | None) -> dict[str, Fact]:
    """The facts that are not None; a bool becomes 0 or 1."""
    return {
        name: int(fact) if isinstance(fact, bool) else fact
        for name, fact in facts.items()
        if fact is not None
    }
