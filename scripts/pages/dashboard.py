"""platform/monitoring/dashboard.json, for Grafana, from the tables beside. Writes it:
`PYTHONPATH=scripts:tracers:tuner python3 scripts/pages/dashboard.py`
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pages import dashboard_self, dashboard_views, dashboard_zfs
from pages.dashboard_types import Annotation, Panel, Query, Row
from zfstrace.stages import NAMES
from zfstune.html.stage_colors import stage_color

Json = dict[str, Any]

PATH = Path(__file__).resolve().parents[2] / "platform/monitoring/dashboard.json"
SCHEMA, UID = 39, "zfstune"
COLUMNS = 24

# What stands for selectors in the table. Hosts of the whole fleet, hosts that are selected, their
# pools, and datasets of those.
_MACROS = {
    "@fleet": 'job=~"$job"',
    "@host": 'job=~"$job",instance=~"$instance"',
    "@pool": 'job=~"$job",instance=~"$instance",pool=~"$pool"',
    "@dataset": 'job=~"$job",instance=~"$instance",pool=~"$pool",dataset=~"$dataset"',
}
# From all hosts to one, from what is on by default to what is not.
_ROWS = (
    dashboard_zfs.FLEET,
    dashboard_zfs.POOLS,
    dashboard_zfs.STAGES,
    dashboard_zfs.DATASETS,
    dashboard_zfs.TXGS,
    dashboard_zfs.THROTTLE,
    dashboard_zfs.ARC,
    dashboard_self.PARAMETERS,
    dashboard_self.TRACER,
    dashboard_views.ALL_STAGES,
    dashboard_views.DEVICES,
    dashboard_views.READS,
)
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def expand(expr: str) -> str:
    """PromQL with the dashboard's variables, of what the table has."""
    return re.sub(r"@[a-z]+", lambda match: _MACROS[match[0]], expr)


def dashboard() -> Json:
    """All of it."""
    return {
        "uid": UID,
        "title": "OpenZFS: synchronous writes (zfstune)",
        "description": "Where synchronous writes on OpenZFS spend their time: `zfstune exporter`. "
        "Packages have docs/stages.md, which panels name, in /usr/share/doc/zfstune.",
        "tags": ["zfs", "zfstune"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "1m",
        "timepicker": {},
        "timezone": "",
        "links": [],
        "annotations": {"list": [_annotation(one) for one in dashboard_self.ANNOTATIONS]},
        "templating": {"list": list(_variables())},
        "panels": _panels(_ROWS),
    }


def _variables() -> Iterator[Json]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "hide": 0,
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "options": [],
    }
    commits = '__name__=~"zfstune_(zil_commit|fsync)_duration_seconds_count"'
    yield _variable("job", "Job", "label_values(zfstune_build_info, job)")
    yield _variable("instance", "Host", 'label_values(zfstune_build_info{job=~"$job"}, instance)')
    yield _variable("pool", "Pool", f"label_values(zfstune_pool_state{{{expand('@host')}}}, pool)")
    yield _variable("dataset", "Dataset", f"label_values({{{commits},{expand('@pool')}}}, dataset)")


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"{name}-variable"},
        "regex": "",
        "hide": 0,
        # when the time range changes: pools and datasets come and go
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # not a list of five hundred names
        "allValue": ".*",
        "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _annotation(one: Annotation) -> Json:
    return {
        "name": one.name,
        "datasource": _SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": one.color,
        "expr": expand(one.expr),
        "step": "60s",
        "titleFormat": one.title,
        "textFormat": one.text,
        "tagKeys": "instance",
        "useValueForTime": False,
    }


