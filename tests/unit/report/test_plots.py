"""The plots of the report: their scales, and that people and screen readers can read them."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sample_session import session

from zfstune.report import plots
from zfstune.report.svg import NARROW, WIDE, Plot, Scale, esc, steps, width

MAKERS = (plots.latency, plots.stages, plots.timeline, plots.pairs, plots.trials, plots.txgs)
SVG = "{http://www.w3.org/2000/svg}"


def forms(found: Plot | None) -> list[ET.Element]:
    assert found is not None
    return [
        ET.fromstring(text.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))
        for text in (found.wide, found.narrow)
    ]


@given(st.floats(0.1, 1e3), st.floats(1.001, 1e6), st.floats(0, 1), st.booleans())
def test_a_scale_keeps_the_order_and_its_ends(
    low: float, factor: float, share: float, log: bool
) -> None:
    scale = Scale(low, low * factor, 300, 20, log)
    assert scale(low) == scale(low / 2) == pytest.approx(300)
    assert scale(low * factor) == scale(low * factor * 2) == pytest.approx(20)
    middle = scale(low + share * (low * factor - low))
    assert 20 - 1e-9 <= middle <= 300 + 1e-9


def test_a_scale_may_run_downwards() -> None:
    scale = Scale(1.5, -0.5, 100, 0)
    assert [scale(value) for value in (1.5, 0.5, -0.5)] == [100, 50, 0]


def test_a_logarithmic_scale_has_equal_steps() -> None:
    scale = Scale(1, 1000, 0, 300, log=True)
    assert [scale(10**n) for n in range(4)] == pytest.approx([0, 100, 200, 300])


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 12))
def test_ticks_are_round_and_few(low: float, span: float, most: int) -> None:
    found = steps(low, low + span, most)
    assert 1 <= len(found) <= most
    assert found == sorted(found)
    distances = [b - a for a, b in itertools.pairwise(found)]
    if distances and span > 1e-9 * abs(low) * 1e3:
        assert max(distances) == pytest.approx(min(distances), rel=1e-3)


@pytest.mark.parametrize("maker", MAKERS)
def test_each_plot_has_a_title_and_a_sentence_for_who_cannot_see_it(maker: Any) -> None:
    ids = set()
    for svg in forms(maker(session())):
        named = {one.get("id"): one for one in svg if one.get("id")}
        for attribute in ("aria-labelledby", "aria-describedby"):
            mark = svg.get(attribute)
            assert mark not in ids
            ids.add(mark)
            assert len(named[mark].text or "") > 10
        assert svg.get("role") == "img"


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("seed", [1, 4])
def test_all_words_are_inside_of_the_picture(maker: Any, seed: int) -> None:
    for svg, most in zip(forms(maker(session(seed))), (WIDE, NARROW), strict=True):
        high = float((svg.get("viewBox") or "").split()[3])
        shown = svg.iter(f"{SVG}text")
        for one in shown:
            x, y, wide = float(one.get("x", 0)), float(one.get("y", 0)), width(one.text or "")
            left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[one.get("text-anchor", "")]
            assert 0 <= y <= high, one.text
            assert left >= -1 and left + wide <= most + 9, one.text


@pytest.mark.parametrize("maker", MAKERS)
def test_labels_of_an_axis_do_not_overlap(maker: Any) -> None:
    for svg in forms(maker(session())):
        rows: dict[str, list[tuple[float, float, str]]] = {}
        for one in svg.iter(f"{SVG}text"):
            words = one.text or ""
            if one.get("text-anchor") == "middle" and re.match(r"[0-9]", words):
                x, half = float(one.get("x", 0)), width(words) / 2
                rows.setdefault(one.get("y", ""), []).append((x - half, x + half, words))
        for row in rows.values():
            for (_, end, a), (start, _, b) in zip(sorted(row), sorted(row)[1:], strict=False):
                assert end <= start, (a, b)


def test_the_tail_names_p99_of_both_sides() -> None:
    found = session()
    texts = [one.text for svg in forms(plots.latency(found)) for one in svg.iter(f"{SVG}text")]
    assert texts.count("361 ms") == texts.count("103 ms") == 2


def test_marks_say_what_they_are_to_the_pointer() -> None:
    tips = [one.text or "" for one in forms(plots.trials(session()))[0].iter(f"{SVG}title")]
    assert sum(tip.startswith("trial ") for tip in tips) == len(session()["trials"])


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "x", None, True])
def test_values_that_no_scale_has_are_left_out(value: object) -> None:
    found = session(trials=2)
    for block in found["blocks"][::3]:
        block["metrics"] = {"fsync.p99": value, "write.throughput": value}
    for trial in found["trials"]:
        trial["change"] = value
    for maker in MAKERS:
        made = maker(found)
        assert made is None or "nan" not in made.wide + made.narrow


def test_words_of_others_are_escaped() -> None:
    assert esc("<script>&\x1b[31m") == "&lt;script&gt;&amp;?[31m"
