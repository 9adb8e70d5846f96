"""The rules for Prometheus ask for what the exporter has, and each alert says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.monitoring import expected
from support.paths import DATA, ROOT
from support.promql import labels_in, problems

Json = dict[str, Any]

FILES = sorted((ROOT / "platform/monitoring").glob("*.yml"))
RULES = list(expected(FILES))
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
ALERTS = [rule for rule in RULES if "alert" in rule]
SEVERITIES = ("critical", "warning", "info")


def name(rule: Json) -> str:
    return str(rule.get("alert") or rule["record"])


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_rule_asks_for_what_the_exporter_has(rule: Json) -> None:
    assert list(problems(rule["expr"], RECORDED)) == []


def test_alerts_need_no_other_file() -> None:
    """Without recording.yml they would be silent."""
    (path,) = (path for path in FILES if path.name == "alerts.yml")
    assert [name(rule) for rule in expected((path,)) if ":" in rule["expr"]] == []


def test_rules_have_different_names() -> None:
    names = [name(rule) for rule in RULES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", ALERTS, ids=name)
def test_an_alert_says_how_bad_where_and_what_to_do(rule: Json) -> None:
    assert rule["labels"]["severity"] in SEVERITIES
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "runbook"}
    assert "`zfstune diagnose" in annotations["summary"]
    assert re.search(r"on\s*{{ (?:\$labels.instance|\.) \| stripPort }}", annotations["summary"])
    used = set(re.findall(r"\$labels\.(\w+)", str(annotations)))
    assert used <= labels_in(rule["expr"], RECORDED)


def fired() -> Iterator[str]:
    """The alerts that a test of promtool expects, by name."""
    for path in (DATA / "promtool").glob("*.yml"):
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            for asked in test["promql_expr_test"]:
                for sample in asked.get("exp_samples", ()):
                    yield from re.findall(r'alertname="(\w+)"', sample["labels"])


def test_each_alert_fires_in_a_test_of_promtool() -> None:
    assert set(fired()) == {name(rule) for rule in ALERTS}


def test_windows_of_the_objective_are_those_of_its_alerts() -> None:
    asked = " ".join(rule["expr"] for rule in ALERTS)
    for record in RECORDED:
        if record.startswith("instance_pool:zfstune_commit_slow:"):
            assert record in asked
            window = record.rpartition("_")[2]
            assert set(re.findall(r"\[(\w+)\]", RECORDED[record])) == {window}
