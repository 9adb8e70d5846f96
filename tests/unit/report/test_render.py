"""The report: one file that is well formed in every state of a session and loads nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.sample_session import Json, session, with_flames
from support.samples import from_values

from zfstune.html import page as report_page
from zfstune.report import render
from zfstune.report import words as report_words
from zfstune.report.flame import flames

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&\x1b[31m\ud800$x^2$"
MOST_BYTES = 1_500_000
# Elements without an end.
VOID = {"meta", "br", "img", "input", "link"}


class Page(HTMLParser):
    """The elements of a page; fails on one that is not closed, and on a double id."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.ids: set[str] = set()
        self.text: list[str] = []
        self.raw: dict[str, str] = {}
        self.frames: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                assert value not in self.ids
                self.ids.add(value or "")
            if name == "srcdoc":
                self.frames.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.raw[self.open[-1]] = self.raw.get(self.open[-1], "") + data
        else:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def load(path: Path) -> Page:
    """The page, which must load nothing and be of a size that can be sent."""
    data = path.read_bytes()
    assert len(data) < MOST_BYTES
    page = Page(data.decode())
    check_closed(page)
    return page


def check_closed(page: Page) -> None:
    """No element and no style refers to anything outside of the file."""
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "data", "action", "poster", "xlink:href"):
            assert value.startswith("#"), (tag, name, value)
        if name == "srcdoc":
            # the namespaces of SVG and XHTML are names
            assert set(re.findall(r"https?:[^\"' )]*", value)) <= {
                "http://www.w3.org/2000/svg",
                "http://www.w3.org/1999/xhtml",
            }
            check_closed(Page(value.replace("<![CDATA[", "").replace("]]></script>", "</script>")))
        elif name != "xmlns":
            assert "http" not in value, (tag, name, value)
    assert "http" not in page.raw.get("style", "")
    assert "url(" not in page.raw.get("style", "")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Json, Path]:
    """A session that ended well, with flame graphs, and its directory."""
    directory = tmp_path_factory.mktemp("session")
    found = session()
    with_flames(found, directory)
    render.write(found, directory)
    return found, directory


def test_a_successful_session_has_verdict_changes_and_pictures(made: tuple[Json, Path]) -> None:
    page = load(made[1] / "report.html")
    for words in (
        "Better p99 of fsync is 75 % lower (67 % to 82 % lower)",
        "Confirmed in 6 pairs of fresh blocks of 20 s",
        "about 1 of 64 sessions (p = 0.016)",
        "2 parameters changed, in force now.",
        "zfs_dirty_data_max 392 MiB 411041792 32 MiB 33554432 The pool writes 29 MiB/s",
        "zfstune revert",
        "zfstune keep",
        "echo 411041792 > /sys/module/zfs/parameters/zfs_dirty_data_max",
        "write.throughput>=-5% ✓ kept 0.3 % higher",
        "log_write 58.8 % 44.7 %",
        "taking it away changed p99 of fsync by +1.2 %",
        "changes of 28 % or more can be detected",
        "the interval of the verdict (Hodges and Lehmann, by the ranks of the pairs)",
        "6.12.107+deb13-amd64",
        "zfstune tune tank --workload 'fio wal.fio' --budget 30m",
    ):
        assert words in page.words
    # what a reader in a hurry needs comes before the first section
    head = (made[1] / "report.html").read_text().partition('id="changed"')[0]
    assert head.count('<figure class="plot">') == 1
    assert "zfstune keep" in head and "zfstune revert" in head
    sections = "changed limits latency stages blocks txgs trials stacks session"
    assert page.ids >= {*sections.split(" ")}
    # six plots in two widths, the gauge, and the intervals of eight measures
    assert page.count["figure"] == 6
    assert page.count["svg"] == 12 + 1 + 8
    assert page.count["iframe"] == 3


def test_what_scrolls_has_a_name_and_takes_the_focus(made: tuple[Json, Path]) -> None:
    text = (made[1] / "report.html").read_text()
    regions = re.findall(r'<div class="scroll"([^>]*)>', text)
    assert len(regions) > 6
    labels = [one.partition(' tabindex="0" role="region" aria-label=')[2] for one in regions]
    assert all(labels) and len(set(labels)) == len(labels)


def test_before_and_after_cover_all_fsyncs_of_the_proof(made: tuple[Json, Path]) -> None:
    rows = {"before": [], "after": []} | made[0]["histograms"]
    expected = []
    for side in ("before", "after"):
        values = [low for low, _, count in rows[side] for _ in range(count)]
        expected.append(from_values(values).quantile(990))
    shown = report_words.before_after(made[0])
    assert shown is not None
    for text, ns in zip(shown, expected, strict=True):
        assert float(text.removesuffix(" ms")) == pytest.approx(ns / 1e6, rel=0.04)


