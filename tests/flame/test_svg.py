"""The SVG in a browser: mouse, keys, search, and without scripting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flame.browser import Browser

from zfstrace.flame import save
from zfstrace.flame.diff import render
from zfstrace.stacks import Stacks

# What the tests ask of the page.
HELPERS = """
const all = (panel = 0) => [...document.querySelectorAll('svg.frames')[panel].children];
const named = (name, panel) =>
  all(panel).find((g) => g.firstChild.textContent.startsWith(name + ' ('));
const shown = (g) => getComputedStyle(g).display !== 'none';
const box = (g) => g.querySelector('rect').getBoundingClientRect().toJSON();
const focused = () => document.activeElement.querySelector?.(':scope > title')?.textContent || '';
const text = (css) => document.querySelector(css).textContent;
const hits = () => document.querySelectorAll('g.hit').length;
"""


class Page:
    """A flame graph that is open in the browser."""

    def __init__(self, browser: Browser, path: Path) -> None:
        self.browser = browser
        browser.open(path.as_uri())
        browser.js(HELPERS)

    def box(self, name: str, panel: int = 0) -> dict[str, float]:
        """The rectangle of the first frame of that name, in px."""
        found: dict[str, float] = self.browser.js(f"box(named({name!r}, {panel}))")
        return found

    def click(self, name: str, panel: int = 0) -> None:
        """The middle of a frame."""
        self.browser.js(f"named({name!r}, {panel}).scrollIntoView({{block: 'center'}})")
        box = self.box(name, panel)
        self.browser.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def js(self, expression: str) -> Any:
        return self.browser.js(expression)


@pytest.fixture
def page(chromium: Browser, written: Callable[[str], Path]) -> Page:
    return Page(chromium, written("a.svg"))


def test_the_page_fills_the_window_and_loads_nothing_else(page: Page) -> None:
    root = page.box("all")
    assert (root["x"], root["width"]) == (12, 1280 - 24)
    assert page.js("performance.getEntriesByType('resource').length") == 0
    # the root is at the bottom
    assert page.box("tank")["y"] < root["y"]
    page.browser.resize(640, 700)
    page.browser.wait("Math.abs(box(all()[0]).width - 616) < 1")


def test_hover_tells_name_time_and_share(page: Page) -> None:
    box = page.box("flush")
    page.browser.move(box["x"] + 5, box["y"] + 5)
    assert page.js("text('.details')") == "flush (3.88 s, 21.6 %)"
    page.browser.move(600, 30)
    assert "left out" in page.js("text('.details')")


def test_click_zooms_and_the_button_resets(page: Page) -> None:
    before, full = page.box("flush"), page.box("all")
    page.click("flush")
    assert page.box("flush") == pytest.approx({**before, **wide(full)}, abs=0.1)
    # frames below span all of it, frames beside it are gone
    assert page.box("tank")["width"] == pytest.approx(full["width"])
    assert not page.js("shown(named('log_write'))")
    # fio, mysqld and postgres share the width in proportion
    inside = page.js(
        "all().filter(shown).filter((g) => box(g).y === box(named('flush')).y - 18)"
        ".map((g) => box(g).width)"
    )
    assert sum(inside) == pytest.approx(full["width"], rel=1e-3)
    assert page.js("text('.bar button')") == "Reset zoom"
    button = page.js("document.querySelector('.bar button').getBoundingClientRect().toJSON()")
    page.browser.click(button["x"] + 10, button["y"] + 10)
    assert page.box("flush") == pytest.approx(before, abs=0.01)
    assert page.js("document.querySelector('.bar button').hidden")
    assert page.js("shown(named('log_write'))")


def wide(full: dict[str, float]) -> dict[str, float]:
    return {name: full[name] for name in ("x", "left", "right", "width")}


def test_search_marks_and_sums(page: Page) -> None:
    page.browser.key("/")
    assert page.js("document.activeElement.type") == "search"
    page.browser.type("^flush$")
    assert page.js("hits()") == 1
    assert page.js("text('.bar output')") == "matched 21.6 %"
    # frames above one another count once
    for _ in range(7):
        page.browser.call("Input.dispatchKeyEvent", type="rawKeyDown", key="Backspace",
                          windowsVirtualKeyCode=8)  # fmt: skip
    page.browser.type("tank|schedule")
    assert page.js("text('.bar output')") == "matched 100.0 %"
    # no pattern, so plain text
    page.browser.type("(")
    assert page.js("[hits(), text('.bar output')]") == [0, "matched 0.00 %"]
    page.browser.key("Escape")
    assert page.js("[hits(), text('.bar output')]") == [0, ""]
    assert page.js("document.querySelector('input').value") == ""


def test_keys_alone_are_enough(page: Page) -> None:
    # the first Tab may only enter the page
    seen = []
    while "input" not in seen:
        page.browser.key("Tab")
        seen.append(page.js("document.activeElement.localName"))
        assert len(seen) < 3
    page.browser.key("Tab")
    assert page.js("focused()").startswith("all (")
    page.browser.key("ArrowUp")
    page.browser.key("ArrowUp")
    # up is to the widest
    assert page.js("focused()").startswith("log_write (")
    assert page.js("text('.details')").startswith("log_write (")
    stroke = "getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth"
    assert page.js(stroke) == "3px"
    page.browser.key("ArrowRight")
    assert page.js("focused()").startswith("other (")
    page.browser.key("ArrowLeft")
    page.browser.key("ArrowLeft")
    assert page.js("focused()").startswith("issuer_lock (")
    page.browser.key("Enter")
    assert page.box("issuer_lock")["width"] == pytest.approx(page.box("all")["width"])
    assert page.js("focused()").startswith("issuer_lock (")
    assert page.js("document.activeElement.getAttribute('role')") == "treeitem"
    page.browser.key("ArrowDown")
    assert page.js("focused()").startswith("tank (")
    page.browser.key("Escape")
    assert page.js("shown(named('log_write'))")
    page.browser.key("Home")
    assert page.js("focused()").startswith("all (")


def test_readable_without_scripting(chromium: Browser, written: Callable[[str], Path]) -> None:
    path = written("still.svg")
    bare = path.with_name("bare.svg")
    head, _, _ = path.read_text().partition("<script>")
    bare.write_text(head + "</svg>")
    page = Page(chromium, bare)
    assert page.js("document.querySelector('.bar')") is None
    texts = page.js("[...document.querySelectorAll('.frames text')].map((t) => t.textContent)")
    assert {"tank", "flush", "log_write", "zil_commit_impl [zfs]"} <= set(texts)
    # no text is wider than its frame
    assert page.js(
        "all().filter((g) => g.children[2])"
        ".every((g) => g.children[2].getComputedTextLength() <= box(g).width)"
    )


def test_labels_look_unlike_functions(page: Page) -> None:
    page.click("flush")
    style = "((g) => [getComputedStyle(g).fill, getComputedStyle(g.children[2]).fontWeight])"
    shown = "all().find((g) => shown(g) && g.textContent.startsWith('do_fsync'))"
    label, function = page.js(f"[{style}(named('flush')), {style}({shown})]")
    assert label[1] == "700"
    assert function[1] == "400"
    red, green, blue = eval(function[0].removeprefix("rgb"))
    assert blue > green > red
    red, green, blue = eval(label[0].removeprefix("rgb"))
    assert max(red, green, blue) - min(red, green, blue) < 16


def test_difference_has_both_sides(chromium: Browser, sample: Stacks, tmp_path: Path) -> None:
    changed = {
        stack.replace("issuer_lock", "txg_fallback"): count
        for stack, count in sample.counts.items()
    }
    after = Stacks(sample.kind, sample.unit, "after", changed)
    path = tmp_path / "diff.svg"
    save(str(path), render(sample, after, "before and after"))
    page = Page(chromium, path)
    fill = "getComputedStyle(named({!r}, {})).fill"
    assert page.js(fill.format("txg_fallback", 0)) == "rgb(236, 92, 75)"
    assert page.js(fill.format("issuer_lock", 1)) == "rgb(86, 144, 228)"
    assert page.js(fill.format("flush", 0)) == "rgb(244, 244, 244)"
    assert page.js(
        "named('issuer_lock', 0) === undefined && named('txg_fallback', 1) === undefined"
    )
    # each of the two zooms alone, and search sums both
    page.click("flush", panel=1)
    assert page.box("flush", 1)["width"] == pytest.approx(page.box("all", 1)["width"])
    assert page.box("flush", 0)["width"] < 400
    page.browser.key("/")
    page.browser.type("issuer_lock")
    assert page.js("text('.bar output')") == "matched 0.00 % / 9.25 %"


def test_inverted_has_the_root_on_top(chromium: Browser, sample: Stacks, tmp_path: Path) -> None:
    from zfstrace.flame import write

    path = tmp_path / "icicle.svg"
    write(sample, str(path), inverted=True)
    page = Page(chromium, path)
    assert page.box("tank")["y"] > page.box("all")["y"]
    page.click("flush")
    assert page.box("flush")["width"] == pytest.approx(1256)
    page.browser.key("ArrowDown")
    assert "postgres (" in page.js("focused()") or "fio (" in page.js("focused()")


def test_two_graphs_in_one_document(
    chromium: Browser, written: Callable[[str], Path], tmp_path: Path
) -> None:
    graph = written("a.svg").read_text().partition("?>")[2]
    both = tmp_path / "report.html"
    both.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{graph}<p>and</p>{graph}</body>")
    page = Page(chromium, both)
    page.click("flush", panel=1)
    assert page.box("flush", 1)["width"] == pytest.approx(page.box("all", 1)["width"])
    assert page.box("flush", 0)["width"] < 400
