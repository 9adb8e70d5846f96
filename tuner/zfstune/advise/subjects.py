"""What rules are judged for: a host, a pool, a dataset ... with the facts that are known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zfstune.rules.language import Fact

Facts = Mapping[str, Fact]


@dataclass(frozen=True)
class Subject:
    """scope is one of rules.SCOPES. facts are its own and those of what it is part of; origins
    has for each property the dataset in which its value was set."""

    scope: str
    name: str
    facts: Facts
    origins: Mapping[str, str] = field(default_factory=dict)
    load: str = ""


def known(**facts: Fact | bool | None) -> dict[str, Fact]:
    """Those that are not None; true is 1."""
    return {
        name: int(fact) if isinstance(fact, bool) else fact
        for name, fact in facts.items()
        if fact is not None
    }
