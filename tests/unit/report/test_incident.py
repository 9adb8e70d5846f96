"""The page of an incident: what is on it, for whole files, odd ones and empty ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support import incidents
from support.errors import ONE_ERROR
from support.hostile import EVIL

from zfstrace.clock import iso_utc
from zfstrace.types import Json
from zfstune import cli
from zfstune.incident.times import ns_of
from zfstune.report import incident, incident_plots, incident_tables
from zfstune.report.incident_data import Fold, bins_of
from zfstune.term.units import MS, SECOND

Run = Callable[..., tuple[int, str, str]]
VOID = ("meta", "rect", "circle", "path", "br")


class Page(HTMLParser):
    """The elements of a page, checked to be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page(path: Path, moment: str | None = None) -> Page:
    return Page(incident.render(incident.read(str(path), moment)))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page(incidents.write(tmp_path_factory.mktemp("full") / "x"))


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Page:
    # which records no single fsync
    rows = [one for one in incidents.records(full=False) if one["type"] != "slow_fsync"]
    return page(incidents.write(tmp_path_factory.mktemp("light") / "x", rows))


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr("zfstune.changes.recovery.if_needed", lambda _who: None)

    def run(*words: object) -> tuple[int, str, str]:
        status = cli.main(["report", *map(str, words)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_it_says_what_happened_and_why(full: Page) -> None:
    assert "The p99 of fsyncs was 181 ms at the worst moment, 00:03:30 UTC" in full.words
    assert "Cause found" in full.words
    assert "Cache flushes are slow (sure): 99 % of the p99" in full.words
    assert "Written because of: fsync.p99>200ms for 30s on tank." in full.words
    assert "12 events were lost" in full.words


def test_it_has_all_sections_in_landmarks(full: Page) -> None:
    names = [one["id"] for one in full.all("section")]
    assert names == ["timeline", "diagnosis", "moment", "slowest", "changes", "losses", "host"]
    assert [one["href"] for one in full.all("a")] == [f"#{name}" for name in names]
    for landmark in ("header", "nav", "main", "footer"):
        assert len(full.all(landmark)) == 1
    assert len(full.all("h1")) == 1


def test_nothing_is_loaded(full: Page) -> None:
    assert not full.all("img") and not full.all("link") and not full.all("iframe")
    assert all("src" not in one for one in full.all("script"))
    policy = full.all("meta")[1]["content"] or ""
    assert policy.startswith("default-src 'none'")


def test_what_scrolls_has_a_name_and_takes_the_focus(full: Page) -> None:
    regions = [one for one in full.all("div") if one.get("class") in ("scroll", "lines")]
    assert len(regions) > 6
    for one in regions:
        assert (one["tabindex"], one["role"]) == ("0", "region")
        assert one["aria-label"]
    labels = [one["aria-label"] for one in regions]
    assert len(set(labels)) == len(labels)


def test_pictures_are_described(full: Page) -> None:
    plots = [one for one in full.all("svg") if one.get("role") == "img"]
    assert len(plots) == 2
    described = {one.get("id") for one in [*full.all("title"), *full.all("desc")]}
    for one in plots:
        assert {one["aria-labelledby"], one["aria-describedby"]} <= described
    assert "highest p99 181 ms near 00:03" in full.words


def test_the_timeline_has_its_panels_and_its_marks(full: Page) -> None:
    for title in (
        "p99 of fsyncs, the highest (logarithmic)",
        "fsyncs per second",
        "stages of the time of fsyncs",
        "longest sync of a txg",
        "threads held up by the write throttle",
        "time of day (UTC), 2026-11-26 to 2026-11-27",
    ):
        assert full.words.count(title) >= 2
    assert "zfs_txg_timeout: 5 to 10 by other" in full.words
    assert "No fsync was seen on idle." in full.words


def test_tables_have_what_was_recorded(full: Page) -> None:
    for text in (
        "tank/db 5.0/s 181 ms 181 ms 181 ms flush 99%",
        "postgres 4711 tank 32 3.03 s 2.00 s 3.00G 75%",
        "sda flush 5.0 - 179 ms 180 ms 180 ms",
        "00:04:20.000 250 ms postgres 4711 tank/db fdatasync syncing flush 98%",
        "2026-11-27 00:04:20 pool tank is DEGRADED",
        "cv_timedwait `batch_wait` is part of `issue` no symbol",
        "zfs_vdev_scheduler none",
        "mirror-0 ONLINE",
    ):
        assert text in full.words


def test_a_light_trace_says_that_stages_are_estimated(light: Page) -> None:
    assert "The p99 of commits was 181 ms" in light.words
    assert "shares of stages are estimated from short windows" in light.words
    assert "stages of the time of fsyncs, estimated" in light.words
    assert "The view device was off in 60 of 60 intervals: above the budget." in light.words


def test_a_light_trace_shows_slow_commits_and_what_came_after_them(light: Page) -> None:
    assert "The slowest operations Commits time (UTC)" in light.words
    # the window ended at 00:04:20
    assert "00:04:18 2.00 s postgres 4711 tank/db 30 flush 100%" in light.words
    assert "at most one slow commit a minute, not of which dataset it was" in light.words
    assert "record with --views fsync,txg,throttle,arc to have them" in light.words


def test_a_page_without_single_operations_says_how_to_have_them(tmp_path: Path) -> None:
    rows = incidents.records([3], full=False)
    words = page(incidents.write(tmp_path / "x", rows)).words
    assert "The slowest operations There are single fsyncs only in the view fsync" in words
    assert "--views" not in page(incidents.write(tmp_path / "y", incidents.records([3]))).words


def test_another_moment(tmp_path: Path) -> None:
    found = page(incidents.write(tmp_path / "x"), "23:58")
    assert "The p99 of fsyncs was 5.96 ms at the chosen moment, 23:58:00 UTC" in found.words or (
        "at the chosen moment, 23:58:00 UTC" in found.words
    )
    assert "Nothing wrong" in found.words


def test_the_data_are_in_it(full: Page) -> None:
    text = next(one for one in full.text if one.startswith('{"type":"incident_report"'))
    data = json.loads(text)
    assert data["header"]["host"]["name"] == "db1.example.net"
    assert len(data["slowest"]) == len(data["slow_commits"]) == len(incidents.SLOW)


def test_names_are_text_wherever_they_are(tmp_path: Path) -> None:
    evil = f"{EVIL}'\"><img src=x onerror=alert(1)></script><script>alert(2)</script>"
    rows = [json.loads(json.dumps(one)) for one in incidents.records([40])]

    def poisoned(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: poisoned(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [poisoned(one, name) for one in value]
        plain = ("time", "type", "pool_state", "verdict", "certainty", "id")
        return evil if isinstance(value, str) and name not in plain else value

    changed = [poisoned(one) for one in rows]
    header = poisoned({"reason": "", "host": incidents.HEADER["host"], "parameters": {"x": ""}})
    pools = {evil: {"state": evil, "layout": [evil]}}
    path = incidents.write(tmp_path / "x", changed, {**header, "pools": pools, "program": evil})
    found = page(path)
    assert not found.all("img")
    assert len(found.all("script")) == 2
    assert "\x1b" not in "".join(found.text)


def test_a_pool_whose_writers_only_waited_has_no_p99(tmp_path: Path) -> None:
    kept = ("interval", "throttle")
    rows = [one for one in incidents.records([incidents.SLOW[0]]) if one["type"] in kept]
    words = page(incidents.write(tmp_path / "x", rows)).words
    assert "UTC: no p99 was recorded" in words
    assert "highest p99 0 ns" not in words


@pytest.mark.parametrize("given", [[], ["interval"], ["note"]])
def test_files_with_next_to_nothing(tmp_path: Path, report: Run, given: list[str]) -> None:
    rows = [one for one in incidents.one_of_each() if one["type"] in given]
    path = incidents.write(tmp_path / "x", rows)
    status, _, err = report("--from", path, "-o", tmp_path / "y.html")
    assert status == (0 if given else 2)
    if given:
        found = Page((tmp_path / "y.html").read_text())
        assert "No fsync was recorded at the worst moment" in found.words
        assert "The file has no diagnosis." in found.words
    else:
        assert "has no interval" in err


def test_a_damaged_file_says_so_on_the_page(tmp_path: Path) -> None:
    path = incidents.write(tmp_path / "x")
    path.write_bytes(path.read_bytes()[:-400])
    assert "is cut short after" in page(path).words


def test_more_pools_than_the_timeline_has_are_said(tmp_path: Path) -> None:
    rows = [one for one in incidents.records([3]) if one["type"] in ("interval", "txg")]
    many = [rows[0], *(rows[1] | {"pool": f"p{i}"} for i in range(40))]
    words = page(incidents.write(tmp_path / "x", many)).words
    assert "8 rows are of more pools than the timeline has room for." in words
    assert "outside of the file" not in words


def test_marks_for_which_there_is_no_room_are_counted(tmp_path: Path) -> None:
    changes = [incidents.parameter_change(3)] * 250
    rows = [*incidents.records([3]), *changes]
    words = page(incidents.write(tmp_path / "x", rows)).words
    # beside the moment
    assert f"without a mark, as there are too many: {1 + 250 - 60}." in words
    rows = [*incidents.records([3]), *changes[:59]]
    assert "without a mark" not in page(incidents.write(tmp_path / "y", rows)).words


def test_the_page_is_written_beside_the_file_for_its_owner(tmp_path: Path, report: Run) -> None:
    path = incidents.write(tmp_path / "incident-db1.jsonl.gz")
    status, out, err = report("--from", path)
    made = tmp_path / "incident-db1.html"
    assert (status, out) == (0, "")
    assert err.endswith(f"zfstune: report: {made}\n")
    assert made.stat().st_mode & 0o777 == 0o600
    assert report("--from", path, "-o", "-")[1].startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "DIR|FILE is missing"),
        (["x", "--from", "y"], "a session and an incident are two reports"),
        (["x", "--at", "12:00"], "--at is a moment in an incident"),
        (["--from", "/nowhere"], "cannot read /nowhere: No such file or directory"),
        (["--from", "-"], "there is no name for the page of standard input"),
        (["--from", "x", "-o", "/nowhere/x"], "directory /nowhere does not exist"),
    ],
)
def test_errors_are_of_one_line(report: Run, words: list[str], problem: str) -> None:
    status, out, err = report(*words)
    assert (status, out) == (2, "")
    assert re.fullmatch(ONE_ERROR, err)
    assert problem in err


# --- the fold


def folded(rows: list[Json], seconds: int = 600) -> Fold:
    first = ns_of(incidents.BEGIN) or 0
    found = Fold((first, first + seconds * SECOND), 10 * SECOND, None)
    for row in rows:
        found.see(None, row)  # type: ignore[arg-type]
    return found


def checked(rows: list[Json]) -> list[Json]:
    from zfstune.incident.reader import taken

    return [taken(row) for row in rows]


@pytest.mark.parametrize(
    ("span_s", "interval_s", "step_s", "count"),
    [(600, 10, 10, 60), (21_600, 10, 60, 360), (0, 10, 10, 1), (5, None, 1, 5), (605, 10, 10, 61)],
)
def test_the_time_is_cut_into_few_parts(
    span_s: int, interval_s: int | None, step_s: int, count: int
) -> None:
    bins = bins_of((0, span_s * SECOND), interval_s and interval_s * SECOND)
    assert (bins.step_ns, bins.count) == (step_s * SECOND, count)


def test_an_interval_of_nonsense_makes_no_endless_bins() -> None:
    first, last = ns_of("1970-01-01T00:00:00Z") or 0, ns_of("2200-12-31T00:00:00Z") or 0
    for interval in (None, 0, 1, (1 << 64) - 1):
        assert bins_of((first, last), interval).count <= 360
    assert bins_of((0, SECOND), (1 << 64) - 1).count == 1


def test_bins_have_the_worst_and_the_sums() -> None:
    found = folded(checked(list(incidents.records(range(60)))))
    bins = found.bins.pools["tank"]
    assert len(bins) == 60
    slow, calm = bins[incidents.SLOW[0]], bins[3]
    assert slow.p99 > 170_000_000 > calm.p99
    assert (slow.rate, calm.rate) == (5.0, 40.0)
    assert slow.stages["flush"] > 0.98 * sum(slow.stages.values())
    assert (slow.sync_ns, calm.sync_ns) == (6 * SECOND, SECOND)
    assert slow.wait_ns > 3 * SECOND
    assert calm.wait_ns == 0
    assert found.outside == 0


@pytest.mark.parametrize(
    "lengths", [[10.05] * 59, [10.2] * 58, [10.0] * 20 + [110.0] + [10.0] * 29], ids=str
)
def test_a_thread_that_waits_all_the_time_is_one(lengths: list[float]) -> None:
    """Intervals last a bit longer than ten seconds; of one that lasts long, parts have no row."""
    wait = next(row for row in incidents.records(incidents.SLOW) if row["type"] == "throttle")
    now, rows = ns_of(incidents.BEGIN) or 0, []
    for length in lengths:
        now += round(length * SECOND)
        own = {"time": iso_utc(now), "duration_ns": round(length * SECOND)}
        rows.append({"schema": 1, "type": "interval", **own, "off": {}, "lost": {}})
        rows.append(wait | own | {"total_ns": own["duration_ns"]})
    bins = folded(checked(rows)).bins
    found = sorted(bins.pools["tank"].items())
    assert [round(bins.waiting(one), 6) for _, one in found] == [1.0] * len(found)
    assert len(list(incident_plots._runs(found, bins))) == 1
    # without its interval, a part in the middle is a gap
    assert len(list(incident_plots._runs(found[:9] + found[10:], bins))) == 2


def test_what_is_counted_replaces_what_was_estimated_then() -> None:
    """And only then: a budget detaches the view fsync when most happens."""
    both = list(incidents.records([2]))
    for rows in (both, both[::-1]):
        found = folded(checked([*incidents.records([1, 41], full=False), *rows])).bins
        bins = found.pools["tank"]
        assert found.exact and [bins[i].exact for i in (1, 2, 41)] == [False, True, False]
        assert bins[2].count == 400 and bins[1].count > 0 and bins[41].p99 > 170 * MS
        assert found.what("tank") == "fsyncs and commits"


def test_the_page_says_what_it_counts_when(tmp_path: Path) -> None:
    rows = [*incidents.records(range(10)), *incidents.records(range(10, 60), full=False)]
    made = page(incidents.write(tmp_path / "x", rows))
    assert "The p99 of commits was 181 ms at the worst moment" in made.words
    assert "Pool tank, fsyncs and commits from" in made.words
    assert "highest p99 181 ms near 00:0" in made.words
    assert "at other times commits of the ZIL, and shares of stages are estimated" in made.words


def test_rows_of_another_time_are_counted_and_not_drawn() -> None:
    rows = checked(list(incidents.records([3])))
    far = [one | {"time": "2199-01-01T00:00:00Z"} for one in rows if one["type"] == "txg"]
    found = folded(far)
    assert found.outside == 1
    assert found.bins.pools == {}


def test_hostile_numbers_of_pools_and_operations_stay_few() -> None:
    rows = checked([one for one in incidents.records([3]) if one["type"] == "txg"])
    slow = checked([incidents.slow_fsync(41).to_json(), incidents.parameter_change(3)])
    many = [rows[0] | {"pool": f"p{i}"} for i in range(500)]
    many += [slow[0] | {"total_ns": i} for i in range(500)] + [slow[1]] * 500
    found = folded(many)
    assert len(found.bins.pools) == 32
    # all are of the time of the file
    assert (found.crowded, found.outside) == (500 - 32, 0)
    assert [one["total_ns"] for one in found.slowest()] == list(range(499, 479, -1))
    assert (len(found.changes), found.more_changes) == (200, 300)


def test_of_the_windows_after_slow_commits_the_busiest_dataset_is_kept() -> None:
    (one,) = checked([incidents.kept(41).to_json()])
    less = one | {"dataset": "tank/less", "stages": one["stages"] | {"flush": SECOND}}
    rows = [less, one, less]
    rows += [one | {"cause": one["cause"] | {"total_ns": i}} for i in range(500)]
    found = folded(rows).slow_commits()
    assert found[0] == one
    assert [each["cause"]["total_ns"] for each in found[1:]] == list(range(499, 480, -1))
    # of any length, as a file may have it
    assert "00:00:00" in incident_tables.slowest(folded([one | {"duration_ns": 1 << 63}]))
