"""The catalogue of the module parameters of ZFS, read from parameters.toml."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from zfstrace.version import version_key
from zfstune.rules import data as rule_data
from zfstune.rules import language

UNITS = ("bytes", "ns", "ms", "s", "percent", "count", "flag")

# When a new value takes effect: at once, or when a dataset is opened, a pool is imported, the
# module is loaded.
MOMENTS = ("now", "open", "import", "load")


# The versions of OpenZFS whose sources were read.
READ = ("2.1.11", "2.2.9", "2.3.9", "2.4.4")


@dataclass(frozen=True)
class Search:
    """The range in which `zfstune tune` searches: expressions, None for the legal bound. order is
    the rank by importance, 1 first."""

    order: int = 1 << 16
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True)
class Parameter:
    """A module parameter of ZFS under its Linux name; values are in the kernel's unit.

    access: ``rw``; ``load``, only when the module is loaded; ``never``, zfstune does not
    write it. default, low, high, step and zero are expressions over the facts of a host
    (guard.Facts) and other parameters. Legal values are multiples of step. zero is what 0
    stands for where the kernel takes it as "not set"; writing 0 then changes nothing, or, with
    recomputes, restores that value. in_force is the key of arcstats with the limit really in force,
    where the value does not tell it. source names the code of OpenZFS behind bounds and effects,
    with the reason. changes is what else a write changes. takes_effect is one of MOMENTS; remains
    is what stays after the old value was written back, and how to remove it. since and until (the
    last version that has it) are for people: whether a parameter exists is looked up. tunes, search
    and follows are for `zfstune tune`: see default_set(); a parameter with follows is set only
    together with that one.
    """

    name: str
    unit: str
    what: str
    freebsd: str | None = None
    linux: bool = True
    access: str = "rw"
    defaults: tuple[tuple[str, str], ...] = ()
    low: str | None = None
    high: str | None = None
    step: str | None = None
    zero: str | None = None
    recomputes: bool = False
    in_force: str | None = None
    source: str = ""
    changes: str = ""
    takes_effect: str = ""
    remains: str = ""
    since: str | None = None
    until: str | None = None
    latency: str = ""
    throughput: str = ""
    memory: str = ""
    settle_txgs: int = 0
    settles: str = ""
    hazard: str = ""
    tunes: bool = False
    search: Search | None = None
    follows: str | None = None
    shown: bool = True

    @property
    def default(self) -> str:
        """The expression in the newest version; "" if it is not known."""
        return self.defaults[-1][1] if self.defaults else ""

    def default_in(self, version: str) -> str:
        """The expression in a version of ZFS like 2.3.9-1; an unknown version counts as newest."""
        here = version_key(version)
        fits = [text for since, text in self.defaults if not here or version_key(since) <= here]
        return (fits or [text for _, text in self.defaults[:1]] or [""])[-1]

    @property
    def read_in(self) -> tuple[str, ...]:
        """Those versions of READ that have it."""
        since = version_key(self.since or "0.0")
        until = tuple(map(int, self.until.split("."))) if self.until else ()
        keys = ((version, version_key(version)) for version in READ)
        return tuple(v for v, key in keys if since <= key and key[: len(until)] <= until)

    @property
    def effect(self) -> str:
        """The effects on latency, throughput and memory, in one paragraph."""
        return " ".join(filter(None, (self.latency, self.throughput, self.memory)))


@dataclass(frozen=True)
class Rule:
    """A coupling: ``left <= right`` or ``left < right`` in the language of rules. Each side grows
    with each of its names (below: of the left side, above: of the right); the order of writes
    relies on that. --force overrides a soft rule."""

    name: str
    text: str
    hard: bool
    reason: str
    below: tuple[str, ...]
    above: tuple[str, ...]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Everything it depends on, including facts."""
        return tuple(dict.fromkeys(self.below + self.above))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether these values keep it; True if a name has no value, so nothing is coupled."""
        try:
            return language.holds(self.text, values)
        except language.Unknown:
            return True


def load() -> Mapping[str, Parameter]:
    """All known parameters, by Linux name."""
    return _read()[0]


def rules() -> tuple[Rule, ...]:
    """All couplings between parameters."""
    return _read()[1]


def default_set() -> tuple[str, ...]:
    """The parameters that `zfstune tune` changes by default, the most important first."""
    return _in_order(one for one in load().values() if one.tunes and not one.follows)


def _in_order(parameters: Iterable[Parameter]) -> tuple[str, ...]:
    ordered = sorted(parameters, key=lambda one: (one.search or Search()).order)
    return tuple(one.name for one in ordered)


def least(name: str, below: str, value: int) -> int:
    """The least value of a parameter if below, another one, has this value: by the rules that
    couple just these two; 0 if there are none."""
    found = (language.evaluate(left, {below: value}) + gap for left, gap in _between(name, below))
    return max(found, default=0)


@functools.cache
def _between(name: str, below: str) -> tuple[tuple[str, int], ...]:
    """For each such rule the left side, and the least difference of the parameter from it."""
    split = (language.sides(rule.text) for rule in rules() if rule.below == (below,))
    return tuple((left, gap) for left, right, gap in split if right == name)


def remains(names: Iterable[str]) -> list[str]:
    """A sentence for each parameter of which something stays after the old value was restored."""
    found = ((name, load()[name].remains) for name in sorted(set(names)) if name in load())
    return [f"{name}: {text}" for name, text in found if text]


def default_value(name: str, version: str, known: Mapping[str, int]) -> int | None:
    """The default on a host with these facts and these values of parameters that are fixed when the
    module is loaded; None if it is not known."""
    parameter = load()[name]
    text = parameter.default_in(version)
    if not text:
        return None
    values = dict(known)
    for other in language.names(text):
        entry = load().get(other)
        if entry and not (entry.access == "load" and known.get(other)):
            value = default_value(other, version, known)
            if value is None:
                return None
            values[other] = value
    try:
        return language.evaluate(text, values)
    except language.Unknown:
        return None


def computed(text: str) -> bool:
    """Whether an expression has names, so is not a constant."""
    return bool(language.names(text))


def canonical(name: str) -> str:
    """The Linux name for a FreeBSD name; any other name unchanged."""
    for parameter in load().values():
        if name == parameter.freebsd:
            return parameter.name
    return name


@functools.cache
def freebsd_names() -> Mapping[str, str]:
    """FreeBSD sysctls by Linux name."""
    return {name: one.freebsd for name, one in load().items() if one.freebsd}


def near(name: str, names: Iterable[str]) -> list[str]:
    """Up to three similar names, best first; name may be a FreeBSD name or a part of one."""
    known = sorted(set(names))
    word = name.removeprefix("vfs.zfs.").replace(".", "_").lower()
    found = [n for n in known if n in (word, f"zfs_{word}", f"zil_{word}", f"zfs_vdev_{word}")]
    found += difflib.get_close_matches(word, known, 3, 0.75)
    found += [n for n in known if len(word) >= 3 and word in n]
    found += difflib.get_close_matches(word, known, 3, 0.55)
    return list(dict.fromkeys(found))[:3]


@functools.cache
def _read() -> tuple[Mapping[str, Parameter], tuple[Rule, ...]]:
    data = rule_data.read(__package__, "parameters")
    parameters = {name: _parameter(name, entry) for name, entry in data["parameter"].items()}
    return MappingProxyType(parameters), tuple(_rule(entry) for entry in data["rule"])


def _parameter(name: str, entry: Mapping[str, Any]) -> Parameter:
    given = dict(entry)
    default = given.pop("default", None)
    if default is not None:
        given["defaults"] = (
            tuple(default.items()) if isinstance(default, dict) else (("", default),)
        )
    if "search" in given:
        given["search"] = Search(**given["search"])
    return Parameter(name, **given)


def _rule(entry: Mapping[str, Any]) -> Rule:
    left, right, _ = language.sides(entry["holds"])
    below, above = language.names(left), language.names(right)
    return Rule(entry["name"], entry["holds"], entry["hard"], entry["reason"], below, above)
