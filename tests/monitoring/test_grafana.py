"""The dashboard against the types that Grafana publishes for it, by its compiler."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

Json = dict[str, Any]

MODULES = ROOT / "tests/flame/node_modules"
TYPES = MODULES / "@grafana/schema/dist/esm/raw"
# The directory and the file of a kind of panel
PANELS = {
    "heatmap": ("heatmap", "Heatmap"),
    "stat": ("stat", "Stat"),
    "state-timeline": ("statetimeline", "StateTimeline"),
    "table": ("table", "Table"),
    "timeseries": ("timeseries", "TimeSeries"),
}
# JSON has strings where TypeScript has enums; options of panels have defaults. The source of data
# adds to variables what its editor shows, and to annotations what it asks.
HEAD = f"""\
import * as board from "{TYPES}/dashboard/x/dashboard_types.gen";
import * as prometheus from
  "{TYPES}/composable/prometheus/dataquery/x/PrometheusDataQuery_types.gen";
type Written<T> = T extends string ? `${{T}}`
  : T extends readonly (infer U)[] ? Written<U>[]
  : T extends object ? {{ [K in keyof T]: Written<T[K]> }} : T;
type Partly<T> = T extends readonly (infer U)[] ? Partly<U>[]
  : T extends object ? {{ [K in keyof T]?: Partly<T[K]> }} : T;
type Options<T> = Partly<Written<T>>;
type Variable = Written<board.VariableModel> & {{ definition?: string }};
type Annotation = Written<board.AnnotationQuery>
  & {{ expr: string, step: string, titleFormat: string, textFormat: string, tagKeys?: string,
    useValueForTime?: boolean }};
type Row = Written<Omit<board.RowPanel, "panels">> & {{ panels: [] }};
type Rest = Written<Omit<board.Dashboard, "panels" | "templating" | "annotations">>;
"""


def kinds() -> Iterator[str]:
    for directory, name in PANELS.values():
        path = f"{TYPES}/composable/{directory}/panelcfg/x/{name}PanelCfg_types.gen"
        yield f'import * as {directory} from "{path}";'


def panel(one: Json) -> Iterator[tuple[str, Json]]:
    """Its parts, each with the name of its type: an object is checked for fields that its type does
    not have only where that is one type."""
    if one["type"] == "row":
        yield "Row", {**one, "panels": []}
        for inner in one["panels"]:
            yield from panel(inner)
        return
    kind = PANELS[one["type"]][0]
    parts = dict(one)
    yield f"Options<{kind}.Options>", parts.pop("options")
    for target in parts.pop("targets"):
        yield "Written<prometheus.PrometheusDataQuery>", target
    defaults = dict(one["fieldConfig"]["defaults"])
    if "custom" in defaults:
        yield f"Options<{kind}.FieldConfig>", defaults.pop("custom")
    parts["fieldConfig"] = {**one["fieldConfig"], "defaults": defaults}
    yield "Written<board.Panel>", parts


def constants(dashboard: Json) -> Iterator[tuple[str, Json]]:
    parts = dict(dashboard)
    for one in parts.pop("panels"):
        yield from panel(one)
    for one in parts.pop("templating")["list"]:
        yield "Variable", one
    for one in parts.pop("annotations")["list"]:
        yield "Annotation", one
    yield "Rest", parts


def compiled(dashboard: Json, directory: Path) -> list[str]:
    """What the compiler has against it."""
    node = shutil.which("node")
    compiler = MODULES / "typescript/bin/tsc"
    if not node or not compiler.is_file() or not TYPES.is_dir():
        pytest.fail("Grafana's types or npm's typescript are missing: run scripts/bootstrap", False)
    lines = [
        f"export const part{i}: {name} = {json.dumps(value)};"
        for i, (name, value) in enumerate(constants(dashboard))
    ]
    file = directory / "dashboard.ts"
    file.write_text("\n".join([HEAD, *kinds(), *lines]), encoding="utf-8")
    options = ("--noEmit", "--strict", "--skipLibCheck", "--module", "esnext")
    found = subprocess.run(
        [node, compiler, *options, "--moduleResolution", "node", "--pretty", "false", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode in (0, 1, 2), found.stderr
    return found.stdout.splitlines()


@pytest.fixture
def dashboard() -> Json:
    found: Json = json.loads(
        (ROOT / "platform/monitoring/dashboard.json").read_text(encoding="utf-8")
    )
    return found


def test_it_has_the_types_of_grafana(dashboard: Json, tmp_path: Path) -> None:
    assert compiled(dashboard, tmp_path) == []


# Where in a panel, and what is not right there
FAULTS: dict[tuple[str | int, ...], str | int] = {
    ("optoins",): "",
    ("title",): 1,
    ("options", "legend", "placement"): "botom",
    ("options", "toltip"): "",
    ("targets", 0, "exper"): "",
    ("targets", 0, "format"): "graph",
    ("fieldConfig", "defaults", "units"): "",
    ("fieldConfig", "defaults", "custom", "drawStyle"): "lines",
}


def test_the_types_are_strict(dashboard: Json, tmp_path: Path) -> None:
    series = next(one for one in dashboard["panels"] if one["type"] == "timeseries")
    for path, value in FAULTS.items():
        wrong = copy.deepcopy(series)
        place: Any = wrong
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        dashboard["panels"].append(wrong)
    dashboard["templating"]["list"][1]["sort"] = "up"
    dashboard["annotations"]["list"][0]["color"] = "red"
    dashboard["refesh"] = "1m"
    said = compiled(dashboard, tmp_path)
    assert len(said) == len(FAULTS) + 3, said
