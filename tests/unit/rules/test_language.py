"""The language of the rule files: its meaning, and that it is no more of Python."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfstune.rules import language
from zfstune.rules.language import Fact, Unknown

FACTS: dict[str, Fact] = {"a": 3, "b": 128 << 10, "word": "off", "other": "on"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * x + 1", 7),
        ("max(16M, 8 * x)", 16 << 20),
        ("min(x // 2, 4)", 1),
        ("64K - x", 65533),
        ("16E", 1 << 64),
    ],
)
def test_sums_are_evaluated(text: str, value: int) -> None:
    assert language.evaluate(text, {"x": 3}) == value


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "x.y", "x ** 2", "'a'", "x if 1 else 2", "pow(x, 2)", "1.5", "(", "x < 4"],
)
def test_only_sums_are_evaluated(text: str) -> None:
    with pytest.raises(ValueError):
        language.evaluate(text, {"x": 3})


@pytest.mark.parametrize("text", ["x + y", "x + word", "min(word, x)"])
def test_a_missing_fact_is_unknown(text: str) -> None:
    with pytest.raises(Unknown):
        language.evaluate(text, {"x": 3, "word": "off"})


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("1", True),
        ("a", True),
        ("a - 3", False),
        ("not a", False),
        ("word", True),
        ("a < b", True),
        ("2 <= a < 4", True),
        ("2 <= a < 3", False),
        ("b == 128K", True),
        ("a * 2 == 6 and word == 'off'", True),
        ("word in ('on', 'off')", True),
        ("word not in ('on', 'dir')", True),
        ("word != other or missing", True),
        ("word == 'on' and missing", False),
        ("missing and word == 'on'", False),
        ("not (missing and a == 4)", True),
        ("word < 3", False),
        ("word == 3", False),
        ("min(a, b) == 3", True),
    ],
)
def test_conditions_are_evaluated(text: str, truth: bool) -> None:
    assert language.holds(text, FACTS) is truth


@pytest.mark.parametrize("text", ["missing", "missing or a == 4", "a and missing", "a + gone < 3"])
def test_a_condition_on_an_unknown_fact_is_unknown(text: str) -> None:
    with pytest.raises(Unknown):
        language.holds(text, FACTS)


def test_the_first_unknown_fact_is_named() -> None:
    with pytest.raises(Unknown, match="gone"):
        language.holds("a == 3 and gone < 1 and missing < 1", FACTS)


@pytest.mark.parametrize(
    "text", ["a is b", "a if b else a", "__import__('os')", "a.b", "[a]", "a ==", "a in (b, 1)"]
)
def test_only_conditions_are_evaluated(text: str) -> None:
    with pytest.raises(ValueError):
        language.holds(text, FACTS)


@given(st.text("abo<=>+-*/(),' 019KMnotrdi", max_size=20))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError, Unknown, ZeroDivisionError):
        assert language.holds(text, {"a": 1, "b": 2}) in (True, False)


def test_names_of_facts_come_in_order() -> None:
    assert language.names("max(b, 2 * a) < 64M and word == 'c' or b") == ("b", "a", "word")


@pytest.mark.parametrize(
    ("text", "sides"),
    [("a + 5 <= b", ("a + 5", "b", 0)), ("a < 16E", ("a", "16E", 1))],
)
def test_a_comparison_has_two_sides(text: str, sides: tuple[str, str, int]) -> None:
    assert language.sides(text) == sides


@pytest.mark.parametrize("text", ["a", "a == b", "a >= b", "a <= b < c", "a <= b and c <= d"])
def test_anything_but_one_comparison_has_no_sides(text: str) -> None:
    with pytest.raises(ValueError):
        language.sides(text)
