"""Judges the metrics of a pool, and writes the line, its perfdata and the JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zfstrace.clock import iso_now
from zfstrace.printable import printable
from zfstrace.types import SCHEMA, Json
from zfstune.check.limits import UNITS, Limit, plain
from zfstune.check.metrics import Metric, Seen

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
# the worst last
_ORDER = (OK, UNKNOWN, WARNING, CRITICAL)


@dataclass(frozen=True)
class Judged:
    """A metric, its value in the metric's unit (None: not known), and the status. why says why it
    is not known."""

    metric: Metric
    value: float | None
    status: int
    warn: Limit | None = None
    crit: Limit | None = None
    why: str = ""

    def text(self) -> str:
        """A part of the line."""
        unit = UNITS[self.metric.unit]
        if self.value is None:
            return f"{self.metric.name} {self.why}"
        broken = self.crit if self.status == CRITICAL else self.warn
        over = f" ({broken.words(unit)})" if broken and self.status in (WARNING, CRITICAL) else ""
        return f"{self.metric.name} {unit.show(self.value)}{over}"

    def perfdata(self) -> str:
        """``'label'=value[UOM];[warn];[crit];[min];[max]``, U for a value that is not known."""
        unit = UNITS[self.metric.unit]
        value = "U" if self.value is None else plain(self.value / unit.one) + unit.uom
        limits = [limit.perfdata(unit) if limit else "" for limit in (self.warn, self.crit)]
        most = "" if self.metric.most is None else plain(self.metric.most / unit.one)
        label = self.metric.name.replace("'", "''")
        return ";".join([f"'{label}'={value}", *limits, "0", most]).rstrip(";")

    def to_json(self) -> Json:
        """An entry of ``metrics``; values and limits in the unit, times in s."""
        unit = UNITS[self.metric.unit]
        return {
            "name": self.metric.name,
            "value": None if self.value is None else self.value / unit.one,
            "unit": unit.uom or {"rate": "/s"}.get(self.metric.unit, ""),
            "status": WORDS[self.status],
            "warn": self.warn.perfdata(unit) if self.warn else None,
            "crit": self.crit.perfdata(unit) if self.crit else None,
            "why": self.why or None,
        }


def judge(
    metric: Metric,
    seen: Seen,
    errors: Mapping[str, str],
    warn: Limit | None,
    crit: Limit | None,
) -> Judged:
    """errors says why a source is not available. Without operations there is no latency, which is
    OK unless some have begun and not ended."""
    error = errors.get(metric.source, "")
    value = None if error else metric.value(seen)
    if value is None:
        return Judged(metric, None, UNKNOWN, warn, crit, error or "not known here")
    if math.isnan(value):
        hanging = seen.fsync.losses.unfinished if seen.fsync and metric.source == "fsync" else 0
        why = f"not known: none has ended, {hanging} on this host hang" if hanging else "idle"
        return Judged(metric, None, UNKNOWN if hanging else OK, warn, crit, why)
    for status, limit in ((CRITICAL, crit), (WARNING, warn)):
        if limit and limit.bad(value):
            return Judged(metric, value, status, warn, crit)
    return Judged(metric, value, OK, warn, crit)


def worst(found: Sequence[Judged]) -> int:
    """The status of all: CRITICAL before WARNING before UNKNOWN."""
    return max((one.status for one in found), key=_ORDER.index, default=OK)


def line(pool: str, status: int, texts: Sequence[str], found: Sequence[Judged] = ()) -> str:
    """The plugin's output; a bar in its text would begin the perfdata."""
    text = ", ".join(texts)
    shown = printable(f"{pool}: {text}" if pool else text).replace("|", "/")
    data = " ".join(one.perfdata() for one in found)
    return f"ZFSTUNE {WORDS[status]} - {shown}" + (f" | {data}" if data else "")


def ordered(found: Sequence[Judged]) -> list[str]:
    """The texts, the worst first; metrics that are unknown for one reason are named together."""
    texts: dict[str, list[str]] = {}
    for one in sorted(found, key=lambda one: -_ORDER.index(one.status)):
        if one.value is None:
            texts.setdefault(one.why, []).append(one.metric.name)
        else:
            texts[one.text()] = []
    return [f"{' '.join(names)} {why}" if names else why for why, names in texts.items()]


def to_json(pool: str, time: str, status: int, text: str, found: Sequence[Judged]) -> Json:
    """A ``check`` object of the schema."""
    return {
        "schema": SCHEMA,
        "type": "check",
        "time": time,
        "pool": pool or None,
        "status": WORDS[status],
        "text": text,
        "metrics": [one.to_json() for one in found],
    }


def failed(text: str, *, as_json: bool) -> int:
    """Prints the output for an error before the measurement; returns the status, UNKNOWN."""
    if as_json:
        print(json.dumps(to_json("", iso_now(), UNKNOWN, text, [])))
    else:
        print(line("", UNKNOWN, [text]))
    return UNKNOWN
