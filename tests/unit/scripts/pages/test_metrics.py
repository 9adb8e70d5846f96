"""The table of metrics in docs/operations.md is that of the exporter."""

from __future__ import annotations

import pytest

from pages import metrics
from zfstune.exporter.metrics import METRICS
from zfstune.record.args import DEFAULT_VIEWS


def test_the_page_has_the_table_of_the_exporter() -> None:
    page = metrics.PAGE.read_text(encoding="utf-8")
    assert page == metrics.rendered(page), "run PYTHONPATH=tuner:tracers scripts/pages/metrics.py"


def test_each_metric_has_a_row_of_five_cells() -> None:
    rows = metrics.table()[2:]
    assert len(rows) == len(METRICS) > 30
    for row, name in zip(rows, METRICS, strict=True):
        assert row.startswith(f"| `{name}` | ")
        # nothing in a help ends a cell
        assert row.count(" | ") == 4 and row.count("|") == 6


def test_a_changed_table_is_replaced() -> None:
    old = f"before\n{metrics.BEGIN}| old |\n{metrics.END}after\n"
    new = metrics.rendered(old)
    assert "| old |" not in new and metrics.rendered(new) == new
    assert (new[:7], new[-6:]) == ("before\n", "after\n")


def test_the_page_has_all_marks() -> None:
    page = metrics.PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- {name}:begin -->" in page for name in metrics.TABLES)


def test_series_of_a_host_are_those_that_guests_had() -> None:
    assert metrics.host(0) == pytest.approx(394, rel=0.02)
    assert metrics.series("dataset", *DEFAULT_VIEWS) == 21


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks"):
        metrics.rendered("before\nafter\n")
