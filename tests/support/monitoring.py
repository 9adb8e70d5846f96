"""Asks a Prometheus for everything that a dashboard and rules ask: what is refused, what is empty.

`check` takes the URL of a Prometheus that has scraped an exporter for a minute, real or not, and
has loaded the rules.
"""

from __future__ import annotations

import json
import math
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

# Longer than four scrapes, shorter than what has been scraped.
_RATE = "20s"
_BUILT_IN = {"__rate_interval": _RATE, "__interval": "5s", "__range": "1m"}
_STEP, _SPAN = 5, 30


@dataclass(frozen=True)
class Asked:
    """One query of a dashboard: where it stands, and whether it is of one point in time."""

    where: str
    expr: str
    instant: bool


class Prometheus:
    """Its HTTP API, version 1."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def get(self, path: str, **fields: object) -> Any:
        """The data of an answer. Raises ValueError with what Prometheus says of a wrong query."""
        query = urllib.parse.urlencode(fields)
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=30) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{error.code}: {error.read().decode()[:300]}") from error
        if found["status"] != "success":
            raise ValueError(str(found))
        return found["data"]

    def range(self, expr: str, start: float, end: float, step: float) -> list[Json]:
        """Series, each with its labels (metric) and its values."""
        span = {"start": start, "end": end, "step": step}
        found: list[Json] = self.get("query_range", query=expr, **span)["result"]
        return found

    def values(self, expr: str, instant: bool) -> list[float]:
        """All values of all series, of now or of the last half minute."""
        now = time.time()
        if instant:
            series = self.get("query", query=expr, time=now)["result"]
            return [float(one["value"][1]) for one in series]
        series = self.range(expr, now - _SPAN, now, _STEP)
        return [float(value) for one in series for _, value in one["values"]]

    def alerts(self, state: str = "firing") -> list[Json]:
        """Those that fire, or are pending, with labels and annotations."""
        return [one for one in self.get("alerts")["alerts"] if one["state"] == state]


def panels(dashboard: Json) -> Iterator[Json]:
    """All panels but rows, those inside closed rows, too."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def queries(dashboard: Json) -> Iterator[Asked]:
    """Those of panels and annotations, with variables."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            where = f"panel {panel['title']!r} {target['refId']}"
            yield Asked(where, target["expr"], target["instant"])
    for one in dashboard["annotations"]["list"]:
        yield Asked(f"annotation {one['name']!r}", one["expr"], False)


def filled(text: str, dashboard: Json) -> str:
    """With values for variables, as of a dashboard in which everything is selected."""
    values = {one["name"]: one.get("allValue") or "" for one in dashboard["templating"]["list"]}
    return re.sub(r"\$(\w+)", lambda match: {**values, **_BUILT_IN}[match[1]], text)


def unfiltered(expr: str) -> str:
    """Without the comparison at its end: what a query asks for that is empty on a good day."""
    return re.sub(r" (?:>|==) [\d.]+$", "", expr)


def check(
    prometheus_url: str,
    dashboard: Json,
    rules: Sequence[Path],
    off: Collection[str] = (),
    empty: Collection[str] = (),
) -> list[str]:
    """What is wrong, a line each. off are beginnings of names of metrics that the exporter does not
    have there, because of its views or its system: what asks for nothing else may be empty. empty
    are the places (Asked.where) of queries that must be."""
    server = Prometheus(prometheus_url)
    return [
        *_variables(server, dashboard, off),
        *_queries(server, dashboard, off, empty),
        *_rules(server, rules, off),
    ]


def _may_be_empty(expr: str, off: Collection[str]) -> bool:
    """Whether each of what `or` joins needs one of them."""
    absent = [re.compile(rf"\b{name}") for name in off]
    return all(any(one.search(part) for one in absent) for part in re.split(r"\bor\b", expr))


def _wrong(
    server: Prometheus,
    where: str,
    expr: str,
    off: Collection[str],
    instant: bool = True,
    empty: bool = False,
) -> Iterator[str]:
    """What is wrong with an answer, which must have numbers, or be empty."""
    try:
        values = server.values(expr, instant)
    except ValueError as error:
        yield f"{where}: {expr}: {error}"
        return
    if empty:
        if values:
            yield f"{where}: {expr}: {values[:3]}, not empty"
        return
    if _may_be_empty(expr, off):
        return
    if not values:
        yield f"{where}: {expr}: nothing"
    elif all(map(math.isnan, values)):
        yield f"{where}: {expr}: no number"


def _queries(
    server: Prometheus, dashboard: Json, off: Collection[str], empty: Collection[str]
) -> Iterator[str]:
    asked = list(queries(dashboard))
    for where in sorted(set(empty) - {one.where for one in asked}):
        yield f"{where}: there is no such query"
    for one in asked:
        expr, none = filled(one.expr, dashboard), one.where in empty
        asks = expr if none else unfiltered(expr)
        yield from _wrong(server, one.where, asks, off, one.instant, none)


def _variables(server: Prometheus, dashboard: Json, off: Collection[str]) -> Iterator[str]:
    for one in dashboard["templating"]["list"]:
        if one["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"])
        if not asked:
            yield f"variable {one['name']}: {one['query']}: not understood"
            continue
        selector = filled(asked[1], dashboard)
        try:
            names = server.get(f"label/{asked[2]}/values", **{"match[]": selector})
        except ValueError as error:
            yield f"variable {one['name']}: {selector}: {error}"
            continue
        if not names and not _may_be_empty(selector, off):
            yield f"variable {one['name']}: {selector}: no value"


def expected(rules: Sequence[Path]) -> Iterator[Json]:
    """The rules of files."""
    for path in rules:
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from group["rules"]


def _rules(server: Prometheus, rules: Sequence[Path], off: Collection[str]) -> Iterator[str]:
    """Each is loaded, evaluated and well, and what is recorded is there."""
    groups = server.get("rules")["groups"]
    loaded = {rule["name"]: rule for group in groups for rule in group["rules"]}
    for rule in expected(rules):
        name = rule.get("alert") or rule["record"]
        found = loaded.get(name)
        if not found:
            yield f"rule {name}: not loaded"
        elif found["health"] != "ok":
            yield f"rule {name}: {found['health']}: {found.get('lastError', 'not evaluated')}"
        elif "record" in rule and not _may_be_empty(rule["expr"], off):
            yield from _wrong(server, f"rule {name}", name, off)
