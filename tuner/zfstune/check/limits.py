"""Limits and values as the guidelines of the monitoring plugins write them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zfstune.check.metrics import METRICS
from zfstune.errors import UsageError
from zfstune.term.units import (
    SECOND,
    format_count,
    format_percent,
    format_size,
    format_time,
    parse_size,
    parse_time,
)


@dataclass(frozen=True)
class Unit:
    """How a kind of value is read (raises ValueError), shown to people, and written as perfdata:
    uom is its unit there, of which one is this many of ours."""

    read: Callable[[str], float]
    show: Callable[[float], str]
    uom: str
    one: float
    example: str


def _number(text: str, suffix: str) -> float:
    match = re.fullmatch(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,6}})?)\s?(?:{suffix})?", text)
    if not match:
        raise ValueError(f"{text!r} is not a number")
    return float(match[1])


UNITS = {
    "time": Unit(parse_time, lambda v: format_time(round(v)), "s", SECOND, "20ms"),
    "share": Unit(
        lambda text: _number(text, "%"), lambda v: format_percent(v / 100), "%", 1, "80%"
    ),
    "rate": Unit(
        lambda text: _number(text, "/s"),
        lambda v: f"{v:.1f}/s" if v < 100 else f"{v:,.0f}/s",
        "",
        1,
        "100/s",
    ),
    "count": Unit(lambda text: _number(text, ""), lambda v: format_count(round(v)), "", 1, "10"),
    "size": Unit(parse_size, lambda v: format_size(round(v)), "B", 1, "4G"),
}


@dataclass(frozen=True)
class Limit:
    """A range [low, high] in the metric's unit; a value is bad outside or, with inside, inside."""

    low: float
    high: float
    inside: bool = False

    def bad(self, value: float) -> bool:
        return (self.low <= value <= self.high) is self.inside

    def perfdata(self, unit: Unit) -> str:
        """As the guidelines want it, without units."""
        high = "" if self.high == math.inf else plain(self.high / unit.one)
        low = "~:" if self.low == -math.inf else f"{plain(self.low / unit.one)}:"
        if self.low == 0 and high:
            low = ""
        return f"{'@' if self.inside else ''}{low}{high}"

    def words(self, unit: Unit) -> str:
        """For people: "limit 20.0 ms"."""
        low = "" if self.low in (0, -math.inf) else unit.show(self.low)
        high = "" if self.high == math.inf else unit.show(self.high)
        if self.inside:
            return f"bad from {low or 0} to {high or 'any'}"
        if low and high:
            return f"limits {low} and {high}"
        return f"limit {high or low or 0}"


def plain(value: float) -> str:
    """Digits, and at most one point: perfdata has no exponents."""
    text = f"{value:.9f}"
    return text.rstrip("0").rstrip(".") or "0"


def parse(given: Sequence[str]) -> dict[str, Limit]:
    """Limits by metric, from the values of an option. Raises UsageError."""
    found: dict[str, Limit] = {}
    for word in (word for one in given for word in one.split(",")):
        name, equals, text = word.partition("=")
        known(name)
        unit = UNITS[METRICS[name].unit]
        if not equals or not text:
            raise UsageError(f"{word!r} has no limit", f"write {name}={unit.example}")
        if name in found:
            raise UsageError(f"{name} has two limits of one kind", "give one")
        found[name] = _range(name, text, unit)
    return found


def known(name: str) -> None:
    """Raises UsageError for a metric that does not exist."""
    if name not in METRICS:
        near = difflib.get_close_matches(name, METRICS, 1)
        hint = f"did you mean {near[0]}?" if near else "see `zfstune check --list`"
        raise UsageError(f"no metric {name!r}", hint)


def _range(name: str, text: str, unit: Unit) -> Limit:
    inside = text.startswith("@")
    start, colon, end = (
        text.lstrip("@").partition(":") if ":" in text else ("0", ":", text[inside:])
    )
    hint = f"write {name}={unit.example}, or a range such as {unit.example}:"
    try:
        low = -math.inf if start == "~" else 0 if start in ("", "0") else unit.read(start)
        high = math.inf if end == "" else 0 if end == "0" else unit.read(end)
    except ValueError as error:
        what, _, _ = str(error).partition("\n")
        raise UsageError(f"{name}={text}: {what}", hint) from None
    if text.startswith("@@") or not colon or low > high or text in ("@", ":"):
        raise UsageError(f"{name}={text} is not a range", hint)
    return Limit(low, high, inside)
