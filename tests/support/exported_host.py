"""A host on which every view of the exporter has something to count."""

from __future__ import annotations

from typing import Any

from support.exported import Scrape
from support.fake_host import FakeHost, FakeSession
from support.samples import ARC, arc, counts, ios, read_state, reads, txg, vdev, waits

from zfstrace.light import CommitCounts, Sample, SlowCommit, Window
from zfstrace.stages import NAMES
from zfstune.term.units import MS, SECOND


def fsyncs(n: int, objset: int = 68) -> Any:
    return [counts(objset=objset, stages={"flush": [MS] * n})]


def light_state() -> Any:
    hist = counts(total=[5 * MS]).total
    commits = [CommitCounts("tank", 68, (0, 0), False, hist, hist, hist)]
    samples = (Sample("tank", 68, (0, 0), False, 3, (1,) * len(NAMES)),)
    who = SlowCommit(5 * MS, 1, "postgres")
    return commits, [Window("t", SECOND, samples)], [Window("t", SECOND, samples, who)]


def busy() -> FakeHost:
    """Every view has something to count."""
    host = FakeHost()
    host.sessions = {
        "light": FakeSession([light_state()]),
        "fsync": FakeSession([fsyncs(3)]),
        "txg": FakeSession(events=[txg(1)]),
        "throttle": FakeSession([[waits(rest=True), waits(dirty_hard=[MS])]]),
        "arc": FakeSession([arc(1, waits=[MS])]),
        "device": FakeSession([[vdev(1, flush=ios([MS]), sync_write=ios([MS]))]]),
        "read": FakeSession([read_state(reads(hit=[1], miss=[2], write=[3]))]),
    }
    host.kstats = {"zil": {"zil_commit_count": 12}, "arcstats": dict(ARC)}
    return host


def whys(scrape: Scrape) -> dict[str, str]:
    return {labels[0]: labels[1] for labels in map(_by_view, scrape.of("zfstune_trace_off_info"))}


def _by_view(labels: tuple[str, ...]) -> tuple[str, str]:
    view, why = labels
    return view, why
