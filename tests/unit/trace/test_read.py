"""`trace read` without a kernel."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost, FakeSession, run_of
from support.samples import read_state, reads

from zfs_linux.host import LinuxHost
from zfstrace.errors import NotSupported
from zfstrace.kstat.reads import KstatReads
from zfstrace.read import Demand, ReadCounts, ReadState, demand, since
from zfstrace.read_summary import pool_sum
from zfstrace.types import Losses, TraceOptions
from zfstune.term.units import MS, SECOND, US
from zfstune.trace.read import trace

DB = reads(hit=[2 * US] * 980, miss=[5 * MS] * 20, write=[10 * US] * 99 + [40 * MS], held=1)
REST = reads("", 0, rest=True)


def run(*states: ReadState, **options: Any) -> str:
    out = io.StringIO()
    session = FakeSession([read_state(), *states], losses=Losses(start=1))
    host = FakeHost()
    host.sessions["read"] = session
    trace(run_of(host, out, **({"duration": 10 * SECOND} | options)))
    assert session.closed
    return out.getvalue()


def busy(times: int = 1) -> ReadState:
    db = reads(
        hit=[2 * US] * 980 * times,
        miss=[5 * MS] * 20 * times,
        write=([10 * US] * 99 + [40 * MS]) * times,
        held=times,
        held_ns=39 * MS * times,
        errors=2 * times,
    )
    return read_state(REST, db, reads(objset=70, hit=[3 * US] * times), times=times + 1)


def test_the_table_has_hits_misses_and_writes() -> None:
    text = run(busy())
    lines = text.splitlines()
    assert max(map(len, lines)) < 100
    assert lines[0] == "tank  10.0 s"
    assert lines[2].split() == [
        "dataset", "rate", "bytes", "share", "mean", "p50", "p99", "max",
    ]  # fmt: skip
    assert lines[3].split()[:6] == ["tank/db", "hit", "98.0", "392K/s", "98.0", "%"]
    assert lines[4].split()[:5] == ["miss", "2.0", "8.00K/s", "2.0", "%"]
    assert lines[5].split()[:3] == ["write", "10.0", "40.0K/s"]
    assert lines[6].split()[:3] == ["tank/home", "hit", "0.1"]
    words = " ".join(text.split())
    assert "tank/db: 98 % of 1,000 reads did not wait for an I/O" in words
    assert "The misses took 98 % of the time." in words or "took 9" in words
    assert "1 of 100 writes were held up by the write throttle or for a txg, 95 %" in words
    assert "2 reads or writes returned an error" in words
    assert "cache: 99 % of 1,000 demand reads of blocks on this host were hits" in words
    assert "lost 1 " in words


def test_without_reads_it_says_so() -> None:
    assert run(read_state(REST), pool="tank", pid=1).startswith(
        "no read or write seen in 10.0 s on tank of process 1\n\nlost 1"
    )


def test_json_has_a_line_for_each_dataset() -> None:
    rows = [json.loads(line) for line in run(busy(), json=True).splitlines()]
    assert [(row["type"], row["pool"], row["dataset"]) for row in rows] == [
        ("read", "tank", "tank/db"),
        ("read", "tank", "tank/home"),
    ]
    row = rows[0]
    assert (row["reads"], row["hits"], row["misses"], row["hit_ratio"]) == (1000, 980, 20, 0.98)
    assert (row["read_bytes"], row["miss_bytes"]) == (1000 * 4096, 20 * 4096)
    assert (row["writes"], row["write_bytes"], row["held"]) == (100, 100 * 4096, 1)
    assert (row["errors"], row["lost"], row["source"]) == (2, 1, "trace")
    assert row["read"]["p50"] < 3 * US < 4 * MS < row["read"]["p99"]
    assert row["hit"]["max"] == 2 * US
    assert rows[1]["miss"] is None


def test_intervals_are_differences() -> None:
    states = [busy(1), busy(3)]
    out = run(*states, json=True, interval=5 * SECOND)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["reads"] for row in rows if row["dataset"] == "tank/db"][:2] == [1000, 2000]


def test_a_dataset_alone() -> None:
    rows = [json.loads(line) for line in run(busy(), json=True, dataset="tank/home").splitlines()]
    assert [row["dataset"] for row in rows] == ["tank/home"]


def test_kstats_count_only() -> None:
    state = ReadState([reads(hit=(), write=())], {}, timed=False)
    one = KstatReads(lambda: [("tank", 68, (5, 500, 7, 700))], dict)
    assert one.state().datasets[0] == state.datasets[0]
    counts = iter([(5, 500, 7, 700), (8, 800, 9, 900), (2, 200, 0, 0)])
    session = KstatReads(lambda: [("tank", 68, next(counts))], dict)
    session.refresh()
    session.refresh()  # mounted again meanwhile
    [found] = session.state().datasets
    assert (found.hit.count, found.hit.size) == (3 + 2, 300 + 200)
    assert (found.write.count, found.write.size) == (2, 200)
    out = io.StringIO()
    host = FakeHost()
    host.sessions["read kstat"] = FakeSession(
        [ReadState((), {}, False), ReadState([found], {}, False)]
    )
    trace(run_of(host, out, duration=SECOND, source="kstat"))
    assert out.getvalue().splitlines()[3].split() == [
        "tank/db", "read", "5.0", "500/s", *"-----",
    ]  # fmt: skip
    assert "not timed, and hits not told from misses" in out.getvalue()


def test_a_dataset_that_is_mounted_again_may_soon_have_more_operations() -> None:
    """Of fewer bytes: it began with 0 all the same."""
    counts = iter([(5, 500_000, 7, 700_000), (8, 800, 9, 900)])
    session = KstatReads(lambda: [("tank", 68, next(counts))], dict)
    session.refresh()
    [found] = session.state().datasets
    assert (found.hit.count, found.hit.size) == (8, 800)
    assert (found.write.count, found.write.size) == (9, 900)


def test_kstats_do_not_know_processes(tmp_path: Path) -> None:
    (tmp_path / "sys/module/zfs").mkdir(parents=True)
    with pytest.raises(NotSupported, match="do not tell processes apart"):
        LinuxHost(tmp_path).open_read_trace(TraceOptions(pid=1, kstat=True))


def test_kstats_of_linux_are_read(tmp_path: Path) -> None:
    pool = tmp_path / "proc/spl/kstat/zfs/tank"
    pool.mkdir(parents=True)
    (tmp_path / "sys/module/zfs").mkdir(parents=True)
    text = (Path(__file__).parents[2] / "data/trixie/objset-0x4b").read_text()
    (pool / "objset-0x4b").write_text(text)
    (pool / "objset-0x50").write_text("gone")
    session = LinuxHost(tmp_path).open_read_trace(TraceOptions(kstat=True))
    more = text.replace("writes                          4    20", "writes  4    25")
    (pool / "objset-0x4b").write_text(more)
    session.refresh()
    [found] = session.state().datasets
    assert (found.pool, found.objset, found.write.count) == ("tank", 0x4B, 5)
    assert session.probes() == () and session.losses() == Losses()
    session.close()


def test_the_cache_counts_data_and_metadata() -> None:
    stats = {
        "demand_data_hits": 90,
        "demand_metadata_hits": 6,
        "demand_data_misses": 3,
        "demand_metadata_misses": 1,
    }
    assert demand(stats, {}).miss_ratio == 0.04
    assert demand(stats, stats).miss_ratio is None
    # the kstat went with the module
    assert demand({}, stats) == Demand(0, 0)


def test_a_pool_is_the_sum_of_its_datasets() -> None:
    counts = [REST, DB, reads(objset=70, hit=[US] * 5), reads("idle", 1, hit=[US] * 7)]
    total = pool_sum(counts, FakeHost(), "tank")
    assert (total.hit.count, total.miss.count, total.held) == (985, 20, 1)


_TIMES = st.lists(st.integers(0, SECOND), max_size=8)


@given(_TIMES, _TIMES, _TIMES, _TIMES)
def test_what_was_added_is_what_differs(
    hit: list[int], miss: list[int], more: list[int], write: list[int]
) -> None:
    first = reads(hit=hit, miss=miss)
    then = reads(hit=hit + more, miss=miss, write=write, errors=3)
    [found] = since(ReadState([then], {}), ReadState([first], {}))
    assert (found.hit.count, found.miss.count, found.write.count) == (len(more), 0, len(write))
    assert found.hit.latency.sum_ns == sum(more)
    assert first.merge(found) == ReadCounts(
        "tank", 68, (0, 0), False, then.hit, then.miss, then.write, 3
    ) or found.hit.latency.max_ns >= max(more, default=0)
