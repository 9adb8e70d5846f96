"""The dashboard and the rules in a real Prometheus, which scrapes fakes; promtool's own tests."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.metrics_text import HUNG, SLOW, WELL, served
from support.monitoring import Prometheus, check, expected, filled, queries
from support.paths import DATA, ROOT
from support.prometheus import located, prometheus
from support.waiting import wait_for

from zfstrace.txg import REASONS

MONITORING = ROOT / "platform/monitoring"
RULES = tuple(sorted(MONITORING.glob("*.yml")))
TESTS = sorted((DATA / "promtool").glob("*.yml"))
# An hour in half a minute
FACTOR = 120
# a loss of each of the two alerts on losses
LOSING = replace(SLOW, values={**SLOW.values, "reason": (*REASONS, "return", "overflow")})
# a port that nothing listens on
DOWN = "127.0.0.1:1"


def tool(name: str) -> Path:
    """The path of a program. Fails the test when it is not there."""
    try:
        return located(name)
    except FileNotFoundError as error:
        pytest.fail(str(error), False)


@dataclass(frozen=True)
class Running:
    """A Prometheus, and the instances that it scrapes."""

    url: str
    well: str
    slow: str
    hung: str

    def firing(self) -> dict[tuple[str, str], dict[str, str]]:
        """Annotations, by alert and instance."""
        return {
            (one["labels"]["alertname"], one["labels"].get("instance", "")): one["annotations"]
            for one in Prometheus(self.url).alerts()
        }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    program = tool("prometheus")
    with ExitStack() as stack:
        hosts = [stack.enter_context(served(fake)) for fake in (WELL, LOSING, HUNG)]
        directory = tmp_path_factory.mktemp("prometheus")
        scraped = prometheus(program, directory, [*hosts, DOWN], RULES, factor=FACTOR)
        yield Running(stack.enter_context(scraped), *hosts)


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    return found


def test_everything_that_is_asked_has_an_answer(
    running: Running, dashboard: dict[str, Any]
) -> None:
    problems: list[str] = []

    def answered() -> bool:
        problems[:] = check(running.url, dashboard, RULES)
        return not problems

    # rates need some scrapes
    with contextlib.suppress(AssertionError):
        wait_for(answered, 60)
    assert problems == []


def test_a_wrong_query_and_an_empty_one_are_told(running: Running) -> None:
    panel = {"type": "table", "title": "a", "targets": []}
    wrong = {"expr": "rate(zfstune_trace_up)", "instant": True, "refId": "A"}
    empty = {"expr": 'zfstune_trace_up{view="none"}', "instant": False, "refId": "B"}
    page = {
        "panels": [{**panel, "targets": [wrong, empty]}],
        "annotations": {"list": []},
        "templating": {"list": []},
    }
    problems = check(running.url, page, ())
    assert len(problems) == 2
    assert "panel 'a' A: rate(zfstune_trace_up): 400" in problems[0]
    assert problems[1].endswith(": nothing")
    assert len(check(running.url, page, (), off=("zfstune_trace_up",))) == 1
    assert len(check(running.url, page, (), empty=("panel 'a' B",))) == 1


def test_an_answer_that_must_be_empty_is_told(running: Running) -> None:
    target = {"expr": "zfstune_trace_up == 1", "instant": True, "refId": "A"}
    page = {
        "panels": [{"type": "stat", "title": "a", "targets": [target]}],
        "annotations": {"list": []},
        "templating": {"list": []},
    }
    problems = check(running.url, page, (), empty=("panel 'a' A", "panel 'a' B"))
    assert problems[0] == "panel 'a' B: there is no such query"
    assert len(problems) == 2 and problems[1].endswith(", not empty")


def test_a_rule_that_is_not_loaded_is_told(running: Running, tmp_path: Path) -> None:
    path = tmp_path / "more.yml"
    path.write_text("groups: [{name: a, rules: [{record: 'a:b', expr: vector(1)}]}]")
    page: dict[str, Any] = {
        "panels": [],
        "annotations": {"list": []},
        "templating": {"list": []},
    }
    assert check(running.url, page, (path,)) == ["rule a:b: not loaded"]


def test_each_alert_fires_where_its_cause_is_and_names_a_command(running: Running) -> None:
    alerts = {rule["alert"] for rule in expected(RULES) if "alert" in rule}
    hangs = {"ZfsFsyncHung", "ZfsTxgStuck"}
    causes = {
        *((name, running.slow) for name in alerts - hangs - {"ZfstuneDown"}),
        *((name, running.hung) for name in hangs),
        ("ZfstuneDown", DOWN),
    }
    firing: set[tuple[str, str]] = set()

    def as_caused() -> bool:
        firing.clear()
        firing.update(running.firing())
        return firing == causes

    with contextlib.suppress(AssertionError):
        wait_for(as_caused, 60)
    assert firing == causes
    for (_, instance), texts in running.firing().items():
        assert "zfstune diagnose" in texts["summary"]
        assert f"on {instance.partition(':')[0]}" in texts["summary"]
        assert texts["runbook"]
        assert "error expanding" not in str(texts)
        assert "no value" not in str(texts)


UP = 'up{{job="node",instance="{}"}}'
BUILD = 'zfstune_build_info{{job="node",instance="{}"}}'
MTIME = 'node_textfile_mtime_seconds{{job="node",instance="{}",file="/a/zfstune.prom"}}'
# hosts with node_exporter, each minute of an hour
ENDS = {
    "well": {UP: "1x60", BUILD: "1x60", MTIME: "0+60x60"},
    "killed": {UP: "1x60", BUILD: "1x60", MTIME: "0+60x9 600x51"},
    "stopped": {UP: "1x60", BUILD: "1x9 stale", MTIME: "0+60x9 stale"},
    "no target": {UP: "1x9 stale", BUILD: "1x9 stale", MTIME: "0+60x9 stale"},
    "without zfstune": {UP: "1x60"},
    "down, without zfstune": {UP: "0x60"},
}


def test_exporters_down_are_counted_without_a_port_too(
    dashboard: dict[str, Any], tmp_path: Path
) -> None:
    (asked,) = (one for one in queries(dashboard) if "'Exporters down'" in one.where)
    series = [
        {"series": name.format(host), "values": values}
        for host, rows in ENDS.items()
        for name, values in rows.items()
    ]
    series.append({"series": 'up{job="zfstune",instance="does not answer"}', "values": "0x60"})
    # killed, stopped, does not answer
    wanted = [{"labels": "{}", "value": 3}]
    expr = {"expr": filled(asked.expr, dashboard), "eval_time": "50m", "exp_samples": wanted}
    path = tmp_path / "down.yml"
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": [expr]}]
    path.write_text(json.dumps({"tests": tests}), encoding="utf-8")
    subprocess.run((tool("promtool"), "test", "rules", path), check=True)


def test_promtool_accepts_the_rules() -> None:
    subprocess.run((tool("promtool"), "check", "rules", *RULES), check=True)


@pytest.mark.parametrize("step", (1, -1), ids=("forwards", "backwards"))
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_rules_do_what_they_say(path: Path, step: int, tmp_path: Path) -> None:
    """Whichever group is evaluated first: Prometheus promises no order, and promtool takes any."""
    text = path.read_text(encoding="utf-8")
    groups = [
        group["name"]
        for name in yaml.safe_load(text)["rule_files"]
        for group in yaml.safe_load((path.parent / name).read_text(encoding="utf-8"))["groups"]
    ]
    ordered = tmp_path / path.name
    text = text.replace("../../..", str(ROOT))
    ordered.write_text(f"group_eval_order: {json.dumps(groups[::step])}\n{text}", encoding="utf-8")
    subprocess.run((tool("promtool"), "test", "rules", ordered), check=True)
