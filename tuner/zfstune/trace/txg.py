"""`zfstune trace txg`: one line for each transaction group, as it ends."""

from __future__ import annotations

import argparse
import json
import sys

from zfstrace.host import TxgSession
from zfstrace.txg import Txg
from zfstrace.types import TraceOptions
from zfstune.term.table import Lines, style_of, wrap
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.live import Run
from zfstune.trace.txg_view import Sum, cells, columns


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
