"""The rules of advice.toml: what is wrong, when, why, and what to do about it."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zfstune.rules.language import Fact
from zfstune.tunables import values

SEVERITIES = ("high", "medium", "low")
# What a rule is judged for: once for each of these that there is.
SCOPES = (
    *("host", "parameter", "coupling", "database", "pool", "vdev", "disk"),
    *("filesystem", "volume", "dataset"),
)
LOADS = ("postgresql", "mysql", "vm", "nfs", "files")
REWRITES = ("none", "data", "pool")

_PLACE = re.compile(r"\{(\w+)(?::(size))?\}")


@dataclass(frozen=True)
class Rule:
    """An entry of advice.toml. when is a condition over facts (rules/language.py); loads are those
    that it is about, () for all. The texts have placeholders: {recordsize:size} is a fact, shown
    as a size.

    property_ is the one that is judged: datasets that inherit it are told as one. command is
    what changes it, how the way in words where no command does. A rule that lowers durability
    has no command, and is never of severity high.
    """

    id: str
    severity: str
    scope: str
    when: str
    what: str
    why: str
    effect: str
    source: str
    risk: str
    property_: str = ""
    command: str = ""
    how: str = ""
    rewrite: str = "none"
    lowers_durability: bool = False
    loads: tuple[str, ...] = ()
    since: str = ""
    until: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """All that have placeholders."""
        return (self.what, self.why, self.effect, self.risk, self.command, self.how)


@functools.cache
def load() -> tuple[Rule, ...]:
    """All rules, the one with the greatest effect first in each severity."""
    import tomllib

    with Path(__file__).with_name("advice.toml").open("rb") as file:
        data = tomllib.load(file)
    found = [
        Rule(
            property_=entry.pop("property", ""),
            loads=tuple(entry.pop("for", ())),
            **entry,
        )
        for entry in data["rule"]
    ]
    return tuple(sorted(found, key=lambda rule: SEVERITIES.index(rule.severity)))


def placeholders(text: str) -> tuple[str, ...]:
    """The facts that a text shows."""
    return tuple(match[1] for match in _PLACE.finditer(text))


def fill(text: str, facts: Mapping[str, Fact]) -> str:
    """The text with its facts; `?` for one that is not known."""
    return _PLACE.sub(lambda match: _shown(facts.get(match[1], "?"), match[2]), text)


def _shown(fact: Fact, unit: str | None) -> str:
    return values.show(fact, "bytes") if unit and isinstance(fact, int) else str(fact)
