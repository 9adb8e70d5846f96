"""Judges values of parameters before they are written.

The kernel checks almost none of them, so this is the only protection. Bounds and couplings come
from the catalogue, the order of the writes from planner.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zfstrace.host import Host
from zfstrace.params import Parameters
from zfstune.errors import UsageError
from zfstune.rules import language
from zfstune.tunables import catalogue, guard
from zfstune.tunables import values as sizes
from zfstune.tunables.catalogue import Parameter, Rule
from zfstune.tunables.names import ARC_MAX, ARC_MIN

DNODES, DNODES_PERCENT = "zfs_arc_dnode_limit", "zfs_arc_dnode_limit_percent"
_ANY = (1 << 64) - 1


class Refused(UsageError):
    """No value is written. violations says why; nearest has a legal value by name, where there is
    one."""

    def __init__(self, message: str, hint: str = "", violations: Iterable[Violation] = ()) -> None:
        super().__init__(message, hint)
        self.violations = tuple(violations)
        self.nearest = {n: v for found in self.violations for n, v in found.nearest.items()}


@dataclass(frozen=True)
class Facts:
    """Facts of a host: sizes in bytes, 0 if unknown. arc_c_min, arc_c_max, arc_sys_free and
    arc_dnode_limit are limits in force, arc_held what cannot be evicted from the ARC.
    arc_meta_min and arc_meta_limit exist only in 2.1.

    largest_block is not measured. zfs_max_recordsize would be an upper bound, but since 2.2 it is
    16 MiB whatever the datasets use: by that, the default of zfs_dirty_data_max would be too small
    on hosts with little memory. statvfs(2) knows the records of datasets in use, but may wait for a
    suspended pool just when a restore must not. With larger records writers take turns at the least
    limit; a division by zero is no nearer.
    """

    memory_bytes: int
    arc_c_min: int
    arc_c_max: int
    largest_block: int = 1 << 20
    arc_held: int = 0
    arc_sys_free: int = 0
    arc_dnode_limit: int = 0
    arc_meta_min: int = 0
    arc_meta_limit: int = 0

    def values(self) -> dict[str, int]:
        """The known facts, by their names in the catalogue."""
        return dict(self._values)

    def limits(self) -> dict[str, int]:
        """The known limits of the ARC in force, by parameter."""
        return dict(self._limits)

    @functools.cached_property
    def _values(self) -> dict[str, int]:
        named = {
            "memory": self.memory_bytes,
            "arc_c_min": self.arc_c_min,
            "arc_c_max": self.arc_c_max,
            "arc_sys_free": self.arc_sys_free,
            "arc_dnode_limit": self.arc_dnode_limit,
        }
        known = {name: value for name, value in named.items() if value}
        return known | {"largest_block": self.largest_block}

    @functools.cached_property
    def _limits(self) -> dict[str, int]:
        named = ((p.name, _fact(p.in_force)) for p in _limiting() if p.in_force)
        return {name: self._values[fact] for name, fact in named if fact in self._values}


@dataclass(frozen=True)
class Violation:
    """A broken bound (rule is "low", "high" or "step") or rule. nearest has for each name the
    nearest legal value if nothing else changes."""

    rule: str
    names: tuple[str, ...]
    reason: str
    nearest: dict[str, int]
    hard: bool = True


def facts(host: Host) -> Facts:
    """The facts that bounds and rules depend on. Never raises."""
    arc = host.kstat("arcstats")
    evictable = [
        value
        for name, value in arc.items()
        if name.endswith(("_evictable_data", "_evictable_metadata")) and "ghost" not in name
    ]
    return Facts(
        # all memory, as the module sees it
        memory_bytes=arc.get("memory_all_bytes", 0) or host.memory_bytes(),
        arc_c_min=arc.get("c_min", 0),
        arc_c_max=arc.get("c_max", 0),
        arc_held=max(0, arc.get("size", 0) - sum(evictable)) if evictable else 0,
        arc_sys_free=arc.get("arc_sys_free", 0),
        arc_dnode_limit=arc.get("arc_dnode_limit", 0),
        arc_meta_min=arc.get("arc_meta_min", 0),
        arc_meta_limit=arc.get("arc_meta_limit", 0),
    )


@functools.cache
def _limiting() -> tuple[Parameter, ...]:
    return tuple(one for one in catalogue.load().values() if one.in_force)


def _fact(key: str) -> str:
    """The name of the fact for a limit in arcstats."""
    return key if key.startswith("arc_") else f"arc_{key}"


def limits(stats: Mapping[str, int]) -> dict[str, int]:
    """The limits in force by parameter, from arcstats."""
    named = ((p.name, p.in_force) for p in _limiting() if p.in_force)
    return {name: stats[key] for name, key in named if key in stats}


def lasting(stats: Mapping[str, int]) -> dict[str, int]:
    """The limits in force that stay when 0 is written: only writing the number restores them."""
    return {n: v for n, v in limits(stats).items() if not catalogue.load()[n].recomputes}


def state(parameters: Parameters, also: Iterable[str] = ()) -> dict[str, int]:
    """The values of all parameters of the catalogue that a host has, and of others by name."""
    found = ((name, parameters.read(name)) for name in sorted({*catalogue.load(), *also}))
    return {name: value for name, value in found if value is not None}


def in_force(now: Mapping[str, int], facts: Facts) -> dict[str, int]:
    """The present values, with the limits of the ARC that are really in force: Linux keeps a value
    that ZFS ignores (module/zfs/arc.c, arc_tuning_update())."""
    return {**now, **{name: limit for name, limit in facts.limits().items() if name in now}}


def values(state: Mapping[str, int], facts: Facts) -> dict[str, int]:
    """What expressions of the catalogue refer to: facts, and values, with 0 replaced by what it
    stands for."""
    known = facts.values()
    out = {**known, **state}
    for name, zero in _zeros():
        if state.get(name) == 0:
            meant = _evaluate(zero, known)
            if meant is None:
                del out[name]
            else:
                out[name] = meant
    return out


@functools.cache
def _zeros() -> tuple[tuple[str, str], ...]:
    return tuple((one.name, one.zero) for one in catalogue.load().values() if one.zero)


def bounds(name: str, state: Mapping[str, int], facts: Facts) -> tuple[int | None, int | None]:
    """The least and the largest legal value here, other parameters aside; None for no bound."""
    return _bounds(catalogue.load()[name], values(state, facts))


def nearest(name: str, state: Mapping[str, int], facts: Facts) -> int | None:
    """The legal value nearest to the one in state if nothing else changes; None if none exists."""
    return _nearest(name, values(state, facts))


def at_load(given: Mapping[str, int], version: str, facts: Facts) -> dict[str, int]:
    """The values after this version of ZFS has been loaded with these options.

    The other parameters have their defaults, if the catalogue knows them. A computed default
    follows the given values, and a given 0 means that it is computed. A limit of the ARC that is
    not given stays 0: no present fact tells what the module will make of it.
    """
    known, out = facts.values(), dict[str, int]()

    def value(name: str) -> int | None:
        text = catalogue.load()[name].default_in(version)
        others = language.names(text) if text else ()
        if name in given and (given[name] or not others):
            return given[name]
        for other in others:
            found = value(other) if other in catalogue.load() else None
            if found is not None:
                known[other] = found
        return _evaluate(text or None, known)

    for name in catalogue.load():
        found = value(name)
        if found is not None:
            out[name] = found
    return out


# --- judge


def check(state: Mapping[str, int], facts: Facts) -> list[Violation]:
    """All violations of bounds and rules by these values."""
    env = values(state, facts)
    found = [violation for name in state if (violation := _outside(name, state, env))]
    return found + [_broken(rule, state, env) for rule in catalogue.rules() if not rule.holds(env)]


def _outside(name: str, state: Mapping[str, int], env: Mapping[str, int]) -> Violation | None:
    parameter = catalogue.load().get(name)
    if parameter is None or parameter.access != "rw" or (parameter.zero and not state[name]):
        return None
    value, (low, high) = state[name], _bounds(parameter, env)
    if low is not None and value < low:
        rule, reason = "low", f"less than {sizes.show(low, parameter.unit)} is not safe"
        reason = parameter.hazard or reason
    elif high is not None and value > high:
        rule = "high"
        reason = f"more than {sizes.show(high, parameter.unit)} makes no sense here"
    elif value % _step(parameter, env):
        rule, reason = "step", parameter.hazard or "ZFS rounds other values, or uses them as given"
    else:
        return None
    near = _nearest(name, env)
    return Violation(rule, (name,), reason, {} if near is None else {name: near})


def _broken(rule: Rule, state: Mapping[str, int], env: Mapping[str, int]) -> Violation:
    near = {n: _nearest(n, env) for n in rule.names if n in state}
    legal = {n: value for n, value in near.items() if value is not None}
    names = tuple(n for n in rule.names if n in catalogue.load())
    return Violation(rule.name, names, rule.reason, legal, rule.hard)


def _evaluate(text: str | None, env: Mapping[str, int]) -> int | None:
    try:
        return None if text is None else language.evaluate(text, env)
    except language.Unknown:
        return None


def _bounds(parameter: Parameter, env: Mapping[str, int]) -> tuple[int | None, int | None]:
    return _evaluate(parameter.low, env), _evaluate(parameter.high, env)


def _step(parameter: Parameter, env: Mapping[str, int]) -> int:
    return _evaluate(parameter.step, env) or 1


def _nearest(name: str, env: Mapping[str, int]) -> int | None:
    """The nearest value within the bounds and all rules if the others stay; None if none exists."""
    parameter = catalogue.load().get(name)
    if parameter is None or parameter.access != "rw" or name not in env:
        return None
    least, most = _bounds(parameter, env)
    low, high = least or 0, _ANY if most is None else most
    for rule in catalogue.rules():
        if low > high:
            return None
        if name in rule.below:
            if not rule.holds({**env, name: low}):
                return None
            high = _last(rule, name, env, low, high)
        elif name in rule.above:
            if not rule.holds({**env, name: high}):
                return None
            low = _first(rule, name, env, low, high)
    step = _step(parameter, env)
    low, high = -(-low // step) * step, high // step * step
    return min(max((env[name] + step // 2) // step * step, low), high) if low <= high else None


def _last(rule: Rule, name: str, env: Mapping[str, int], low: int, high: int) -> int:
    """The largest value for which the rule holds; it holds for low."""
    if rule.holds({**env, name: high}):
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if rule.holds({**env, name: middle}):
            low = middle
        else:
            high = middle - 1
    return low


def _first(rule: Rule, name: str, env: Mapping[str, int], low: int, high: int) -> int:
    """The least value for which the rule holds; it holds for high."""
    if rule.holds({**env, name: low}):
        return low
    while low < high:
        middle = (low + high) // 2
        if rule.holds({**env, name: middle}):
            high = middle
        else:
            low = middle + 1
    return high


def refuse(now: Mapping[str, int], wanted: Mapping[str, int], facts: Facts, force: bool) -> None:
    """Raises Refused if these values must not be written."""
    for name, value in wanted.items():
        _refuse_name(name, value, now, facts)
    before = in_force(now, facts)
    after = {**before, **wanted}
    env = values(after, facts)
    changed = [name for name, value in wanted.items() if value != before.get(name)]
    for name in changed:
        if violation := _outside(name, after, env):
            raise _refused(violation, name, after, facts)
    for rule in dict.fromkeys(rule for name in changed for rule in _touching(name)):
        # a soft rule that is already broken does not block other changes
        if not rule.holds(env) and (rule.hard or (not force and rule.holds(values(before, facts)))):
            violation = _broken(rule, after, env)
            name = next(name for name in violation.names if name in changed)
            raise _refused(violation, name, after, facts)
    _refuse_held(wanted, facts)
    _refuse_stale(now, wanted, facts)
    _refuse_lasting(before, wanted, facts)
    _refuse_dnodes(now, wanted, facts)


@functools.cache
def _touching(name: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in catalogue.rules() if name in rule.names)


def _refuse_name(name: str, value: int, now: Mapping[str, int], facts: Facts) -> None:
    parameter = catalogue.load().get(name)
    if parameter is None:
        near = catalogue.near(name, now)
        hint = f"did you mean {' or '.join(near)}?" if near else "see `zfstune params list --all`"
        raise Refused(f"cannot set {name}: zfstune does not know it", hint)
    if parameter.access == "never":
        why = _first_sentence(parameter.hazard)
        raise Refused(f"will not set {name}, not even with --force: {why}")
    if parameter.access == "load":
        raise Refused(
            f"cannot set {name}: it takes effect only when the module is loaded",
            "set it in /etc/modprobe.d or, on FreeBSD, in /boot/loader.conf",
        )
    if name not in now:
        raise Refused(f"cannot set {name}: this ZFS does not have it", "leave it out")
    if parameter.zero and value == 0 and now[name] and not parameter.recomputes:
        known = _evaluate(parameter.zero, facts.values())
        legal = {} if known is None else {name: known}
        hint = "" if known is None else f"write {name}={sizes.short(known, parameter.unit)}"
        # the limit in force is what was set, not what 0 stood for
        if parameter.in_force:
            hint = "restore it with `zfstune revert`"
        raise Refused(
            f"cannot set {name} to 0: for ZFS, 0 means not set and changes nothing",
            hint,
            [Violation("zero", (name,), "0 changes nothing", legal)],
        )


def _refuse_held(wanted: Mapping[str, int], facts: Facts) -> None:
    """With a limit of the ARC below what cannot be evicted, allocations wait for room."""
    limit = wanted.get(ARC_MAX, _ANY)
    if 0 < limit < min(facts.arc_held, facts.arc_c_max):
        least = -(-facts.arc_held // (1 << 20)) << 20
        why = f"{sizes.show(least, 'bytes')} of the ARC cannot be evicted now"
        raise Refused(
            f"cannot set {ARC_MAX} to {sizes.short(limit, 'bytes')}: {why}, so allocations would "
            "wait for room",
            f"use {ARC_MAX}={sizes.short(least, 'bytes')}",
            [Violation("held", (ARC_MAX,), why, {ARC_MAX: least})],
        )


def _refuse_stale(now: Mapping[str, int], wanted: Mapping[str, int], facts: Facts) -> None:
    """A limit of the ARC that ZFS now ignores could take effect when another one changes."""
    if not any(name.startswith("zfs_arc_") for name in wanted):
        return
    for name, limit in stale(now, facts).items():
        if name not in wanted:
            raise Refused(
                f"cannot set only that: {name} is {now[name]}, which ZFS ignores ({limit} is in "
                "force) but may use later",
                f"add {name}={limit}",
                [Violation("ignored", (name,), "ZFS ignores the value", {name: limit})],
            )


def stale(now: Mapping[str, int], facts: Facts) -> dict[str, int]:
    """The limits in force of parameters of the ARC whose value is another one."""
    in_force = facts.limits().items()
    return {n: limit for n, limit in in_force if now.get(n) not in (None, 0, limit)}


def _refuse_lasting(before: Mapping[str, int], wanted: Mapping[str, int], facts: Facts) -> None:
    """A limit that could not be restored must not change."""
    for name in (n for n, v in wanted.items() if v != before.get(n)):
        parameter = catalogue.load()[name]
        if not parameter.in_force or parameter.recomputes:
            continue
        limit = facts.limits().get(name)
        if limit is None:
            raise Refused(
                f"cannot set {name}: the limit in force is not known and could not be restored"
            )
        low, _ = bounds(name, before, facts)
        # the kernel has the same bounds for these
        if name in (ARC_MIN, ARC_MAX) and low is not None and limit < low:
            raise Refused(
                f"cannot set {name}: {sizes.show(limit, parameter.unit)} is in force, which ZFS "
                "would not accept again"
            )


def _refuse_dnodes(now: Mapping[str, int], wanted: Mapping[str, int], facts: Facts) -> None:
    """2.1 accepts no limit for dnodes below arc_meta_min, nor one computed from a percentage. A
    lower limit, or one left from another size of the ARC, cannot be restored once it has moved."""
    if not facts.arc_meta_limit or now.get(DNODES):
        return
    limit, cache = facts.arc_dnode_limit, wanted.get(ARC_MAX, facts.arc_c_max)
    share = min(now.get(DNODES_PERCENT, 0), 100)
    left = limit != share * facts.arc_meta_limit // 100
    moves = {
        DNODES: wanted.get(DNODES, 0) != 0,
        DNODES_PERCENT: wanted.get(DNODES_PERCENT, share) != share,
        ARC_MAX: cache > facts.arc_c_max or (left and cache < facts.arc_c_max),
    }
    for name in (name for name, moved in moves.items() if moved):
        if left or limit < facts.arc_meta_min:
            raise Refused(
                f"cannot set {name}: the ARC's limit for dnodes, now {sizes.show(limit, 'bytes')}, "
                "would move with it, and ZFS 2.1 would not accept that again"
            )


def _refused(violation: Violation, name: str, after: Mapping[str, int], facts: Facts) -> Refused:
    what = f"cannot set {name} to {sizes.show(after[name], catalogue.load()[name].unit)}"
    hint = advice(violation, name) + ("" if violation.hard else ", or override this with --force")
    return Refused(f"{what}: {_why(violation, after, facts)}", hint, [violation])


def _why(violation: Violation, state: Mapping[str, int], facts: Facts) -> str:
    name = violation.names[0]
    if violation.rule == "step":
        parameter = catalogue.load()[name]
        shown = sizes.show(_step(parameter, values(state, facts)), parameter.unit)
        return f"it must be a multiple of {shown} ({_first_sentence(violation.reason)})"
    if violation.rule in ("low", "high"):
        limit = bounds(name, state, facts)[violation.rule == "high"] or 0
        side = "minimum" if violation.rule == "low" else "maximum"
        shown = sizes.show(limit, catalogue.load()[name].unit)
        return f"the {side} is {shown} ({_first_sentence(violation.reason)})"
    rule = next(rule for rule in catalogue.rules() if rule.name == violation.rule)
    return f"{rule.text} must hold, {violation.reason}"


def broken(violation: Violation, state: Mapping[str, int], facts: Facts) -> str:
    """What is wrong with the present values, in one sentence."""
    env = values(in_force(state, facts), facts)
    named = [
        f"{name} is {sizes.show(env[name], catalogue.load()[name].unit)}"
        for name in violation.names
        if name in env
    ]
    return f"{', '.join(named)}: {_why(violation, state, facts)}"


def advice(violation: Violation, name: str) -> str:
    """What to do, as an imperative: values that make it legal, the one for name first."""
    order = sorted(violation.nearest, key=lambda other: (other != name, other))
    ways = [
        f"{'use' if other == name else 'also set'} "
        f"{other}={sizes.short(violation.nearest[other], catalogue.load()[other].unit)}"
        for other in order
    ]
    return " or ".join(ways) or "change the others first"


def _first_sentence(text: str) -> str:
    first = text.split(". ")[0].rstrip(".")
    return first[:1].lower() + first[1:] if first[:2].istitle() else first


def broken_by(
    values: Mapping[str, int], current: Mapping[str, int], facts: guard.Facts
) -> list[guard.Violation]:
    """The violations for which the guard would refuse these changes. A soft rule that is already
    broken, by an administrator's choice, does not count."""
    before = guard.in_force(current, facts)
    had = {found.rule for found in guard.check(before, facts) if not found.hard}
    changed = {name for name, value in values.items() if value != before.get(name)}
    return [
        found
        for found in guard.check({**before, **values}, facts)
        if changed.intersection(found.names) and (found.hard or found.rule not in had)
    ]
