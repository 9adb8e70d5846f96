"""The rules of advice.toml."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from zfstune.rules import data as rule_data
from zfstune.rules.language import Fact
from zfstune.tunables import values

SEVERITIES = ("high", "medium", "low")
# A rule is judged for each subject of its scope.
SCOPES = (
    *("host", "parameter", "coupling", "database", "pool", "vdev", "disk"),
    *("filesystem", "volume", "dataset"),
)
LOADS = ("postgresql", "mysql", "vm", "nfs", "files")
REWRITES = ("none", "data", "pool")

_PLACE = re.compile(r"\{(\w+)(?::(size))?\}")


@dataclass(frozen=True)
class Rule:
    """An entry of advice.toml, which explains the fields. loads are the values of --for to which it
    applies, () for all."""

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
        """The texts that may have placeholders."""
        return (self.what, self.why, self.effect, self.risk, self.command, self.how)


@functools.cache
def load() -> tuple[Rule, ...]:
    """All rules by severity, and within each by effect, the greatest first."""
    data = rule_data.read(__package__, "advice")
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
    """The names of the facts that a text shows."""
    return tuple(match[1] for match in _PLACE.finditer(text))


def fill(text: str, facts: Mapping[str, Fact]) -> str:
    """The text with its facts filled in; `?` for unknown ones."""
    return _PLACE.sub(lambda match: _shown(facts.get(match[1], "?"), match[2]), text)


def _shown(fact: Fact, unit: str | None) -> str:
    return values.show(fact, "bytes") if unit and isinstance(fact, int) else str(fact)
