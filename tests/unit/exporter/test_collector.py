"""All views together: failures, waiting, the cache of scrapes, and the table of metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.exported import OPENMETRICS, Exported, Scrape, gone_back
from support.exported_host import busy, fsyncs, light_state, whys
from support.fake_host import FakeHost, FakeSession
from support.paths import ROOT
from support.samples import arc, ios, read_state, reads, txg, vdev, waits

from zfstrace.errors import LibraryMissing, NoPrivilege, NotSupported, TraceError
from zfstrace.types import Losses
from zfstune.exporter.args import VIEWS
from zfstune.exporter.bounded import Names
from zfstune.exporter.encoding import wanted
from zfstune.exporter.metrics import METRICS
from zfstune.record.args import DEFAULT_VIEWS
from zfstune.term.units import MS, SECOND

TOTAL = "zfstune_fsync_duration_seconds_count"
DB = {"pool": "tank", "dataset": "tank/db"}


# --- the table


def test_what_is_exposed_is_the_table() -> None:
    host = busy()
    host.sessions["arc"] = [FakeSession([arc(1, waits=[MS])])]
    it = Exported(host, *VIEWS)
    it.kstats.written.poll()
    host.values["zfs_txg_timeout"] = 5
    scrape = it.scrape(2)
    text = it.text()
    for spec in METRICS.values():
        # OpenMetrics has a type of its own for an info
        kind = "gauge" if spec.type == "info" else spec.type
        assert f"# TYPE {spec.name} {kind}\n" in text, spec.name
        assert f"# HELP {spec.name} {spec.help}\n" in text
    exposed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert exposed == set(METRICS)
    for family in scrape.families:
        for sample in family.samples:
            name = sample.name
            for end in ("_bucket", "_count", "_sum") if family.type == "histogram" else ():
                name = name.removesuffix(end)
            assert set(sample.labels) - {"le"} == set(METRICS[name].labels), sample
    seen = {name for name, _ in scrape.samples}
    never = {"zfstune_trace_cost_ratio", "zfstune_parameter_changed", "zfstune_trace_off_info"}
    never |= {"zfstune_exporter_scrape_seconds"}
    for spec in METRICS.values():
        name = spec.name + ("_count" if spec.type == "histogram" else "")
        assert name in seen or spec.name in never, spec.name


def test_the_table_of_the_documentation_is_the_table() -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `zfstune_")]
    found = [[cell.strip().replace("`", "") for cell in row] for row in rows]
    plain = [replace(spec, help=spec.help.replace("`", "")) for spec in METRICS.values()]
    assert found == [
        [spec.name, spec.type, ", ".join(spec.labels), spec.view, spec.help] for spec in plain
    ]


def test_the_table_keeps_the_conventions_of_prometheus() -> None:
    views = {*VIEWS, "kstat", "self"}
    for spec in METRICS.values():
        assert spec.name.startswith("zfstune_")
        assert spec.name.endswith("_total") == (spec.type == "counter")
        assert spec.name.endswith("_info") == (spec.type == "info")
        assert spec.type != "histogram" or spec.name.endswith("_seconds")
        assert spec.view in views
        assert not {"pid", "comm", "txg", "le", "quantile"} & set(spec.labels)
        assert spec.help.endswith(".") and len(spec.help) < 100


# --- scrapes


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        (OPENMETRICS, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2", True),
        ("text/plain;version=0.0.4,application/openmetrics-text;q=0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;version=x.y;q=0.5", True),
        ("application/openmetrics-text;q=abc", False),
        ("application/openmetrics-text;q=nan,*/*", False),
        ("application/openmetrics-text; version=99; charset=\x00\xff", True),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily", False),
        (";;;,,,=q=;", False),
        ("*/*", False),
        ("a," * 100_000, False),
    ],
)
def test_a_header_that_cannot_be_read_gets_text(accept: str, openmetrics: bool) -> None:
    assert wanted(accept) is openmetrics
    body, kind = Exported(busy(), "light").collector.encoded(accept)
    assert kind.startswith("application/openmetrics-text" if openmetrics else "text/plain")
    assert kind.isascii() and kind.isprintable() and "99" not in kind
    assert body.endswith(b"# EOF\n") is openmetrics


def test_a_thousand_scrapers_cost_one_reading_a_second() -> None:
    host = FakeHost()
    session = host.sessions["fsync"] = FakeSession([fsyncs(n) for n in range(1, 4)])
    it = Exported(host, "fsync")
    it.collector.tick()
    first = it.text()
    it.stop.clock += SECOND - 1
    assert it.text() is not None and it.text() == first
    assert Scrape(it.text(OPENMETRICS.replace(";", " ;") and "")).get(TOTAL, **DB) == 1
    assert "# EOF" in it.text(OPENMETRICS)
    assert len(session.states) == 2
    it.stop.clock += 1
    assert Scrape(it.text()).get(TOTAL, **DB) == 2
    assert len(session.states) == 1


def test_a_scrape_of_many_datasets_is_small() -> None:
    """With the default views. `pytest -s` shows how long it takes on this machine."""
    commits, _, _ = light_state()
    host = busy()
    host.names = {("tank", i): f"tank/d{i}" for i in range(32)}
    datasets = [replace(commits[0], objset=i) for i in range(32)]
    host.sessions["light"] = FakeSession([(datasets, [], [])])
    it = Exported(host, *DEFAULT_VIEWS, names=Names(32))
    it.tick()
    begun = time.perf_counter()
    text = it.text()
    took_ms = (time.perf_counter() - begun) * 1000
    print(f"\na scrape of 32 datasets: {took_ms:.1f} ms, {len(text):,} bytes")
    assert len(Scrape(text).of("zfstune_zil_commit_duration_seconds_count")) == 32
    assert len(text) < 150 << 10


def test_scrapes_of_many_threads_are_the_same_bytes() -> None:
    it = Exported(busy(), *VIEWS)
    it.collector.tick()
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(it.collector.encoded("")[0]))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16 and len(set(found)) == 1


def test_a_session_is_for_one_thread_at_a_time() -> None:
    inside: list[int] = []
    clashes: list[int] = []

    class Alone(FakeSession):
        def refresh(self) -> None:
            self._alone(super().refresh)

        def poll(self, timeout_ms: int) -> list[Any]:
            self._alone(lambda: None)
            return super().poll(timeout_ms)

        def _alone(self, call: Callable[[], None]) -> None:
            inside.append(1)
            if len(inside) > 1:
                clashes.append(1)
            # lets other threads run, if they can
            threading.Event().wait(0.0005)
            call()
            inside.pop()

    host = FakeHost()
    host.sessions["fsync"] = Alone([fsyncs(n) for n in range(1, 500)])
    it = Exported(host, "fsync")
    it.collector.tick()

    def scrapes() -> None:
        for _ in range(20):
            it.stop.clock += SECOND
            it.collector.encoded("")

    threads = [threading.Thread(target=scrapes) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        it.collector.tick()
        it.collector.rows()
    for thread in threads:
        thread.join()
    assert not clashes and not whys(it.scrape())


def test_a_family_that_cannot_be_encoded_does_not_end_the_scrape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zfstune.exporter.bounded.printable", lambda text: text)
    host = busy()
    host.names["tank", 68] = "tank/\udcff"
    it = Exported(host, "fsync", "txg")
    scrape = it.scrape()
    assert scrape.of(TOTAL) == {}
    assert scrape.get("zfstune_txgs_total", pool="tank", reason="timer") == 1
    it.tick()
    assert (it.scrape().get("zfstune_exporter_errors_total", what="encode") or 0) > 0


# --- failures


def test_a_view_that_fails_is_named_and_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    host = busy()
    sick = FakeSession([fsyncs(3), TraceError("cannot read: the map is gone", "restart it")])
    host.sessions["fsync"] = [sick, FakeSession([fsyncs(2)])]
    it = Exported(host, "fsync", "txg", "arc")
    first = it.scrape()
    assert first.get(TOTAL, **DB) == 3 and first.get("zfstune_fsync_unfinished") == 0
    second = it.scrape()
    assert sick.closed and not gone_back(first, second)
    assert whys(second) == {"fsync": "error"}
    assert second.get("zfstune_trace_up", view="fsync") == 0
    assert second.get("zfstune_trace_up", view="txg") == 1
    assert second.get("zfstune_fsync_unfinished") is None
    assert second.get("zfstune_exporter_errors_total", what="fsync") == 1
    said = capsys.readouterr().err
    assert "view fsync is off: cannot read: the map is gone; restart it; it is tried again" in said
    it.tick(298)
    assert whys(it.scrape()) == {"fsync": "error"}
    it.tick(2)
    last = it.scrape()
    assert whys(last) == {} and last.get(TOTAL, **DB) == 5
    assert not gone_back(second, last)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NoPrivilege("no"), "privilege"),
        (LibraryMissing("no"), "library"),
        (NotSupported("no"), "not_supported"),
        (TraceError("no"), "error"),
        (ValueError("a bug\nin two lines"), "error"),
    ],
)
def test_why_a_view_is_off(error: Exception, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    host = busy()

    def refuse(_options: object) -> FakeSession:
        raise error

    host.open_fsync_trace = refuse  # type: ignore[assignment,method-assign]
    it = Exported(host, "fsync", "txg")
    assert whys(it.scrape()) == {"fsync": why}
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_light_is_tried_again_after_a_minute() -> None:
    host = busy()
    host.sessions["light"] = [TraceError("no"), FakeSession([light_state()])]
    it = Exported(host, "light")
    assert whys(it.scrape()) == {"light": "error"}
    it.tick(58)
    assert whys(it.scrape()) == {"light": "error"}
    assert whys(it.scrape()) == {}


def test_a_light_trace_that_cannot_attach_now_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    host = busy()
    session = host.sessions["light"]
    assert isinstance(session, FakeSession)
    it = Exported(host, "light")
    assert whys(it.scrape()) == {}
    # windows cannot be opened, but commits are counted
    session.why = "cannot open a window: no memory"
    scrape = it.scrape(3)
    assert whys(scrape) == {} and scrape.get("zfstune_trace_up", view="light") == 1
    assert scrape.get("zfstune_exporter_errors_total", what="light") == 1
    assert capsys.readouterr().err.count("view light: cannot open a window: no memory") == 1
    session.waiting = True
    assert whys(it.scrape()) == {"light": "error"}


def test_an_error_of_the_host_is_that_of_one_view() -> None:
    class Ticking(FakeSession):
        """What the host ticks."""

        broken = False

        def tick(self) -> None:
            if self.broken:
                raise TraceError("dtrace(1) has ended")

    host = busy()
    good, bad = Ticking([fsyncs(1)]), Ticking([[waits(rest=True)]])
    host.sessions |= {"fsync": good, "throttle": bad}
    it = Exported(host, "fsync", "throttle", "txg")
    assert whys(it.scrape()) == {}
    bad.broken = True
    host.fails = TraceError("dtrace(1) has ended")
    assert whys(it.scrape()) == {"throttle": "error"}
    assert bad.closed and not good.closed
    # of none that can be found: it goes on
    host.fails = OSError(5, "Input/output error")
    scrape = it.scrape()
    assert whys(scrape) == {"throttle": "error"}
    assert scrape.get("zfstune_exporter_errors_total", what="host") == 2


def test_where_bpf_is_not_possible_kstats_do() -> None:
    host = busy()
    host.sessions |= {"txg": NoPrivilege("no"), "arc": NoPrivilege("no")}
    host.sessions |= {
        "txg kstat": FakeSession(events=[txg(1)], probes=()),
        "arc kstat": FakeSession([arc(1, None)], probes=()),
    }
    scrape = Exported(host, "txg", "arc").scrape()
    assert whys(scrape) == {}
    assert scrape.get("zfstune_trace_probes", view="txg", how="kstat") == 1
    assert whys(Exported(host, "txg", fallback=False).scrape()) == {"txg": "privilege"}


def test_fsync_takes_the_place_of_light_where_there_is_none() -> None:
    host = busy()
    host.sessions["light"] = NotSupported("a D script has all of its probes or none")
    it = Exported(host, "light", "txg", instead={"light": "fsync"})
    scrape = it.scrape()
    assert scrape.get("zfstune_trace_up", view="fsync") == 1
    assert scrape.get("zfstune_trace_up", view="light") is None
    assert whys(Exported(host, "light").scrape()) == {"light": "not_supported"}


# --- pools and modules that come and go


def test_without_a_pool_nothing_is_attached() -> None:
    host = busy()
    sessions = [FakeSession([fsyncs(4)]), FakeSession([fsyncs(2)])]
    host.sessions["fsync"] = list(sessions)
    it = Exported(host, "fsync", "throttle")
    first = it.scrape()
    host.imported = []
    second = it.scrape()
    assert sessions[0].closed
    assert whys(second) == {"fsync": "no_pool", "throttle": "no_pool"}
    assert not gone_back(first, second) and second.of("zfstune_pool_state") == {}
    host.imported = ["tank"]
    third = it.scrape()
    assert whys(third) == {} and third.get(TOTAL, **DB) == 6


def test_kstats_need_no_pool() -> None:
    host = busy()
    host.imported = []
    host.sessions["arc kstat"] = FakeSession([arc(1, None)], probes=())
    assert whys(Exported(host, "arc", kstat=True).scrape()) == {}


def test_a_module_that_is_loaded_again_is_attached_to_again() -> None:
    host = busy()
    sessions = [FakeSession([fsyncs(4)]), FakeSession([fsyncs(2)])]
    light = host.sessions["light"]
    assert isinstance(light, FakeSession)
    host.sessions["fsync"] = list(sessions)
    it = Exported(host, "fsync", "light")
    first = it.scrape()
    host.loaded_as = "boot:2"
    second = it.scrape()
    assert sessions[0].closed and second.get(TOTAL, **DB) == 6
    assert not gone_back(first, second)
    # it follows the module itself
    assert not light.closed


NEW: dict[str, tuple[Any, Any, str, dict[str, str], int]] = {
    "fsync": (fsyncs(2), fsyncs(5), TOTAL, DB, 7),
    "throttle": (
        [waits(rest=True), waits(dirty_hard=[MS] * 2)],
        [waits(rest=True), waits(dirty_hard=[MS] * 5)],
        "zfstune_throttle_waits_total",
        {"pool": "tank", "limit": "dirty_hard"},
        7,
    ),
    "arc": (
        arc(1, waits=[MS] * 2),
        arc(1, waits=[MS] * 5),
        "zfstune_arc_eviction_waits_total",
        {},
        7,
    ),
    "device": (
        [vdev(1, flush=ios([MS] * 2))],
        [vdev(1, flush=ios([MS] * 5))],
        "zfstune_device_io_duration_seconds_count",
        {"pool": "tank", "vdev": "sda", "class": "flush"},
        7,
    ),
    "read": (
        read_state(reads(write=[MS] * 2)),
        read_state(reads(write=[MS] * 5)),
        "zfstune_write_duration_seconds_count",
        DB,
        7,
    ),
}


@pytest.mark.parametrize("view", NEW)
def test_what_a_new_session_counts_is_all_new(view: str) -> None:
    first, second, name, labels, total = NEW[view]
    host = busy()
    host.sessions[view] = [FakeSession([first]), FakeSession([second])]
    it = Exported(host, view)
    it.scrape()
    host.loaded_as = "boot:2"
    assert it.scrape().get(name, **labels) == total


def test_a_vdev_that_takes_the_place_of_another_begins_anew() -> None:
    host = busy()
    states = [[vdev(1, flush=ios([MS] * n))] for n in (9, 4)]
    host.sessions["device"] = FakeSession(states)
    it = Exported(host, "device")
    it.scrape()
    name = "zfstune_device_io_duration_seconds"
    labels = {"pool": "tank", "vdev": "sda", "class": "flush"}
    scrape = it.scrape()
    assert scrape.get(f"{name}_count", **labels) == 13
    assert scrape.get(f"{name}_sum", **labels) == 0.013


def test_a_module_that_is_loaded_again_is_tried_at_once() -> None:
    host = busy()
    host.sessions["fsync"] = [TraceError("no"), FakeSession([fsyncs(1)])]
    it = Exported(host, "fsync")
    assert whys(it.scrape(3)) == {"fsync": "error"}
    host.loaded_as = "boot:2"
    assert whys(it.scrape()) == {}


def test_gauges_of_a_view_that_is_off_have_no_value() -> None:
    host = busy()
    host.sessions["light"] = FakeSession([light_state(), TraceError("gone")])
    it = Exported(host, "light")
    ratio = "zfstune_fsync_stage_share_ratio"
    first = it.scrape()
    assert first.of(ratio) and first.get("zfstune_light_windows") == 1
    second = it.scrape()
    assert second.of(ratio) == {} and second.get("zfstune_light_windows") is None
    assert second.get("zfstune_light_attached") == 0


def test_it_waits_for_zfs(capsys: pytest.CaptureFixture[str]) -> None:
    host = busy()
    host.unloaded, host.loaded_as, host.imported = True, "", []
    it = Exported(host, "light", "fsync", "txg")
    scrape = it.scrape(3)
    assert whys(scrape) == dict.fromkeys(("light", "fsync", "txg"), "no_zfs")
    assert capsys.readouterr().err.count("ZFS is not loaded: waiting for it; run ") == 1
    host.unloaded, host.loaded_as, host.imported = False, "boot:1", ["tank"]
    last = it.scrape()
    assert whys(last) == {} and last.get(TOTAL, **DB) == 3
    assert not gone_back(scrape, last)


def test_losses_are_summed_over_sessions() -> None:
    host = busy()
    host.sessions["fsync"] = [
        FakeSession([fsyncs(1)], losses=Losses(start=5, cut=1, unfinished=3)),
        FakeSession([fsyncs(1)], losses=Losses(start=2, unfinished=1)),
    ]
    it = Exported(host, "fsync")
    it.scrape()
    host.loaded_as = "boot:2"
    scrape = it.scrape()
    lost = "zfstune_trace_lost_total"
    assert scrape.get(lost, view="fsync", reason="start") == 7
    assert scrape.get(lost, view="fsync", reason="cut") == 1
    assert scrape.get("zfstune_fsync_unfinished") == 1
    assert it.collector.lost() == {"fsync": 7}


def test_the_end_detaches_everything() -> None:
    host = busy()
    it = Exported(host, *VIEWS)
    before = it.scrape()
    it.collector.close()
    it.collector.close()
    sessions = [s for name, s in host.sessions.items() if name in VIEWS]
    assert all(isinstance(s, FakeSession) and s.closed for s in sessions)
    it.tick()
    assert not gone_back(before, Scrape(it.text()))


def test_a_view_that_is_off_has_no_rows_rather_than_none() -> None:
    """A recorder would take none for nothing that happened."""
    host = busy()
    host.sessions["throttle"] = NoPrivilege("no")
    it = Exported(host, "throttle", "txg")
    it.tick()
    assert list(it.collector.rows()) == ["txg"]


def test_a_person_is_told_why_in_words() -> None:
    host = busy()
    host.sessions["fsync"] = NoPrivilege("not permitted", "run as root")
    it = Exported(host, "fsync", "txg", "light")
    it.tick()
    assert it.collector.in_words() == {"fsync": "not permitted; run as root"}
    light = host.sessions["light"]
    assert isinstance(light, FakeSession)
    light.waiting, host.imported = True, []
    it.tick()
    assert it.collector.in_words() == {
        "fsync": "not permitted; run as root",
        "txg": "no pool is imported",
        "light": "no pool is imported",
    }
    light.why, host.imported = "cannot attach: no memory", ["tank"]
    assert it.collector.in_words()["light"] == "cannot attach: no memory"


def test_another_part_that_fails_is_counted_and_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    it = Exported(busy(), "txg")

    def fail() -> None:
        raise OSError(5, "Input/output error")

    it.collector.expect_errors("recorder")
    for _ in range(3):
        it.collector.survive("recorder", fail)
    assert it.scrape().get("zfstune_exporter_errors_total", what="recorder") == 3
    assert capsys.readouterr().err.count("recorder: Input/output error") == 1


def test_status_says_what_is_off() -> None:
    host = busy()
    host.sessions["fsync"] = NoPrivilege("no")
    it = Exported(host, "fsync", "txg")
    it.tick()
    assert it.collector.status() == "1 of 2 views count; fsync is off: privilege"
    assert it.collector.missing() == {"fsync": "privilege"}
    assert it.collector.failure() is None
    only = Exported(host, "fsync")
    only.tick()
    assert only.collector.failure() == ("no", "")
