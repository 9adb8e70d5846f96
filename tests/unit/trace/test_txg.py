"""`trace txg` without a kernel."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost, FakeSession, FakeStop, Terminal, run_of
from support.samples import txg

from zfstrace.txg import REASONS, Txg
from zfstrace.types import Losses, TraceOptions
from zfstune.term.table import Lines
from zfstune.term.units import MS, SECOND
from zfstune.trace.txg import cells, columns, trace


def run(events: list[Txg], out: io.StringIO | None = None, **options: Any) -> str:
    out, stop = out or io.StringIO(), FakeStop()
    session = FakeSession(events=events, losses=Losses(event=2), on_poll=stop.passed)
    host = FakeHost(session)
    trace(run_of(host, out, stop, **({"duration": 2 * SECOND} | options)))
    assert session.closed
    return out.getvalue()


def test_each_txg_has_a_line() -> None:
    events = [
        txg(100, open_ns=None),
        txg(101, reason="dirty", delayed_tx=12_345, delay_ns=45 * SECOND, sync_ns=3 * SECOND),
        txg(102, reason="unknown", zil_sync_ns=None, passes=None, delayed_tx=None),
    ]
    lines = run(events, pool="tank").splitlines()
    assert lines[0].split() == [
        "TIME", "TXG", "OPEN", "QUIESCE", "WAIT", "SYNC", "PASS", "DIRTY", "WROTE",
        "DELAYED", "TX", "REASON", "ZIL",
    ]  # fmt: skip
    assert lines[1].split() == [
        "09:49:12", "100", "-", "12.3", "us", "4.56", "us", "450", "ms", "5", "64.0M", "70.0M",
        "0", "timer", "1%",
    ]  # fmt: skip
    assert lines[2].split()[-5:] == ["12345", "45.0", "s", "dirty", "0%"]
    assert lines[3].split()[-3:] == ["-", "-", "-"]
    end = " ".join(lines[4:])
    assert end.startswith("3 txgs in 2.0 s; sync p50 450 ms, max 3.00 s; timer 1, dirty 1, unkn")
    assert "lost 2 " in end


def test_columns_stay_in_their_places() -> None:
    lines = run([txg(1), txg(12_345_678, passes=12)], pool="tank").splitlines()
    assert len({line.index("timer") for line in lines[1:3]}) == 1
    assert lines[1].rindex("450 ms") == lines[2].rindex("450 ms")


def test_the_pool_is_named_when_there_are_several() -> None:
    assert "POOL" in run([txg(1)]).splitlines()[0]
    assert "POOL" not in run([txg(1)], pool="tank").splitlines()[0]


def test_a_pool_that_appears_later_adds_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeHost, "pools", lambda _self: ["tank"])
    lines = run([txg(1), txg(2, "backup")]).splitlines()
    assert "POOL" not in lines[0]
    assert lines[2].split()[:3] == ["TIME", "POOL", "TXG"]
    assert "backup" in lines[3]


def test_other_pools_are_left_out() -> None:
    assert "backup" not in run([txg(1, "backup")], pool="tank")


def test_count_ends_it() -> None:
    text = run([txg(n) for n in range(5)], count=3, duration=None)
    assert text.count("timer") == 4
    assert "3 txgs in" in text


def test_without_txgs_it_says_so() -> None:
    text = run([], pool="tank")
    assert text.startswith("no txg ended on tank in 2.0 s; ")
    assert "lost 2 " in text


def test_json_has_all_fields_of_a_txg(capsys: pytest.CaptureFixture[str]) -> None:
    want = txg(5, passes=None)
    line = json.loads(run([want], json=True))
    assert (line.pop("schema"), line.pop("type")) == (1, "txg")
    assert Txg(**line) == want
    assert "lost 2 " in capsys.readouterr().err


def test_source_kstat_attaches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    host = FakeHost(FakeSession(probes=()))
    stop = FakeStop()
    host.session.on_poll = stop.passed
    trace(run_of(host, None, stop, source="kstat", duration=SECOND))
    assert host.options == TraceOptions(kstat=True)
    assert "kstats, tracing all pools" in capsys.readouterr().err


def test_the_header_repeats_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert run([txg(n) for n in range(30)], Terminal()).count("QUIESCE") == 2


times = st.none() | st.integers(0, 999 * SECOND)
txgs = st.builds(
    txg,
    st.integers(1, 99_999_999),
    pool=st.text("abc", min_size=1, max_size=6),
    open_ns=times,
    quiesce_ns=times,
    wait_ns=times,
    sync_ns=times,
    passes=st.none() | st.integers(0, 99),
    dirty_bytes=st.none() | st.integers(0, 1 << 50),
    written_bytes=st.none() | st.integers(0, 1 << 50),
    delayed_tx=st.none() | st.integers(0, 1 << 32),
    delay_ns=times,
    reason=st.sampled_from(REASONS),
    zil_sync_ns=times,
)


@given(st.lists(txgs, min_size=1, max_size=5), st.booleans())
def test_any_txg_fits(rows: list[Txg], pools: bool) -> None:
    out = io.StringIO()
    lines = Lines(out)
    for row in rows:
        lines.print(columns(pools), cells(row, pools))
    printed = out.getvalue().splitlines()
    assert len(printed) == len(rows) + 1
    assert max(map(len, printed)) < 100
    # the fixed columns: REASON begins where its title does
    place = printed[0].index("REASON")
    for line, row in zip(printed[1:], rows, strict=True):
        assert line[place - 1] == " "
        assert line[place:].startswith("-" if row.reason == "unknown" else row.reason)


@given(txgs)
def test_any_txg_survives_json(row: Txg) -> None:
    line = json.loads(json.dumps(row.to_json()))
    del line["schema"], line["type"]
    assert Txg(**line) == row


def test_polls_are_shorter_near_the_end() -> None:
    polls: list[int] = []
    stop = FakeStop()

    def poll(ms: int) -> None:
        polls.append(ms)
        stop.passed(ms)

    trace(run_of(FakeHost(FakeSession(on_poll=poll)), None, stop, duration=250 * MS))
    assert polls == [200, 50, 0]
