"""What `zfstune params explain` says about a parameter."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from zfstrace.types import SCHEMA, Json
from zfstune.term.table import Style, wrap
from zfstune.tunables import catalogue, guard
from zfstune.tunables import values as sizes
from zfstune.tunables.catalogue import Parameter, Rule
from zfstune.tunables.names import DELAY_MIN, DIRTY, WRLOG
from zfstune.tunables.survey import Row, Survey

_INDENT = "  "
_LABEL = 14


def paragraphs(name: str, survey: Survey, style: Style) -> list[str]:
    """All lines on a parameter, with its values on this host."""
    parameter = catalogue.load().get(name)
    row = survey.rows.get(name)
    if parameter is None:
        text = f"zfstune does not know it, and does not set it; see zfs(4). {_value(row)}"
        return [style.paint(name, "bold"), *wrap(text, _INDENT)]
    lines = [style.paint(name, "bold"), *wrap(parameter.what, _INDENT), ""]
    lines += _here(parameter, row, survey)
    lines += _effects(parameter)
    lines += _writes(parameter)
    lines += _coupled(parameter, survey, style)
    lines += _labelled("hazard", parameter.hazard)
    return lines + _labelled("set by", _set_by(parameter)) + _labelled("names", _names(parameter))


def as_json(names: Sequence[str], survey: Survey) -> Json:
    """A ``params_explain`` object of the schema: null for what is unknown or not on this host."""
    return {
        "schema": SCHEMA,
        "type": "params_explain",
        "version": survey.version,
        "parameters": [_entry(name, survey.rows.get(name)) for name in names],
    }


def _entry(name: str, row: Row | None) -> Json:
    entry: Json = {
        "name": name,
        "value": row.value if row else None,
        "low": row.low if row else None,
        "high": row.high if row else None,
    }
    parameter = catalogue.load().get(name)
    if parameter is None:
        return entry
    plain = {
        one.name: getattr(parameter, one.name)
        for one in dataclasses.fields(parameter)
        if one.name not in ("name", "low", "high", "defaults", "search", "follows")
    }
    return entry | {
        **plain,
        "default": row.default if row else None,
        "least": parameter.low,
        "most": parameter.high,
        "defaults": dict(parameter.defaults),
        "read_in": list(parameter.read_in),
        "goes_back": goes_back(parameter),
    }


def _labelled(label: str, text: str) -> list[str]:
    """A label with a wrapped text beside it; [] for an empty text."""
    if not text:
        return []
    first, *rest = wrap(text, " " * (_LABEL + len(_INDENT)))
    return [f"{_INDENT}{label:<{_LABEL}}{first.strip()}", *rest]


def _value(row: Row | None) -> str:
    if row is None:
        return ""
    return "Its value is text." if row.value is None else f"Its value is {row.value}."


def exact(value: int, unit: str) -> str:
    """A value for people, followed by the kernel's number if that differs."""
    text = sizes.show(value, unit)
    return f"{text} ({value})" if unit == "bytes" and value >= 1024 else text


# --- here


def _here(parameter: Parameter, row: Row | None, survey: Survey) -> list[str]:
    if row is None:
        why = "ZFS is not loaded" if not survey.rows else f"ZFS {survey.version} does not have it"
        lines = _labelled("here", why) + _labelled("default", _formula(parameter))
        return lines + _range(parameter, None)
    if row.value is None:
        return _labelled("here", "its value is text")
    state = "changed" if row.changed else "the default" if row.default is not None else ""
    here = ", ".join(filter(None, (exact(row.value, row.unit), state)))
    if row.in_force is not None:
        sense = "ZFS ignores the value" if row.ignored else "0 stands for that"
        here += f"; {exact(row.in_force, row.unit)} is in force, {sense}"
    default = _formula(parameter)
    if row.default is not None and catalogue.computed(parameter.default):
        default = f"{sizes.show(row.default, row.unit)}, as {default}"
    lines = _labelled("here", here) + _labelled("default", default)
    lines += _range(parameter, row)
    for violation in survey.violations:
        if parameter.name in violation.names:
            text = guard.broken(violation, survey.state, survey.facts)
            lines += _labelled("WRONG", f"{text}; {guard.advice(violation, parameter.name)}")
    return lines


def _formula(parameter: Parameter) -> str:
    """The expression of the default, by version if it differs."""
    if not parameter.defaults:
        return "computed by ZFS"
    if len(parameter.defaults) == 1:
        return _with_unit(parameter.default, parameter.unit)
    (_, first), *others = parameter.defaults
    parts = [f"{_with_unit(text, parameter.unit)} since {since}" for since, text in others[::-1]]
    return ", ".join([*parts, f"{_with_unit(first, parameter.unit)} before"])


def _with_unit(text: str, unit: str) -> str:
    return sizes.show(int(text), unit) if text.isdigit() else text


def _range(parameter: Parameter, row: Row | None) -> list[str]:
    """Bounds, and the meaning of 0."""
    if parameter.access != "rw":
        return []
    step = f" in steps of {parameter.step}" if parameter.step else ""
    bounds = _bounds(parameter, row) if row else f"{parameter.low} to {parameter.high}"
    return _labelled("bounds", bounds + step) + _labelled("zero", _zero(parameter))


