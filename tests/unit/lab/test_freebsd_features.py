"""The features of FreeBSD and the tests that show them, against one another and the page."""

from __future__ import annotations

import re

import pytest
from lab import freebsd_features
from support.paths import ROOT

PAGE = (ROOT / "docs/freebsd.md").read_text()
TESTS = [
    f"{path.name}::{name}"
    for path in sorted((ROOT / "tests/lab").glob("test_freebsd_*.py"))
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
]


def test_every_test_shows_a_feature() -> None:
    features = freebsd_features.load()
    assert [test for test in TESTS if not any(one.has(test) for one in features)] == []


def test_every_pattern_is_of_a_test() -> None:
    for feature in freebsd_features.load():
        assert bool(feature.tests) != bool(feature.otherwise)
        for pattern in feature.tests:
            one = freebsd_features.Feature("", (pattern,), "")
            assert any(one.has(test) for test in TESTS), pattern


def test_the_page_has_every_feature() -> None:
    text = PAGE.split(freebsd_features.BEGIN)[1].split(freebsd_features.END)[0]
    rows = re.findall(r"^\| (.+) \| ([^|]+) \|$", text, re.MULTILINE)[1:]
    assert [name for name, _ in rows] == [one.name for one in freebsd_features.load()]
    for (_, verdict), feature in zip(rows, freebsd_features.load(), strict=True):
        wanted = r"[1-9]\d* tests?" if feature.tests else re.escape(f"no: {feature.otherwise}")
        assert re.fullmatch(wanted, verdict)


def test_a_failure_stands_in_the_table() -> None:
    passed = dict.fromkeys((f"tests/lab/{test}[freebsd-15-a]" for test in TESTS), True)
    text = freebsd_features.table(passed, "here")
    assert "failed" not in text
    passed["tests/lab/test_freebsd_check.py::test_its_status_is_0[freebsd-15]"] = False
    lines = freebsd_features.table(passed, "here").splitlines()
    assert [line for line in lines if "failed" in line] == [
        "| `scripts/freebsd-check` | 1 of 5 tests failed |"
    ]
    page = f"before\n{freebsd_features.BEGIN}old{freebsd_features.END}after\n"
    assert re.fullmatch(
        r"before\n<!--.*-->\n\nRan in the lab on here:\n(?s:.*)\n\n<!--.*-->\nafter\n",
        freebsd_features.replaced(page, text),
    )


def test_a_feature_whose_tests_did_not_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="no test ran of: "):
        freebsd_features.table({}, "here")


def test_the_system_has_a_short_name() -> None:
    long = "15.0-RELEASE", "2.4.0-rc4-FreeBSD_gabc"
    assert freebsd_features.system(*long) == "FreeBSD 15.0 with ZFS 2.4.0-rc4"
