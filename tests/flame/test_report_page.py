"""The report of a session in a browser: nothing fails, nothing is loaded, its graphs are alive."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from flame.browser import Browser
from flame.conftest import SAMPLE
from support.sample_session import session

from zfstune.report import render

# In each document, also those of the frames: what goes wrong from the first line on.
WATCH = """
window.wrong = [];
for (const kind of ['error', 'unhandledrejection', 'securitypolicyviolation'])
  addEventListener(kind, (event) => wrong.push(
    kind + ': ' + (event.message || event.blockedURI || event.reason)), true);
for (const kind of ['error', 'warn']) console[kind] = (...all) => wrong.push(kind + ': ' + all);
window.alert = (text) => wrong.push('alert: ' + text);
"""
HELPERS = """
const inside = (n) => document.querySelectorAll('iframe')[n].contentDocument;
const frames = (n, panel = 0) =>
  [...inside(n).querySelectorAll('svg.frames')[panel].children];
const named = (n, name) =>
  frames(n).find((g) => g.firstChild.textContent.startsWith(name + ' ('));
const box = (g) => g.querySelector('rect').getBoundingClientRect().toJSON();
const place = (n) => document.querySelectorAll('iframe')[n].getBoundingClientRect().toJSON();
const allWrong = () => [window, ...[...document.querySelectorAll('iframe')]
  .map((frame) => frame.contentWindow)].flatMap((one) => one.wrong);
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a sample session with hostile names."""
    directory = tmp_path_factory.mktemp("report")
    shutil.copy(SAMPLE, directory / "before.folded")
    shutil.copy(SAMPLE.parent / "offcpu-after.folded", directory / "after.folded")
    found = session(trials=4)
    found["flame"] = {"before": "before.folded", "after": "after.folded", "note": None}
    found["note"] = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    found["reasons"]["zfs_dirty_data_max"] = "<svg onload=alert(3)>"
    found["pool"] = "'\"><script src=http://127.0.0.1:9/x.js></script>"
    return render.write(found, directory)


@pytest.fixture
def opened(chromium: Browser, page: Path) -> Iterator[Browser]:
    """The page, and at the end of the test nothing has gone wrong in it."""
    show(chromium, page, 1280)
    yield chromium
    assert chromium.js("allWrong()") == []


def show(browser: Browser, page: Path, width: int) -> None:
    browser.open("about:blank")
    browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    browser.resize(width, 900)
    browser.call("Page.navigate", url=page.as_uri())
    address = json.dumps(page.as_uri())
    browser.wait(f"document.readyState === 'complete' && location.href === {address}")
    browser.js(HELPERS)


def click(browser: Browser, number: int, name: str) -> None:
    """The middle of a frame of a flame graph."""
    browser.js(f"named({number}, {name!r}).scrollIntoView({{block: 'center'}})")
    around, box = browser.js(f"place({number})"), browser.js(f"box(named({number}, {name!r}))")
    x = around["x"] + box["x"] + box["width"] / 2
    browser.click(x, around["y"] + box["y"] + box["height"] / 2)


def test_nothing_is_loaded_and_nothing_fails(opened: Browser) -> None:
    assert opened.js("performance.getEntriesByType('resource').length") == 0
    assert opened.js("document.querySelectorAll('img, script[src]').length") == 0
    assert "p99 of fsync is 7" in opened.js("document.querySelector('h1').textContent")


def test_the_difference_zooms_and_searches(opened: Browser) -> None:
    full = opened.js("box(named(0, 'all'))")
    before = opened.js("box(named(0, 'flush'))")
    assert before["width"] < full["width"] / 2
    click(opened, 0, "flush")
    after = opened.js("box(named(0, 'flush'))")
    assert after["width"] == pytest.approx(full["width"], abs=0.1)
    opened.key("/")
    opened.type("zil_commit")
    assert opened.js("inside(0).querySelectorAll('g.hit').length") > 1
    # the keys of one graph are not those of another
    assert opened.js("inside(1).querySelectorAll('g.hit').length") == 0


def test_a_graph_that_was_folded_up_fills_its_place(opened: Browser) -> None:
    opened.js("document.querySelectorAll('iframe')[1].closest('details').open = true")
    opened.wait("box(named(1, 'all')).width > 1000")
    click(opened, 1, "flush")
    opened.wait("box(named(1, 'flush')).width > 1000")


def test_data_and_commands(opened: Browser) -> None:
    opened.js("document.querySelector('.raw-json').open = true")
    opened.wait("document.querySelector('pre.json').textContent.length > 1000")
    data = json.loads(opened.js("document.querySelector('pre.json').textContent"))
    assert data["verdict"]["pairs"] == 6
    assert "alert(2)" in data["note"]
    opened.js("document.querySelector('.cmd button').click()")
    opened.wait("document.querySelector('.cmd button').textContent !== 'Copy'")


def test_paper_has_what_the_screen_folds_up(opened: Browser) -> None:
    folded = "document.querySelectorAll('details:not([open]):not(.raw-json)').length"
    assert opened.js(folded) > 2
    opened.js("dispatchEvent(new Event('beforeprint'))")
    assert opened.js(folded) == 0
    opened.js("dispatchEvent(new Event('afterprint'))")
    assert opened.js(folded) > 2


@pytest.mark.parametrize("width", [360, 400, 800])
def test_a_narrow_window_has_no_sideways_scrolling(
    chromium: Browser, page: Path, width: int
) -> None:
    show(chromium, page, width)
    assert chromium.js("document.documentElement.scrollWidth") <= width
    shown = "[...document.querySelectorAll('.plot svg')].filter((one) => one.clientWidth).length"
    assert chromium.js(shown) == 6
    assert chromium.js("allWrong()") == []
