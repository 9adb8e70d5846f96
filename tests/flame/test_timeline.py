"""speedscope reads what `trace slow --timeline` writes: a row for each thread, with its stages."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from flame.browser import Browser
from support.samples import slow_event, txg

from zfstrace.clock import iso_utc
from zfstrace.types import SlowEvent, SlowFsync
from zfstune.term.units import MS, SECOND
from zfstune.trace.timeline import Timeline

# ms in the stages of an operation, again and again
STAGES: tuple[dict[str, int], ...] = (
    {"issue": 2, "log_write": 11, "flush": 23, "wakeup": 1},
    {"issuer_lock": 17, "issue": 1, "log_write": 7, "flush": 29, "other": 1},
    {"tx_assign": 31, "issue": 3, "txg_fallback": 41},
)


def operations(threads: int, each: int) -> list[tuple[SlowEvent, SlowFsync]]:
    found = []
    for thread in range(threads):
        start = 100 * SECOND + thread * 5 * MS
        for i in range(each):
            sample = slow_event(comm="pg", **STAGES[(thread + i) % len(STAGES)])
            event = SlowEvent(
                start, sample.total_ns, sample.stage_ns, 17, 0, 4711, 4712 + thread, "fsync", "pg"
            )
            start += sample.total_ns + 3 * MS + 457
            slow = SlowFsync(
                time="",
                pid=event.pid,
                tid=event.tid,
                comm=event.comm,
                pool="tank",
                dataset="tank/db",
                object=17,
                total_ns=event.total_ns,
                stages={},
                txg_state="open",
                kind="fsync",
            )
            found.append((event, slow))
    return found


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    made = Timeline()
    for event, slow in operations(threads=3, each=12):
        made.add(event, slow)
    begin = made._offset_ns + 100 * SECOND
    spans: dict[str, Any] = {"open_ns": 400 * MS, "quiesce_ns": MS, "wait_ns": 2 * MS}
    for number in range(3):
        end = iso_utc(begin + (number + 1) * 400 * MS)
        made.add_txgs([txg(90 + number, time=end, sync_ns=150 * MS, **spans)])
    path = tmp_path / "timeline.json"
    made.write(str(path), {"over_ns": MS})
    return path


def shown(chromium: Browser, app: Path, path: Path, view: str) -> None:
    """Opens the file in speedscope as its own command does."""
    content = base64.b64encode(path.read_bytes()).decode()
    script = path.with_name("profile.js")
    script.write_text(f"speedscope.loadFileFromBase64({path.name!r}, {content!r})")
    chromium.open(f"{(app / 'index.html').as_uri()}#localProfilePath={script}&view={view}")


def test_speedscope_has_a_profile_for_each_row(
    chromium: Browser, speedscope_app: Path, timeline: Path
) -> None:
    shown(chromium, speedscope_app, timeline, "time-ordered")
    chromium.wait("document.body.innerText.includes('/7')")  # 3 threads, 4 rows of a pool


def test_speedscope_sums_the_stages(
    chromium: Browser, speedscope_app: Path, timeline: Path
) -> None:
    shown(chromium, speedscope_app, timeline, "sandwich")
    chromium.wait("document.querySelectorAll('table tr').length > 5")
    rows = chromium.js("[...document.querySelectorAll('table tr')].map((r) => r.innerText)")
    table = {row.split("\t")[-1].strip(): row for row in rows}
    # the first thread has each of STAGES four times
    for stage in {name for stages in STAGES for name in stages}:
        ms = 4 * sum(stages.get(stage, 0) for stages in STAGES)
        assert table[stage].count(f"{ms}.00ms") == 2, (stage, table[stage])  # total and self
    assert "pg (pid 4711), pg (tid 4712) (1/7)" in chromium.js("document.body.innerText")
    whole = [row for name, row in table.items() if name.startswith("fsync tank/db ")]
    # an operation is its stages, and nothing else
    assert len(whole) == 3
    assert all("0.00ns" in row for row in whole)
