"""`zfstune trace txg`: one line for each transaction group, as it ends."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from zfstrace.host import TxgSession
from zfstrace.txg import REASONS, Txg
from zfstrace.types import TraceOptions
from zfstune.term.table import Column, Lines, style_of, wrap
from zfstune.term.units import (
    format_count,
    format_percent,
    format_short,
    format_size,
    format_span,
    format_time,
)
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.live import Run


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, live.options_of(args), trace)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches, prints until stop, duration or count, detaches."""
    with live.attached(run, run.host.open_txg_trace) as session:
        _TxgTrace(run, session).loop()


class _TxgTrace:
    """What one trace has shown so far."""

    def __init__(self, run: Run[TraceOptions], session: TxgSession) -> None:
        self._run, self._session = run, session
        self._lines = Lines(run.out)
        self._sum = Sum()
        self._pools = set() if run.options.pool else set(run.host.pools())

    def loop(self) -> None:
        run = self._run
        duration_ns = live.follow(run, self._session, self._show, run.tick, self._done)
        if run.stop.reader_gone:
            return
        out = sys.stderr if run.args.json else run.out
        style = style_of(out)
        lines = wrap(self._sum.text(duration_ns, run.where), "", style.width)
        lines += footer(self._session.losses(), self._session.probes(), style)
        print("\n".join(lines), file=out, flush=True)

    def _done(self) -> bool:
        count: int | None = self._run.args.count
        return count is not None and self._sum.count >= count

    def _show(self, txg: Txg) -> None:
        if self._run.options.pool not in (None, txg.pool):
            return
        self._sum.add(txg)
        if self._run.args.json:
            print(json.dumps(txg.to_json()), file=self._run.out)
            return
        # a pool may be imported meanwhile
        self._pools.add(txg.pool)
        several = len(self._pools) > 1
        self._lines.print(columns(several), cells(txg, several))


_POOL = Column("POOL", 6, left=True)

# 92 columns, with the pool 99
_COLUMNS = (
    Column("TIME", 8, left=True),
    Column("TXG", 8),
    Column("OPEN", 7),
    Column("QUIESCE", 7),
    Column("WAIT", 7),
    Column("SYNC", 7),
    Column("PASS", 4),
    Column("DIRTY", 5),
    Column("WROTE", 5),
    Column("DELAYED TX", 13),
    Column("REASON", 6, left=True),
    Column("ZIL", 4),
)


def columns(pools: bool) -> Sequence[Column]:
    """With or without the name of the pool."""
    return (_COLUMNS[0], _POOL, *_COLUMNS[1:]) if pools else _COLUMNS


def cells(txg: Txg, pools: bool) -> list[str]:
    """The cells of columns(); ``-`` for unknown values."""
    share = zil_share(txg)
    return [
        txg.time[11:19],
        *([txg.pool] if pools else []),
        str(txg.txg),
        _time(txg.open_ns),
        _time(txg.quiesce_ns),
        _time(txg.wait_ns),
        _time(txg.sync_ns),
        "-" if txg.passes is None else str(txg.passes),
        size(txg.dirty_bytes),
        size(txg.written_bytes),
        _delayed(txg),
        "-" if txg.reason == "unknown" else txg.reason,
        "-" if share is None else f"{share:.0%}",
    ]


def zil_share(txg: Txg) -> float | None:
    """The share of the sync in zil_sync(), 0 to 1; None if not known."""
    if txg.zil_sync_ns is None or not txg.sync_ns:
        return None
    return min(1.0, txg.zil_sync_ns / txg.sync_ns)


def size(number: int | None) -> str:
    """Bytes; ``-`` for None (not known)."""
    return "-" if number is None else format_size(number)


def _time(ns: int | None) -> str:
    return "-" if ns is None else format_time(ns)


def _delayed(txg: Txg) -> str:
    """How many transactions, and their total delay."""
    if txg.delayed_tx is None:
        return "-"
    count = format_short(txg.delayed_tx)
    return f"{count} {_time(txg.delay_ns):>7}" if txg.delayed_tx else count


class Sum:
    """The last sentence of a trace, on all its txgs."""

    def __init__(self) -> None:
        self._syncs: list[int] = []
        self._reasons = dict.fromkeys(REASONS, 0)
        self._delayed = self._delay_ns = 0

    @property
    def count(self) -> int:
        """How many txgs there were."""
        return sum(self._reasons.values())

    def add(self, txg: Txg) -> None:
        """Counts a txg that has ended."""
        self._reasons[txg.reason] = self._reasons.get(txg.reason, 0) + 1
        if txg.sync_ns is not None:
            self._syncs.append(txg.sync_ns)
        self._delayed += txg.delayed_tx or 0
        self._delay_ns += txg.delay_ns or 0

    def text(self, duration_ns: int, where: str) -> str:
        """All txgs in one sentence; where names what was traced."""
        span = format_span(duration_ns)
        if not self.count:
            return f"no txg ended on {where} in {span}; an idle pool has one every zfs_txg_timeout"
        parts = [f"{format_count(self.count)} txg{'s' if self.count > 1 else ''} in {span}"]
        if self._syncs:
            syncs = sorted(self._syncs)
            middle = syncs[(len(syncs) - 1) // 2]
            parts.append(f"sync p50 {format_time(middle)}, max {format_time(syncs[-1])}")
        parts.append(", ".join(f"{name} {n}" for name, n in self._reasons.items() if n))
        if self._delayed:
            delayed = f"{format_short(self._delayed)} transactions delayed"
            parts.append(f"{delayed}, {format_time(self._delay_ns)} in all")
        return "; ".join(parts)


def brief(txg: Txg) -> str:
    """The last cell of a row of `zfstune trace`: why the txg was closed, and how many transactions
    were delayed or how much of the sync was for the ZIL."""
    share = zil_share(txg)
    parts = [txg.reason if txg.reason != "unknown" else ""]
    if txg.delayed_tx:
        parts.append(f"{format_short(txg.delayed_tx)} delayed")
    elif share and share >= 0.1:
        parts.append(f"ZIL {format_percent(share)}")
    return ", ".join(part for part in parts if part)
