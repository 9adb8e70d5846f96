"""The parameters of a host as `zfstune params` shows them: values, defaults, what is in force."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zfstrace.host import Host
from zfstune.errors import NotPossible, UsageError
from zfstune.tunables import catalogue, guard
from zfstune.tunables.catalogue import Parameter
from zfstune.tunables.guard import Facts, Violation

# All that ZFS has on Linux; there may be more of them than the catalogue knows.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)


@dataclass(frozen=True)
class Row:
    """A parameter as it is here. value is None when it is no number; default and in_force (what
    ZFS uses instead of the value) when that is not known or the same."""

    name: str
    parameter: Parameter | None
    value: int | None
    default: int | None
    in_force: int | None
    changed: bool
    ignored: bool
    low: int | None
    high: int | None

    @property
    def unit(self) -> str:
        return self.parameter.unit if self.parameter else "count"


@dataclass(frozen=True)
class Survey:
    """All parameters of a host; loading is the command that loads the module."""

    version: str
    facts: Facts
    state: dict[str, int]
    rows: dict[str, Row]
    violations: list[Violation]
    loading: str = "modprobe zfs"


def look(host: Host) -> Survey:
    """What the host has; without rows where ZFS is not loaded."""
    parameters = host.parameters()
    version, facts = host.version(), guard.facts(host)
    names, state = parameters.names(), guard.state(parameters)
    strange = {name: parameters.read(name) for name in names if name not in catalogue.load()}
    found = {**strange, **state}
    rows = {name: _row(name, found.get(name), version, facts, state) for name in names}
    # a limit that ZFS ignores is marked as that; rules are about those in force
    violations = guard.check(guard.in_force(state, facts), facts)
    return Survey(version, facts, state, rows, violations, parameters.loading())


def require_module(survey: Survey, what: str = "look at") -> None:
    """Raises NotPossible when ZFS is not loaded."""
    if not survey.rows:
        raise NotPossible(f"cannot {what} parameters, ZFS is not loaded, run `{survey.loading}`")


def _row(name: str, value: int | None, version: str, facts: Facts, state: Mapping[str, int]) -> Row:
    parameter = catalogue.load().get(name)
    if parameter is None or value is None:
        return Row(name, parameter, value, None, None, False, False, None, None)
    default = catalogue.default_value(name, version, {**state, **facts.values()})
    in_force = guard.values(guard.in_force(state, facts), facts).get(name)
    low, high = guard.bounds(name, state, facts)
    return Row(
        name,
        parameter,
        value,
        default,
        None if in_force == value else in_force,
        default is not None and _differs(value, default, parameter.default_in(version)),
        bool(value) and in_force not in (None, value),
        low,
        high,
    )


def _differs(value: int, default: int, text: str) -> bool:
    """A default that was computed from the memory when the module was loaded is known only
    roughly: the kernel's idea of all memory changes a little after boot."""
    near = default // 100 if catalogue.computed(text) else 0
    return abs(value - default) > near


def require_possible(names: Sequence[str]) -> None:
    """Raises UsageError for what is no parameter of any host."""
    for name in names:
        if not _NAME.fullmatch(name):
            require_known([name], ())


def require_known(names: Sequence[str], here: Sequence[str]) -> list[str]:
    """The Linux names. Raises UsageError for one that neither the host nor the catalogue has."""
    found = [catalogue.canonical(name) for name in names]
    for given, name in zip(names, found, strict=True):
        if name not in here and name not in catalogue.load():
            near = catalogue.near(name, [*here, *catalogue.load()])
            hint = f"did you mean {' or '.join(near)}?" if near else "see `zfstune params --all`"
            raise UsageError(f"no parameter {given!r}, {hint}")
    return found


def dangerous(row: Row) -> bool:
    """Whether somebody has set what zfstune never sets."""
    known = row.parameter
    return row.changed and known is not None and known.access == "never" and known.until is None