def _bounds(parameter: Parameter, row: Row) -> str:
    low = "" if row.low is None else sizes.show(row.low, row.unit)
    high = "" if row.high is None else sizes.show(row.high, row.unit)
    formulas = {
        side: text
        for side, text in (("least", parameter.low), ("most", parameter.high))
        if text and catalogue.computed(text)
    }
    how = "; ".join(f"{side} = {text}" for side, text in formulas.items())
    return f"{low or 'no minimum'} to {high or 'no maximum'}" + (f" ({how})" if how else "")


def _zero(parameter: Parameter) -> str:
    """What 0 stands for; "" where it is an ordinary number."""
    if parameter.zero is None:
        return ""
    meant = _with_unit(parameter.zero, parameter.unit)
    if parameter.in_force and not parameter.recomputes:
        meant = "what was computed at load"
    then = "writing it restores that" if parameter.recomputes else "writing it changes nothing"
    return f"0 stands for {meant}; {then}"


# --- what is always so


def _effects(parameter: Parameter) -> list[str]:
    lines = _labelled("latency", parameter.latency) + _labelled("throughput", parameter.throughput)
    return lines + _labelled("memory", parameter.memory)


def _writes(parameter: Parameter) -> list[str]:
    """What a write does, when, and what remains of it after the old value was written back."""
    lines = _labelled("takes effect", takes_effect(parameter))
    lines += _labelled("changes", parameter.changes)
    lines += _labelled("goes back", goes_back(parameter))
    lines += _labelled("remains", parameter.remains)
    if parameter.source:
        read = f"{parameter.source} (read in {', '.join(parameter.read_in)})"
        lines += _labelled("source", read)
    return lines


_MOMENTS = {
    "open": "when a dataset or volume is opened (mounted), not before",
    "import": "when a pool is imported or created, not before",
}


def takes_effect(parameter: Parameter) -> str:
    """When a new value takes effect; "" if it cannot be set."""
    if parameter.takes_effect != "now":
        return _MOMENTS.get(parameter.takes_effect, "")
    if parameter.settle_txgs:
        return f"at once, fully after {parameter.settle_txgs} txgs"
    return parameter.settles


def goes_back(parameter: Parameter) -> str:
    """How `zfstune revert` undoes a write; "" if there is none."""
    if parameter.access != "rw":
        return ""
    if not parameter.zero or parameter.recomputes:
        return "the previous value is written"
    if parameter.in_force:
        return (
            "if it was 0, the previous limit is written as a number, then 0; "
            f"{parameter.in_force} in arcstats shows that it is in force"
        )
    return f"if it was 0, {parameter.zero} is written, then 0"


def _coupled(parameter: Parameter, survey: Survey, style: Style) -> list[str]:
    lines: list[str] = []
    for rule in catalogue.rules():
        if parameter.name in rule.names:
            label = "coupled" if not lines else ""
            text = f"{rule.text}, {rule.reason}"
            lines += _labelled(label, f"{text}.{_soft(rule)}{_present(rule, parameter, survey)}")
    return lines + _labelled("order", _order(parameter.name))


def _soft(rule: Rule) -> str:
    return "" if rule.hard else " --force overrides this."


def _present(rule: Rule, parameter: Parameter, survey: Survey) -> str:
    """The present values of the other parameters."""
    values = guard.values(guard.in_force(survey.state, survey.facts), survey.facts)
    others = [
        f"{name} is {sizes.show(values[name], catalogue.load()[name].unit)}"
        for name in rule.names
        if name != parameter.name and name in values and name in catalogue.load()
    ]
    return f" Here {', '.join(others)}." if others else ""


def _order(name: str) -> str:
    """The safe order by the rules."""
    above = [n for rule in catalogue.rules() if name in rule.below for n in rule.above]
    below = [n for rule in catalogue.rules() if name in rule.above for n in rule.below]
    parts = []
    if above:
        names = " and ".join(dict.fromkeys(above))
        parts.append(f"raised after and lowered before {names}")
    if below:
        names = " and ".join(dict.fromkeys(below))
        parts.append(f"raised before and lowered after {names}")
    if name in (DIRTY, WRLOG):
        parts.append(f"while it is lowered, {DELAY_MIN} is 100")
    return "; ".join(parts)


def _set_by(parameter: Parameter) -> str:
    if parameter.access == "never":
        return "never by zfstune, not even with --force"
    if parameter.access == "load":
        return "options when the module is loaded; not later, and not by zfstune"
    return "`zfstune tune` and `params set`" if parameter.tunes else "`zfstune params set`"


def _names(parameter: Parameter) -> str:
    names = [parameter.name] if parameter.linux else []
    names += [f"{parameter.freebsd} on FreeBSD"] if parameter.freebsd else ["Linux only"]
    span = [f"since {parameter.since}"] if parameter.since else []
    span += [f"up to {parameter.until}"] if parameter.until else []
    return ", ".join(names) + (f"; in ZFS {' '.join(span)}" if span else "")
