"""`zfstune trace fsync`: in which stage fsyncs spend their time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from zfstrace.host import FsyncSession, Host
from zfstrace.summary import since, summarize
from zfstrace.types import DatasetCounts, FsyncOptions, FsyncSummary
from zfstune.term.signals import Stop
from zfstune.term.table import Style
from zfstune.trace import live
from zfstune.trace.footer import footer
from zfstune.trace.fsync_view import view
from zfstune.trace.live import Frame, Meter, Run


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, options_of(args), trace)


def options_of(args: argparse.Namespace) -> FsyncOptions:
    """What the common options of `trace fsync` and `trace slow` ask for."""
    pool = args.pool
    if args.dataset is not None:
        pool = args.dataset.split("/", 1)[0]
    return FsyncOptions(pool, args.dataset, args.pid, 0, args.no_fentry)


def trace(run: Run[FsyncOptions]) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    with live.attached(run, run.host.open_fsync_trace) as session:
        measured = meter(session, run.host, run.options, run.stop)

        def frame(step: bool, style: Style) -> Frame:
            rows, span = measured.measure(step=step)
            body = view(rows, style, run.args.histogram, run.who)
            return Frame(rows, body, footer(span.losses, span.probes, style))

        live.watch(run, frame)


def meter(
    session: FsyncSession, host: Host, options: FsyncOptions, stop: Stop
) -> Meter[Sequence[DatasetCounts], FsyncSummary]:
    """The summaries of a session."""
    return Meter(
        session,
        stop,
        (),
        session.datasets,
        lambda now, earlier, span: summarize(
            since(now, earlier), host, span, options.pool, options.dataset
        ),
    )
