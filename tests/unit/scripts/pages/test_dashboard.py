"""The dashboard is what its tables say, asks only for what the exporter has, and is whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.monitoring import expected, filled, panels, queries, unfiltered
from support.paths import ROOT
from support.promql import labels_in, problems

from pages import dashboard
from zfstrace.stages import NAMES
from zfstune.html.stage_colors import stage_color

Json = dict[str, Any]

PAGE = dashboard.dashboard()
PANELS = list(panels(PAGE))
MONITORING = ROOT / "platform/monitoring"
RECORDED = {
    rule["record"]: rule["expr"]
    for rule in expected((MONITORING / "recording.yml", MONITORING / "slo.yml"))
    if "record" in rule
}
QUERIES = [(panel, target) for panel in PANELS for target in panel["targets"]]


def name(value: object) -> str:
    return str(value["title"] if isinstance(value, dict) and "title" in value else "query")


def test_the_committed_file_is_the_one_of_the_tables() -> None:
    """If not: PYTHONPATH=scripts:tracers:tuner python3 scripts/pages/dashboard.py"""
    assert dashboard.PATH.read_text(encoding="utf-8") == dashboard.text()


@pytest.mark.parametrize(("panel", "target"), QUERIES, ids=name)
def test_a_query_asks_for_what_the_exporter_has(panel: Json, target: Json) -> None:
    assert list(problems(target["expr"], RECORDED)) == []
    shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    assert shown <= labels_in(target["expr"], RECORDED)


@pytest.mark.parametrize(("panel", "target"), QUERIES, ids=name)
def test_rates_follow_the_scrape_interval(panel: Json, target: Json) -> None:
    windows = set(re.findall(r"\[([^\]]+)\]", target["expr"]))
    if target["instant"]:
        # a number may be of minutes, and says so
        windows -= {"15m", "1d"}
    assert windows <= {"$__rate_interval"}


def test_annotations_ask_for_what_the_exporter_has() -> None:
    for one in PAGE["annotations"]["list"]:
        assert list(problems(one["expr"], RECORDED)) == []
        shown = set(re.findall(r"{{(\w+)}}", one["titleFormat"] + one["textFormat"]))
        assert shown <= labels_in(one["expr"], RECORDED)


@pytest.mark.parametrize("panel", PANELS, ids=name)
def test_a_panel_has_units_a_description_and_hosts(panel: Json) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["description"].endswith((".", "`"))
    for target in panel["targets"]:
        if panel["type"] in ("timeseries", "state-timeline"):
            assert "{{instance}}" in target["legendFormat"]
        if panel["type"] == "table":
            assert "instance" in labels_in(target["expr"], RECORDED)


def links() -> Iterator[tuple[str, str]]:
    texts = [panel["description"] for panel in PANELS]
    rules = expected(sorted(MONITORING.glob("*.yml")))
    texts += [rule["annotations"]["runbook"] for rule in rules if "alert" in rule]
    for text in texts:
        yield from re.findall(r"(docs/[\w.]+\.md)(?:#([\w-]+\w))?", text)


def test_pages_and_headings_that_are_named_exist() -> None:
    found = set(links())
    assert ("docs/stages.md", "what-lands-where") in found
    for path, heading in found:
        lines = (ROOT / path).read_text(encoding="utf-8").split("\n")
        heads = {line.strip("# ").lower().replace(" ", "-") for line in lines if line[:1] == "#"}
        assert not heading or heading in heads


def test_stages_have_the_colours_of_reports() -> None:
    (panel,) = (one for one in PANELS if one["title"] == "Stages of fsyncs, estimated")
    colors = {}
    for override in panel["fieldConfig"]["overrides"]:
        for one in NAMES:
            pattern = override["matcher"]["options"].strip("/")
            if re.search(pattern, f"db1 tank {one}"):
                colors[one] = override["properties"][0]["value"]["fixedColor"]
    assert colors == {one: stage_color(one) for one in NAMES}


def test_the_file_is_of_the_schema() -> None:
    assert PAGE["schemaVersion"] == 39
    everything = [one for panel in PAGE["panels"] for one in (panel, *panel.get("panels", ()))]
    ids = [one["id"] for one in everything]
    assert len(set(ids)) == len(ids)
    for one in everything:
        assert one["type"] in ("row", "timeseries", "stat", "table", "heatmap", "state-timeline")
        letters = [target["refId"] for target in one.get("targets", ())]
        assert len(set(letters)) == len(letters)
    for row in PAGE["panels"]:
        # Grafana takes the panels of an open row from beside it
        assert row["type"] != "row" or bool(row["panels"]) == row["collapsed"]


def datasources(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for key, inside in value.items():
            if key == "datasource":
                yield inside
            yield from datasources(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from datasources(inside)


def test_there_is_no_data_source_but_the_chosen_one() -> None:
    found = list(datasources(PAGE))
    assert len(found) > len(PANELS)
    assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in found)
    assert "__inputs" not in PAGE


@pytest.mark.parametrize(
    "inside",
    [PAGE["panels"], *(one["panels"] for one in PAGE["panels"] if one.get("panels"))],
    ids=["open", *(one["title"] for one in PAGE["panels"] if one.get("panels"))],
)
def test_panels_do_not_overlap(inside: list[Json]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in inside:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= dashboard.COLUMNS
        area = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & area
        taken |= area


def test_variables_are_those_that_queries_use() -> None:
    names = {one["name"] for one in PAGE["templating"]["list"]}
    assert names == {"datasource", "job", "instance", "pool", "dataset"}
    for asked in queries(PAGE):
        assert set(re.findall(r"\$(\w+)", asked.expr)) <= {*names, "__rate_interval"}
        assert "$" not in filled(asked.expr, PAGE)


def test_a_wrong_name_is_found() -> None:
    def wrong(expr: str) -> list[str]:
        return list(problems(expr, RECORDED))

    assert wrong('rate(zfstune_txgs_total{pool="a",phase="b"}[5m])') == [
        "zfstune_txgs_total has no label phase"
    ]
    assert wrong("zfstune_nothing") == ["no metric zfstune_nothing"]
    assert wrong("zfstune_txg_duration_seconds") == ["no metric zfstune_txg_duration_seconds"]
    assert wrong("a:b:c") == ["no metric a:b:c"]
    assert wrong("zfstune_txgs_total > 0") == ["zfstune_txgs_total is a counter: take its rate"]
    assert wrong("rate(zfstune_trace_up[5m])") == ["zfstune_trace_up is no counter"]
    assert wrong("sum by (stage) (zfstune_trace_up)") == ["nothing has the label stage"]
    assert wrong('up{job="zfstune{"} == 0') == []


def test_a_comparison_at_the_end_is_left_out() -> None:
    assert unfiltered("sum(a) > 0") == "sum(a)"
    assert unfiltered("a == 1") == "a"
    assert unfiltered("count(a > 0) or vector(0)") == "count(a > 0) or vector(0)"
