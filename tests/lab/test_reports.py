"""`make bench-reports`: the whole matrix on each flavour, and its page. Rates are not judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lab.conftest import flavours_of

from pages.reports_2014 import Json, page
from zfstune.bench.matrix import rows


@pytest.fixture
def page_file(request: pytest.FixtureRequest) -> Path:
    file = request.config.getoption("--page")
    if not file:
        pytest.skip("half an hour for each flavour, run `make bench-reports`")
    return Path(file)


def test_each_row_is_measured(
    page_file: Path, scenario: Callable[[str, str], Json], flavour: str
) -> None:
    found = scenario("reports", flavour)
    matrix = rows.load_matrix("reports-2014")
    assert [row["row"] for row in found["rows"]] == [row.id for row in matrix.rows]
    for row, wanted in zip(found["rows"], matrix.rows, strict=True):
        assert row["failed"] is None, row
        assert sorted(test["test"] for test in row["tests"]) == sorted(wanted.tests)
    assert found["status"] == 0, found["stderr"]
    assert found["programs_left"] == []


def test_the_page_is_written(
    page_file: Path, scenario: Callable[[str, str], Json], request: pytest.FixtureRequest
) -> None:
    results = [scenario("reports", one) for one in flavours_of("reports", request.config)]
    text = page(results)
    print(text)
    page_file.write_text(text, encoding="utf-8")
