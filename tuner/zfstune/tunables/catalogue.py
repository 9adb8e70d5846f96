"""What is known of each module parameter of ZFS, read from parameters.toml."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from zfstrace.version import version_key
from zfstune.rules import language

UNITS = ("bytes", "ns", "ms", "s", "percent", "count", "flag")

# When a new value is used: at once, at the next open of a dataset, at the next import of a pool,
# at the next load of the module.
MOMENTS = ("now", "open", "import", "load")


# The versions of OpenZFS whose sources were read.
READ = ("2.1.11", "2.2.9", "2.3.9", "2.4.4")


@dataclass(frozen=True)
class Search:
    """Where `zfstune tune` looks for a better value: expressions, None for the legal bound. order
    is by how much parameters matter, 1 the most."""

    order: int = 1 << 16
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True)
class Parameter:
    """A module parameter of ZFS under its Linux name; values are as the kernel has them.

    access: ``rw``; ``load``, only when the module is loaded; ``never``, zfstune does not
    write it. default, low, high, step and zero are expressions over the facts of a host
    (guard.Facts) and other parameters. Legal values are multiples of step. zero is what 0
    stands for where the kernel takes it as "not set"; a write of 0 then changes nothing, or
    with recomputes brings that value back. in_force is the key of arcstats that has the limit
    really in force where the value does not tell it. source is the place in OpenZFS that the
    bounds and effects are from, and why they are so. changes is what a write changes besides.
    takes_effect is one of MOMENTS; remains is what stays after the old value was written back,
    and how to get rid of it. since and until (the last version that has it) are for people:
    whether a parameter is there is looked up. tunes, search and follows are for `zfstune tune`:
    see default_set() and on_request(); follows is set together with that one, never by itself.
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
        """The expression of the newest version; empty when it is not known."""
        return self.defaults[-1][1] if self.defaults else ""

    def default_in(self, version: str) -> str:
        """The expression for a version of ZFS like 2.3.9-1; an unknown version is the newest."""
        here = version_key(version)
        fits = [text for since, text in self.defaults if not here or version_key(since) <= here]
        return (fits or [text for _, text in self.defaults[:1]] or [""])[-1]

    @property
    def read_in(self) -> tuple[str, ...]:
        """Of the versions whose sources were read those that have it."""
        since = version_key(self.since or "0.0")
        until = tuple(map(int, self.until.split("."))) if self.until else ()
        keys = ((version, version_key(version)) for version in READ)
        return tuple(v for v, key in keys if since <= key and key[: len(until)] <= until)

    @property
    def effect(self) -> str:
        """On latency, throughput and memory, in one paragraph."""
        return " ".join(filter(None, (self.latency, self.throughput, self.memory)))


@dataclass(frozen=True)
class Rule:
    """A coupling: ``left <= right`` or ``left < right`` in the language of rules. Both sides grow
    with each of their names (below are those of the left, above those of the right side), which is
    what the order of writes rests on. A soft rule may be overridden."""

    name: str
    text: str
    hard: bool
    reason: str
    below: tuple[str, ...]
    above: tuple[str, ...]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Of everything that it depends on, facts included."""
        return tuple(dict.fromkeys(self.below + self.above))

    def holds(self, values: Mapping[str, int]) -> bool:
        """True as well where a name has no value: then there is nothing to couple."""
        try:
            return language.holds(self.text, values)
        except language.Unknown:
            return True


def load() -> Mapping[str, Parameter]:
    """All parameters that zfstune knows, by Linux name."""
    return _read()[0]


def rules() -> tuple[Rule, ...]:
    """All couplings between them."""
    return _read()[1]


def default_set() -> tuple[str, ...]:
    """What `zfstune tune` changes unless it is told otherwise, what matters most first."""
    return _in_order(one for one in load().values() if one.tunes and not one.follows)


def on_request() -> tuple[str, ...]:
    """What it changes only when it is asked to: what takes minutes to settle."""
    return _in_order(one for one in load().values() if one.search and not one.tunes)


def _in_order(parameters: Iterable[Parameter]) -> tuple[str, ...]:
    ordered = sorted(parameters, key=lambda one: (one.search or Search()).order)
    return tuple(one.name for one in ordered)


def least(name: str, below: str, value: int) -> int:
    """The least value of a parameter when another one, below it, has this value: by the rules
    that couple just these two; 0 without such a rule."""
    found = (language.evaluate(left, {below: value}) + gap for left, gap in _between(name, below))
    return max(found, default=0)


@functools.cache
def _between(name: str, below: str) -> tuple[tuple[str, int], ...]:
    """Of these rules the left side, and by how much the parameter exceeds it."""
    split = (language.sides(rule.text) for rule in rules() if rule.below == (below,))
    return tuple((left, gap) for left, right, gap in split if right == name)


def remains(names: Iterable[str]) -> list[str]:
    """What stays after the old values of these were written back, a sentence for each."""
    found = ((name, load()[name].remains) for name in sorted(set(names)) if name in load())
    return [f"{name}: {text}" for name, text in found if text]


def default_value(name: str, version: str, known: Mapping[str, int]) -> int | None:
    """The default on a host with these facts and, of what is fixed when the module is loaded,
    these values; None when it is not known."""
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
    """Whether an expression depends on anything."""
    return bool(language.names(text))


def canonical(name: str) -> str:
    """The Linux name of a FreeBSD one; any other as it is."""
    for parameter in load().values():
        if name == parameter.freebsd:
            return parameter.name
    return name


def freebsd_names() -> dict[str, str]:
    """The sysctls of FreeBSD by Linux name."""
    return {name: one.freebsd for name, one in load().items() if one.freebsd}


def near(name: str, names: Iterable[str]) -> list[str]:
    """The names that somebody may have meant, best first; also of FreeBSD, and by parts."""
    known = sorted(set(names))
    word = name.removeprefix("vfs.zfs.").replace(".", "_").lower()
    found = [n for n in known if n in (word, f"zfs_{word}", f"zil_{word}", f"zfs_vdev_{word}")]
    found += difflib.get_close_matches(word, known, 3, 0.75)
    found += [n for n in known if len(word) >= 3 and word in n]
    found += difflib.get_close_matches(word, known, 3, 0.55)
    return list(dict.fromkeys(found))[:3]


@functools.cache
def _read() -> tuple[Mapping[str, Parameter], tuple[Rule, ...]]:
    import tomllib

    with Path(__file__).with_name("parameters.toml").open("rb") as file:
        data = tomllib.load(file)
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
