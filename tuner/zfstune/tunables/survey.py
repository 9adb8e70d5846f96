"""The parameters of a host as `zfstune params` shows them: value, default, value in force."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zfstrace.host import Host
from zfstrace.strict import strict_zip
from zfstune.errors import NotPossible, UsageError
from zfstune.tunables import catalogue, guard
from zfstune.tunables.catalogue import Parameter
from zfstune.tunables.guard import Facts, Violation

# Any parameter of ZFS on Linux; there may be more than the catalogue knows.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)


@dataclass(frozen=True)
class Row:
    """A parameter on this host. value is None if it is not a number, default if it is not known,
    in_force (what ZFS uses instead of the value) if it is not known or the same."""

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
    """The parameters of a host; no rows if ZFS is not loaded."""
    parameters = host.parameters()
    version, facts = host.version(), guard.facts(host)
    names, state = parameters.names(), guard.state(parameters)
    strange = {name: parameters.read(name) for name in names if name not in catalogue.load()}
    found = {**strange, **state}
    rows = {name: _row(name, found.get(name), version, facts, state) for name in names}
    # ignored limits have a mark of their own; rules apply to the limits in force
    violations = guard.check(guard.in_force(state, facts), facts)
    return Survey(version, facts, state, rows, violations, parameters.loading())


def require_module(survey: Survey, what: str = "look at") -> None:
    """Raises NotPossible if ZFS is not loaded."""
    if not survey.rows:
        raise NotPossible(f"cannot {what} parameters: ZFS is not loaded", f"run `{survey.loading}`")


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
    """A default computed from the memory at load is known only roughly: the kernel's count of all
    memory changes a little after boot."""
    near = default // 100 if catalogue.computed(text) else 0
    return abs(value - default) > near


def require_possible(names: Sequence[str]) -> None:
    """Raises UsageError for names that no host can have."""
    for name in names:
        if not _NAME.fullmatch(name):
            require_known([name], ())


def require_known(names: Sequence[str], here: Sequence[str]) -> list[str]:
    """The Linux names. Raises UsageError for a name that neither the host nor the catalogue has."""
    found = [catalogue.canonical(name) for name in names]
    for given, name in strict_zip(names, found):
        if name not in here and name not in catalogue.load():
            near = catalogue.near(name, [*here, *catalogue.load()])
            hint = f"did you mean {' or '.join(near)}?" if near else "see `zfstune params --all`"
            raise UsageError(f"no parameter {given!r}", hint)
    return found


def dangerous(row: Row) -> bool:
    """Whether a parameter that zfstune never sets has been changed."""
    known = row.parameter
    return row.changed and known is not None and known.access == "never" and known.until is None
