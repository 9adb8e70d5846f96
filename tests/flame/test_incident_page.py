"""The page of an incident in a browser: nothing fails or is loaded, and everybody can read it,
light and dark, on a wide and on a narrow screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flame.browser import Browser
from flame.conftest import HERE
from support import incidents

from zfstune.report import incident

WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
# what goes wrong from the first line on
WATCH = """
window.wrong = [];
for (const kind of ['error', 'unhandledrejection', 'securitypolicyviolation'])
  addEventListener(kind, (event) => wrong.push(
    kind + ': ' + (event.message || event.blockedURI || event.reason)), true);
for (const kind of ['error', 'warn']) console[kind] = (...all) => wrong.push(kind + ': ' + all);
window.alert = (text) => wrong.push('alert: ' + text);
"""
EVIL = "'\"><img src=x onerror=alert(1)></script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an incident with hostile names."""
    directory = tmp_path_factory.mktemp("incident")
    slow = incidents.slow_fsync(41).to_json() | {"comm": EVIL, "dataset": EVIL}
    note = {"schema": 1, "type": "note", "time": incidents.moment(41), "text": EVIL}
    header = {
        "reason": EVIL,
        "host": {**incidents.HEADER["host"], "name": EVIL},
        "pools": {**incidents.HEADER["pools"], EVIL: {"state": EVIL, "layout": [EVIL * 9]}},
    }
    file = directory / "x.jsonl.gz"
    incidents.write(file, [*incidents.records(), slow, note], header)
    made = directory / "x.html"
    made.write_text(incident.render(incident.read(str(file), None)), encoding="utf-8")
    return made


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    found = HERE / "node_modules/axe-core/axe.min.js"
    if not found.is_file():
        pytest.fail("npm's axe-core is not installed: run scripts/bootstrap", False)
    return found.read_text(encoding="utf-8")


def show(browser: Browser, page: Path, width: int, scheme: str = "light") -> None:
    browser.open("about:blank")
    browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    browser.call(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    browser.resize(width, 900)
    browser.call("Page.navigate", url=page.as_uri())
    address = json.dumps(page.as_uri())
    browser.wait(f"document.readyState === 'complete' && location.href === {address}")


def judged(browser: Browser, axe: str) -> list[dict[str, Any]]:
    """What axe has against the page."""
    browser.js(f"{axe};0")
    browser.js("axe.run().then((found) => { window.found = found; }); 0")
    browser.wait("window.found")
    text: str = browser.js(
        "JSON.stringify(found.violations.map((one) => "
        "[one.impact, one.id, one.nodes.map((node) => node.html.slice(0, 200))]))"
    )
    passes: int = browser.js("found.passes.length")
    # it has looked
    assert passes > 15
    return [
        {"impact": impact, "id": name, "nodes": nodes} for impact, name, nodes in json.loads(text)
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing(
    chromium: Browser, page: Path, axe: str, width: int, scheme: str
) -> None:
    show(chromium, page, width, scheme)
    # what is folded up is part of the page
    chromium.js("for (const one of document.querySelectorAll('details')) one.open = true")
    chromium.wait("document.querySelector('pre.json').textContent.length > 100")
    dark = chromium.js("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
    assert judged(chromium, axe) == []
    assert chromium.js("wrong") == []


def test_axe_finds_what_is_wrong(chromium: Browser, page: Path, axe: str) -> None:
    show(chromium, page, 1280)
    chromium.js(
        "document.body.insertAdjacentHTML('beforeend', '<button></button>"
        '<p style="color: #ddd; background: #fff">pale</p>\')'
    )
    found = {one["id"] for one in judged(chromium, axe) if one["impact"] in ("serious", "critical")}
    assert {"button-name", "color-contrast"} <= found


@pytest.mark.parametrize("width", [360, *WIDTHS])
def test_it_fits_the_window_and_loads_nothing(chromium: Browser, page: Path, width: int) -> None:
    show(chromium, page, width)
    assert chromium.js("document.documentElement.scrollWidth") <= width
    shown = "[...document.querySelectorAll('.plot svg')].filter((one) => one.clientWidth).length"
    assert chromium.js(shown) == 1
    assert chromium.js("performance.getEntriesByType('resource').length") == 0
    assert chromium.js("document.querySelectorAll('img, script[src], iframe').length") == 0
    assert chromium.js("wrong") == []


def test_frames_that_scroll_take_the_focus(chromium: Browser, page: Path) -> None:
    show(chromium, page, 700)
    wide = chromium.js(
        "[...document.querySelectorAll('*')].filter((one) => one.scrollWidth > one.clientWidth "
        "&& getComputedStyle(one).overflowX === 'auto').map((one) => "
        "[one.tabIndex, one.getAttribute('role'), !!one.getAttribute('aria-label')])"
    )
    assert wide
    assert all(one == [0, "region", True] for one in wide)


def test_panels_show_a_moment_at_the_same_place(chromium: Browser, page: Path) -> None:
    show(chromium, page, 1280)
    places = chromium.js(
        "[...document.querySelectorAll('.plot .wide g')].filter((one) => one.firstChild.textContent"
        ".endsWith('the moment of this page')).map((one) => one.getBoundingClientRect().x)"
    )
    assert len(places) == 5
    assert len({round(place, 1) for place in places}) == 1