def test_the_embedded_data_are_the_session(made: tuple[Json, Path]) -> None:
    text = (made[1] / "report.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert found
    assert json.loads(found[1]) == json.loads(json.dumps(made[0]))


def test_the_same_session_is_the_same_page(made: tuple[Json, Path], tmp_path: Path) -> None:
    for name in ("before.folded", "after.folded"):
        shutil.copy(made[1] / name, tmp_path)
    again = render.write(made[0], tmp_path)
    assert again == tmp_path / "report.html"
    assert again.read_bytes() == (made[1] / "report.html").read_bytes()


def test_only_the_scripts_of_the_page_may_run(made: tuple[Json, Path]) -> None:
    text = (made[1] / "report.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "default-src 'none'" in policy[1]
    # the script of the page and that of the flame graphs
    assert len(re.findall(r"'sha256-[^']*'", policy[1])) == 2
    assert "unsafe-inline'; script-src 'sha256" in policy[1]


def stopped(found: Json) -> None:
    found.update(state="stopped", note="stopped by Ctrl-C.", verdict=None, winner=None)
    found.update(changes={}, histograms={}, stages={}, limits=[], dropped=[], in_force=False)
    found["blocks"] = found["blocks"][:3]


def failed(found: Json) -> None:
    stopped(found)
    found.update(state="failed", note="pool tank is DEGRADED, not ONLINE", blocks=[], txgs=[])
    found.update(trials=[], noise={})


def verdict(kind: str, change: float, low: float, high: float) -> Callable[[Json], None]:
    def put(found: Json) -> None:
        found.update(winner=None, in_force=False)
        found["verdict"].update(kind=kind, change=change, low=low, high=high, p=0.4)

    return put


def missed(found: Json) -> None:
    verdict("worse", 0.4, 0.2, 1.7)(found)
    found["limits"][0].update(ok=False, change=-0.12)


def nothing_found(found: Json) -> None:
    found.update(verdict=None, winner=None, in_force=False, changes={}, histograms={}, stages={})
    found["more"] = "gains below 28% cannot be told from the noise; --budget 2h <shows> more"


def lossy(found: Json) -> None:
    found["lost"] = 12
    found["overrides"] = [
        {"name": "zfs_txg_timeout", "value": 9, "pid": 812, "comm": "ansible", "time": "09:20:01Z"},
        {"name": "zfs_dirty_data_max", "value": 1 << 30, "pid": None, "comm": None, "time": None},
    ]


def restored(found: Json) -> None:
    found["in_force"] = False


def not_restored(found: Json) -> None:
    found.update(in_force=False, restored=False, state="failed")


STATES: dict[str, tuple[Callable[[Json], None], tuple[str, ...]]] = {
    "stopped": (
        stopped,
        (
            "No verdict The session was stopped before a result was confirmed",
            "Note: stopped by Ctrl-C. ",
            "Nothing: all parameters have their previous values.",
            "There was no confirmation",
        ),
    ),
    "failed": (
        failed,
        ("The session failed before", "It failed: pool tank is DEGRADED", "No block was measured."),
    ),
    "equivalent": (
        verdict("equivalent", -0.01, -0.04, 0.03),
        (
            "No difference that matters p99 of fsync is 1.0 % lower (from 4.0 % lower to 3.0 %",
            "only changes of 28 % or more can be detected",
        ),
    ),
    "inconclusive": (
        verdict("inconclusive", -0.2, -0.5, 0.3),
        ("Not decided p99 of fsync is 20 % lower, but that may be chance (from 50 % lower to",),
    ),
    "worse": (
        missed,
        (
            "Worse p99 of fsync is 40 % higher (from 20 % higher to 2.7 times as high)",
            "A limit was missed: write.throughput>=-5% (12 % lower)",
            "✗ missed",
        ),
    ),
    "nothing found": (
        nothing_found,
        (
            "Nothing better found No trial changed p99 of fsync",
            "Next: gains below 28% cannot be told from the noise; --budget 2h <shows> more.",
        ),
    ),
    "lossy": (
        lossy,
        (
            "12 events could not be measured",
            "zfs_txg_timeout was set to 9 s by ansible (812) at 09:20:01Z",
            "zfs_dirty_data_max was set to 1 GiB by an unknown process.",
        ),
    ),
    "restored": (
        restored,
        ("These values are not in force", "All parameters have their previous values."),
    ),
    "not restored": (
        not_restored,
        (
            "These values were not to stay, but not all are restored: see `zfstune status`.",
            "Not all parameters are restored: see `zfstune status`.",
        ),
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_every_state_has_a_headline(name: str, tmp_path: Path) -> None:
    change, expected = STATES[name]
    found = session(trials=2)
    change(found)
    page = load(render.write(found, tmp_path))
    for words in expected:
        assert words in page.words
    if not found["in_force"]:
        assert "Undo:" not in page.words


def test_an_empty_session_is_a_page(tmp_path: Path) -> None:
    page = load(render.write({"schema": 1, "type": "tune_session"}, tmp_path))
    assert "Nothing better found" in page.words


@pytest.mark.parametrize(
    "broken",
    [None, 7, pytest.param(10**400, id="huge"), "x", [], [[]], {"a": {}}, float("nan")],
)
def test_parts_of_a_wrong_type_break_no_page(broken: Any, tmp_path: Path) -> None:
    found: Json = dict.fromkeys(session(trials=1), broken)
    load(render.write(found, tmp_path))


def spoil(value: Any) -> Any:
    """Every text of it is hostile."""
    if isinstance(value, dict):
        return {key: spoil(one) for key, one in value.items()}
    if isinstance(value, list):
        return [spoil(one) for one in value]
    return HOSTILE if isinstance(value, str) else value


def test_names_from_outside_are_escaped(tmp_path: Path) -> None:
    found = session(trials=2)
    lossy(found)
    kept = {name: found[name] for name in ("blocks", "txgs", "objective")}
    found = spoil(found) | kept
    for name in ("reasons", "winner", "baseline", "changes"):
        found[name] = {HOSTILE + key: value for key, value in found[name].items()}
    found["verdict"]["kind"] = "better"
    found["trials"][0]["values"] = {HOSTILE: 7}
    found["stages"]["before"][0]["name"] = HOSTILE
    (tmp_path / "before.folded").write_text(f"{HOSTILE[:-8]};b 7\n", errors="replace")
    (tmp_path / "after.folded").write_text("a;b 9\n")
    found["flame"] = {"before": "before.folded", "after": "after.folded", "note": HOSTILE}
    path = render.write(found, tmp_path)
    page = load(path)
    assert page.count["script"] == 2
    assert "img" not in page.count
    assert "alert(1)" in page.words
    assert "\x1b" not in path.read_text()
    assert len(page.frames) == 3
    for frame in page.frames:
        assert Page(frame.replace("<![CDATA[", "").replace("]]><", "<")).count["script"] == 1


@pytest.mark.usefixtures("no_plots")
def test_files_elsewhere_are_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "session"
    inside.mkdir()
    (tmp_path / "secret.folded").write_text("secret;b 9\n")
    found = session(trials=1)
    found["flame"] = {"before": "../secret.folded", "after": str(tmp_path / "secret.folded")}
    words = load(render.write(found, inside)).words
    assert "cannot read" in words
    assert "secret;" not in (inside / "report.html").read_text()


def test_one_flame_graph_alone_is_shown(tmp_path: Path) -> None:
    found = session(trials=1)
    with_flames(found, tmp_path)
    found["flame"].update(after=None, note="the recording after was too short")
    graphs = flames(found, tmp_path)
    assert graphs.body.count("<iframe") == 1
    assert "Note: the recording after was too short." in graphs.body


@pytest.mark.usefixtures("no_plots")
def test_flame_graphs_that_are_too_large_are_left_out(tmp_path: Path) -> None:
    found = session(trials=1)
    for name in ("before", "after"):
        lines = (f"tank;flush;p{i};{'f' * 90}{i};{'g' * 90}{i} {9 + i % 3}\n" for i in range(3000))
        (tmp_path / f"{name}.folded").write_text("".join(lines))
        found["flame"][name] = f"{name}.folded"
    page = load(render.write(found, tmp_path))
    assert "too large for this page; draw it with `zfstune flame diff`" in page.words


def test_a_very_long_session_stays_small(tmp_path: Path) -> None:
    found = session(trials=150, confirm=24)
    found["txgs"] = [
        {
            "t_s": i * 0.9,
            "txg": i,
            "sync_ns": 10**9 + i,
            "dirty_bytes": 10**8,
            "label": "AB "[i % 3],
        }
        for i in range(20_000)
    ]
    # a bucket for each ns, as no histogram of ours has
    rows = [[10**6 + i, 10**6 + i + 1, 3] for i in range(8000)]
    found["histograms"] = {"before": rows, "after": rows}
    page = load(render.write(found, tmp_path))
    assert "138 more trials" in page.words


def test_lists_that_are_too_long_leave_the_embedded_data() -> None:
    found = session(trials=1)
    found["txgs"] = [{"t_s": i, "x": "y" * 60} for i in range(9000)]
    data = json.loads(report_page.embedded(found))
    assert data["txgs"] == {"left_out": 9000}
    assert data["blocks"] == json.loads(json.dumps(found["blocks"]))


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("fsync.p50", "median fsync is"),
        ("fsync.p99=0.7,fsync.p50=0.3", "70 % p99 of fsync and 30 % median fsync is"),
        ("fsync.p99=0.5,write.throughput=0.5", "50 % p99 of fsync and 50 % write throughput is"),
        ("write.throughput", "write throughput is"),
        ("what no version knows", "what no version knows is"),
    ],
)
def test_any_objective_has_its_words(objective: str, words: str, tmp_path: Path) -> None:
    found = session(trials=2)
    found["objective"] = objective
    assert words in load(render.write(found, tmp_path)).words