def _panels(rows: Sequence[Row]) -> list[Json]:
    """One below the other; those of a closed row are inside it, and take no room."""
    found: list[Json] = []
    ids = iter(range(1, 1000))
    top = 0
    for row in rows:
        head = {
            "id": next(ids),
            "type": "row",
            "title": row.title,
            "collapsed": row.closed,
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        top += 1
        inside, end = _placed(row.panels, top, ids)
        found.append(head)
        if row.closed:
            head["panels"] = inside
        else:
            found += inside
            top = end
    return found


def _placed(panels: Sequence[Panel], top: int, ids: Iterator[int]) -> tuple[list[Json], int]:
    """From left to right, and the line below them."""
    found, left, height = [], 0, 0
    for panel in panels:
        if left + panel.width > COLUMNS:
            top, left, height = top + height, 0, 0
        place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
        found.append({"id": next(ids), "gridPos": place, **_panel(panel)})
        left, height = left + panel.width, max(height, panel.height)
    return found, top + height


def _letter(index: int) -> str:
    return chr(ord("A") + index)


def _value(panel: Panel, index: int) -> str:
    """What Grafana calls the value of a query in a table; alone it has no letter."""
    return f"Value #{_letter(index)}" if len(panel.queries) > 1 else "Value"


def _panel(panel: Panel) -> Json:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "targets": [_target(i, query, panel) for i, query in enumerate(panel.queries)],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **panel.defaults()},
            "overrides": [*_overrides(panel)],
        },
        "options": _options(panel),
        **({"transformations": _table(panel)} if panel.kind == "table" else {}),
    }


def _target(index: int, query: Query, panel: Panel) -> Json:
    at_once = panel.kind in ("table", "stat")
    kinds = {"table": "table", "heatmap": "heatmap"}
    return {
        "refId": _letter(index),
        "datasource": _SOURCE,
        "expr": expand(query.expr),
        "legendFormat": query.legend,
        "editorMode": "code",
        "format": kinds.get(panel.kind, "time_series"),
        "instant": at_once,
        "range": not at_once,
        "exemplar": query.exemplars,
    }


def _options(panel: Panel) -> Json:
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    legend = {"displayMode": "table", "placement": "bottom", "showLegend": True}
    options: dict[str, Json] = {
        "timeseries": {
            "legend": {**legend, "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "stat": {
            "colorMode": "background",
            "graphMode": "none",
            "justifyMode": "center",
            "textMode": "value",
            "reduceOptions": reduce,
        },
        "table": {"showHeader": True, "cellHeight": "sm", "sortBy": _sorted_by(panel)},
        "heatmap": {
            # the buckets are those of the metric
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Blues", "exponent": 0.5, "steps": 64},
            "yAxis": {"unit": panel.unit, "axisPlacement": "left"},
            "rowsFrame": {"layout": "auto"},
            "cellValues": {"unit": "short"},
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
        },
        "state-timeline": {
            "legend": legend,
            "mergeValues": True,
            "rowHeight": 0.8,
            "showValue": "auto",
            "tooltip": {"mode": "single", "sort": "none"},
        },
    }
    return options[panel.kind]


def _sorted_by(panel: Panel) -> list[Json]:
    column = next((query.column for query in panel.queries if query.column), "")
    return [{"displayName": column, "desc": True}] if column else []


def _overrides(panel: Panel) -> Iterator[Json]:
    if panel.stages:
        for name in NAMES:
            color = {"mode": "fixed", "fixedColor": stage_color(name)}
            yield _override("byRegexp", rf"/(^|\s){name}$/", color=color)
    for query in panel.queries:
        if query.column and query.unit:
            yield _override("byName", query.column, unit=query.unit)
        if query.dashed:
            style = {"fill": "dash", "dash": [8, 6]}
            properties = {"custom.lineStyle": style, "custom.stacking": {"mode": "none"}}
            yield _override("byFrameRefID", _letter(panel.queries.index(query)), **properties)
    if panel.kind == "table":
        url = (
            f"/d/{UID}?${{datasource:queryparam}}&${{job:queryparam}}&var-instance=${{__value.raw}}"
        )
        link = {"title": "this host alone", "url": url, "targetBlank": False}
        yield _override("byName", "instance", unit="string", links=[link])


def _override(matcher: str, options: str, **properties: object) -> Json:
    return {
        "matcher": {"id": matcher, "options": options},
        "properties": [{"id": name, "value": value} for name, value in properties.items()],
    }


def _table(panel: Panel) -> list[Json]:
    """Queries as columns, joined by their labels."""
    names = {_value(panel, i): query.column for i, query in enumerate(panel.queries)}
    # the value of a metric that says all by its labels is 1
    hidden = ["Time", "__name__", *(name for name, column in names.items() if not column)]
    organize = {
        "excludeByName": dict.fromkeys(hidden, True),
        "indexByName": {},
        "renameByName": {name: column for name, column in names.items() if column},
    }
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
