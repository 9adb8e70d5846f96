"""What the tables of the dashboard are made of: rows, panels, queries, and PromQL that recurs.

In queries @fleet, @host, @pool and @dataset stand for the selectors of variables (dashboard.py).
Where a panel asks for commits `or` fsyncs, a host without the light view, on FreeBSD, shows fsyncs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RATE = "$__rate_interval"
HOST, POOL, DATASET = ("job, instance", "job, instance, pool", "job, instance, pool, dataset")
COMMIT, FSYNC = "zfstune_zil_commit_duration_seconds", "zfstune_fsync_duration_seconds"


_LINES: dict[str, Any] = {
    "drawStyle": "line",
    "lineWidth": 1,
    "fillOpacity": 0,
    "showPoints": "auto",
    # a gap is one: a host that did not answer
    "spanNulls": False,
    "stacking": {"mode": "none", "group": "A"},
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "timeseries": {"custom": _LINES, "min": 0},
    "stat": {"min": 0},
    "table": {"custom": {"align": "auto", "filterable": True}},
    "heatmap": {"custom": {}},
    "state-timeline": {"custom": {"fillOpacity": 80, "lineWidth": 0}},
}


@dataclass(frozen=True)
class Query:
    """legend is of lines; column and unit are of a table, where a query without a column gives
    labels only. A dashed line is a limit, apart from what is stacked."""

    expr: str
    legend: str = ""
    column: str = ""
    unit: str = ""
    dashed: bool = False
    exemplars: bool = False


@dataclass(frozen=True)
class Panel:
    """description says what to look at. stages: lines are coloured as stages; bad: the value from
    which on a number is red; signed: values may be below 0; states: texts and colours of 0 and
    1."""

    title: str
    kind: str
    unit: str
    width: int
    height: int
    queries: tuple[Query, ...]
    description: str
    stacked: str = ""
    stages: bool = False
    bad: float | None = None
    log: bool = False
    signed: bool = False
    states: tuple[tuple[str, str], ...] = ()

    def defaults(self) -> dict[str, Any]:
        """Of its fields."""
        found = dict(_DEFAULTS[self.kind])
        if self.stacked:
            stack = {"mode": self.stacked, "group": "A"}
            found["custom"] = {**_LINES, "fillOpacity": 70, "lineWidth": 0, "stacking": stack}
        if self.log or self.signed:
            # 0 has no place on an axis of logarithms
            del found["min"]
        if self.log:
            found["custom"] = {**_LINES, "scaleDistribution": {"type": "log", "log": 10}}
        if self.states:
            named = {
                str(value): {"text": text, "color": color, "index": value}
                for value, (text, color) in enumerate(self.states)
            }
            found["mappings"] = [{"type": "value", "options": named}]
        if self.bad is not None:
            steps = [{"color": "green", "value": None}, {"color": "red", "value": self.bad}]
            found["thresholds"] = {"mode": "absolute", "steps": steps}
            found["color"] = {"mode": "thresholds"}
        return found


@dataclass(frozen=True)
class Row:
    """A closed one is of views that are off by default."""

    title: str
    panels: tuple[Panel, ...]
    closed: bool = False


@dataclass(frozen=True)
class Annotation:
    """Marks in all panels; title and text may name labels."""

    name: str
    expr: str
    title: str
    text: str
    color: str


def rate(metric: str, of: str, by: str) -> str:
    """A counter per second, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{{of}}}[{RATE}]))"


def quantile(q: float, metric: str, of: str, by: str) -> str:
    """Of a histogram."""
    return f"histogram_quantile({q}, {rate(f'{metric}_bucket', of, f'{by}, le')})"


# A view that is off keeps its counters: while that of commits is, those of fsyncs count.
LIGHT = 'and on (job, instance) zfstune_trace_up{view="light"} == 1'


def either(q: float, of: str, by: str) -> str:
    """A quantile of commits, else of fsyncs; by has to name the host."""
    return f"{quantile(q, COMMIT, of, by)} {LIGHT} or {quantile(q, FSYNC, of, by)}"


def rates(of: str, by: str) -> str:
    """Commits per second, else fsyncs; by has to name the host."""
    return f"{rate(f'{COMMIT}_count', of, by)} {LIGHT} or {rate(f'{FSYNC}_count', of, by)}"


# What no view has counted, and what one has counted, but less exactly (alerts.yml).
_LOST = "zfstune_trace_lost_total"
UNCOUNTED = ('reason=~"start|return|cut"', 'view="txg",reason="event"')
INEXACT = ('reason=~"overflow|skipped|log_block|window"', 'view!="txg",reason="event"')


def uncounted(of: str, window: str) -> str:
    """Operations that were not counted, by reason."""
    return " or ".join(f"increase({_LOST}{{{of},{one}}}[{window}])" for one in UNCOUNTED)


def losses(of: str, reasons: tuple[str, ...]) -> str:
    """Losses per second, by view and reason."""
    return " or ".join(rate(_LOST, f"{of},{one}", f"{HOST}, view, reason") for one in reasons)


# Hosts that give no metrics, as ZfstuneDown has it, but not those that are no targets any more.
DOWN = '(up{@fleet,job="zfstune"} == 0) or on (job, instance) '
DOWN += "(group by (job, instance) (present_over_time(zfstune_build_info{@fleet}[1d])) "
DOWN += "and on (job, instance) up{@fleet} unless on (job, instance) zfstune_build_info{@fleet}) "
DOWN += "or on (job, instance) "
DOWN += '(time() - node_textfile_mtime_seconds{@fleet,file=~".*zfstune.*"} > 300)'
BLIND = "(zfstune_trace_up{@fleet} == 0) unless on (job, instance, view) "
BLIND += 'zfstune_trace_off_info{@fleet,why=~"no_zfs|no_pool"}'
PER_POOL = "{{instance}} {{pool}}"
PER_DATASET = "{{instance}} {{dataset}}"


def unfinished(of: str) -> str:
    """Commits that run, else fsyncs."""
    commits, fsyncs = (
        f"sum by ({HOST}) ({name}{{{of}}})"
        for name in ("zfstune_zil_commits_unfinished", "zfstune_fsync_unfinished")
    )
    return f"{commits} or {fsyncs}"


def number(title: str, expr: str, description: str, bad: float | None = 1) -> Panel:
    """A number of hosts."""
    return Panel(title, "stat", "short", 4, 4, (Query(expr),), description, bad=bad)
