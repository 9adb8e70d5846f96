"""Txgs: from events and kstat rows to the output."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import DATA
from support.samples import TXGS, txg_row

from zfs_linux import traces
from zfs_linux.traces import ProcTxgs
from zfstrace.bpf.pools import TxgEvent
from zfstrace.kstat import txgs as kstat_txgs
from zfstrace.kstat.txgs import KstatTxgs, from_rows, parse_txgs, timer, txg_state, with_row
from zfstrace.txg import TxgState

FLAVOURS = ("bookworm", "trixie", "trixie-backports")
SECOND = 1_000_000_000


def event(**fields: int) -> TxgEvent:
    base = {
        "txg": 7,
        "opened": 10 * SECOND,
        "quiescing": 15 * SECOND,
        "quiesced": 15 * SECOND + 5,
        "syncing": 15 * SECOND + 12,
        "synced": 16 * SECOND,
        "last_syncing": 10 * SECOND,
        "zil_sync_ns": 3,
        "delay_ns": 40,
        "delayed": 2,
        "passes": 4,
    }
    return TxgEvent(**{**base, **fields}, pool=b"tank")


def test_an_event_and_its_row_become_a_txg() -> None:
    row = txg_row(7, dirty_bytes=100, written_bytes=200, writes=3)
    txg = with_row(traces.from_event(event(), 5), row)
    assert (txg.pool, txg.txg, txg.reason, txg.source) == ("tank", 7, "timer", "bpf")
    assert (txg.open_ns, txg.quiesce_ns, txg.wait_ns) == (5 * SECOND, 5, 7)
    assert txg.sync_ns == SECOND - 12
    assert (txg.passes, txg.zil_sync_ns, txg.delayed_tx, txg.delay_ns) == (4, 3, 2, 40)
    assert (txg.dirty_bytes, txg.written_bytes, txg.writes) == (100, 200, 3)


def test_what_was_not_seen_is_none() -> None:
    txg = traces.from_event(event(opened=0, passes=0), 5)
    assert txg.open_ns is None
    assert txg.passes is None
    # of a txg that was open before the trace began some delays were not counted
    assert txg.delayed_tx is None
    assert txg.delay_ns is None
    assert txg.dirty_bytes is None


@pytest.mark.parametrize(
    ("reason", "last_syncing", "timeout", "want"),
    [
        (1, 10, 5, "dirty"),
        (2, 10, 5, "waiter"),
        (0, 10, 5, "timer"),
        (0, 11, 5, "unknown"),
        (0, 0, 5, "unknown"),
        (0, 10, None, "unknown"),
    ],
)
def test_the_reason_follows_from_event_and_timeout(
    reason: int, last_syncing: int, timeout: int | None, want: str
) -> None:
    e = event(reason=reason, last_syncing=last_syncing * SECOND)
    assert traces.from_event(e, timeout).reason == want


def test_a_row_has_states_and_times() -> None:
    row = parse_txgs(TXGS)[0]
    assert (row.txg, row.state, row.done, row.birth_ns) == (4, "C", True, 1000)
    assert (row.closed_ns, row.sync_began_ns, row.end_ns) == (1500, 1530, 1830)
    assert (row.dirty_bytes, row.written_bytes, row.writes) == (31744, 122880, 20)


@pytest.mark.parametrize("column", ["txg", "birth", "otime", "qtime", "wtime", "stime"])
def test_a_row_without_a_time_is_left_out(column: str) -> None:
    head, first, *rest = TXGS.splitlines()
    words = first.split()
    words[head.split().index(column)] = "?"
    assert [row.txg for row in parse_txgs("\n".join((head, " ".join(words), *rest)))] == [5, 6]


@pytest.mark.parametrize("column", ["ndirty", "nwritten", "writes"])
def test_a_column_that_is_not_there_is_none(column: str) -> None:
    row = parse_txgs(TXGS.replace(f" {column} ", " other "))[0]
    values = {"ndirty": row.dirty_bytes, "nwritten": row.written_bytes, "writes": row.writes}
    assert [name for name, value in values.items() if value is None] == [column]


@pytest.mark.parametrize(
    ("start", "end", "want"),
    [
        (1100, 1200, "open"),
        (1495, 1505, "quiescing"),
        (1600, 1700, "syncing"),
        (1850, 1890, "open"),
        (1905, 1908, "quiescing"),
        (5000, 6000, "syncing"),
        (10, 20, None),
    ],
)
def test_the_worst_state_within_a_span_is_found(start: int, end: int, want: str | None) -> None:
    state = txg_state(parse_txgs(TXGS), start, end)
    assert (state.state if state else None) == want


def test_the_state_names_its_txg() -> None:
    rows = parse_txgs(TXGS)
    # 4 syncs from 1530 to 1830, 5 from 1930 on
    assert txg_state(rows, 1600, 1700) == TxgState("syncing", 4, 170)
    assert txg_state(rows, 1600, 1900) == TxgState("syncing", 4, 300)
    assert txg_state(rows, 1950, 2000) == TxgState("syncing", 5, 70)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_recorded_rows_become_txgs(flavour: str) -> None:
    rows = parse_txgs((DATA / flavour / "txgs").read_text(encoding="utf-8"))
    done = [row for row in rows if row.done]
    assert done
    for before, row in zip([None, *done], done, strict=False):
        txg = from_rows("tank", row, before, 5, time.monotonic_ns())
        assert txg.txg == row.txg
        assert txg.sync_ns == row.sync_ns
        assert txg.written_bytes == row.written_bytes
        assert txg.passes is None
        assert txg.source == "kstat"


def write_rows(root: Path, pool: str, rows: list[tuple[int, str]], since: int = 0) -> None:
    (root / pool).mkdir(exist_ok=True)
    lines = ["txg birth state ndirty nread nwritten reads writes otime qtime wtime stime"]
    lines += [f"{txg} {since + txg * 100} {state} 1 0 2 0 1 50 1 1 40" for txg, state in rows]
    (root / pool / "txgs").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_without_bpf_rows_become_txgs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kstat_txgs, "POLL_NS", 0)
    write_rows(tmp_path, "tank", [(4, "C"), (5, "S")])
    write_rows(tmp_path, "other", [(90, "C")])
    session = KstatTxgs("tank", ProcTxgs(tmp_path, tmp_path / "none"))
    assert session.poll(0) == []
    write_rows(tmp_path, "tank", [(4, "C"), (5, "C"), (6, "C"), (7, "S")])
    write_rows(tmp_path, "other", [(90, "C"), (91, "C")])
    assert [(t.pool, t.txg) for t in session.poll(0)] == [("tank", 5), ("tank", 6)]
    assert session.losses().lost == 0
    # rows 7 and 8 left the list before they were read
    write_rows(tmp_path, "tank", [(9, "C")])
    assert [t.txg for t in session.poll(0)] == [9]
    assert session.losses().lost == 2


def test_a_pool_that_is_created_anew_has_its_first_txgs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kstat_txgs, "POLL_NS", 0)
    write_rows(tmp_path, "tank", [(500, "C"), (501, "O")])
    session = KstatTxgs(None, ProcTxgs(tmp_path, tmp_path / "none"))
    assert session.poll(0) == []
    write_rows(tmp_path, "tank", [(4, "C"), (5, "C"), (6, "S")], since=100_000)
    assert [txg.txg for txg in session.poll(0)] == [4, 5]
    assert session.poll(0) == []
    assert session.losses().lost == 0


def test_a_pool_that_comes_back_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its txgs went on elsewhere."""
    monkeypatch.setattr(kstat_txgs, "POLL_NS", 0)
    write_rows(tmp_path, "tank", [(1000, "C"), (1001, "O")])
    session = KstatTxgs(None, ProcTxgs(tmp_path, tmp_path / "none"))
    assert session.poll(0) == []
    (tmp_path / "tank/txgs").unlink()
    (tmp_path / "tank").rmdir()
    assert session.poll(0) == []
    write_rows(tmp_path, "tank", [(51_000, "C"), (51_001, "C")])
    assert [txg.txg for txg in session.poll(0)] == [51_000, 51_001]
    assert session.losses().lost == 0


class FakeTrace:
    def __init__(self, events: list[TxgEvent]) -> None:
        self.events = events

    def ended(self, timeout_ms: int) -> list[TxgEvent]:
        events, self.events = self.events, []
        return events


def test_an_event_waits_for_its_row(tmp_path: Path) -> None:
    write_rows(tmp_path, "tank", [(7, "S")])
    fake = FakeTrace([event()])
    source = ProcTxgs(tmp_path, tmp_path / "none")
    session = traces.TracedTxgs(fake, source)  # type: ignore[arg-type]
    assert session.poll(0) == []
    write_rows(tmp_path, "tank", [(7, "C")])
    (txg,) = session.poll(0)
    assert txg.written_bytes == 2


def test_an_event_without_a_row_is_shown_at_once(tmp_path: Path) -> None:
    fake = FakeTrace([event()])
    source = ProcTxgs(tmp_path, tmp_path / "none")
    session = traces.TracedTxgs(fake, source)  # type: ignore[arg-type]
    (txg,) = session.poll(0)
    assert txg.written_bytes is None


@given(st.integers(0, 10**13) | st.none(), st.integers(0, 3600) | st.none())
def test_a_txg_as_old_as_the_timeout_was_closed_by_the_timer(
    since: int | None, timeout: int | None
) -> None:
    due = timer(since, timeout)
    assert due == (
        since is not None and timeout is not None and since > timeout * SECOND - 50_000_001
    )
