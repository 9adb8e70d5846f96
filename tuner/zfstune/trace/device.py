"""`zfstune trace device`: what each vdev does, by class of I/O."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from zfstrace import device
from zfstrace.device import DeviceCounts, DeviceRow
from zfstrace.host import DeviceSession, Host
from zfstrace.summary import Span
from zfstrace.types import TraceOptions
from zfstune.term.signals import Stop
from zfstune.term.table import Style
from zfstune.trace import live
from zfstune.trace.device_view import view
from zfstune.trace.footer import footer
from zfstune.trace.live import Frame, Meter, Run

_REST = "vdevs that found no room: summed in <others>; POOL leaves room for fewer"


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    return live.run(args, live.options_of(args), trace)


def trace(run: Run[TraceOptions]) -> None:
    """Attaches, prints until stop or the duration, detaches."""
    with live.attached(run, run.host.open_device_trace) as session:
        measured = meter(session, run.host, run.options, run.stop)

        def frame(step: bool, style: Style) -> Frame:
            rows, span = measured.measure(step=step)
            body = view(rows, style, span.duration_ns, run.where)
            return Frame(rows, body, footer(span.losses, span.probes, style, _REST))

        live.watch(run, frame)


def meter(
    session: DeviceSession, host: Host, options: TraceOptions, stop: Stop
) -> Meter[Sequence[DeviceCounts], DeviceRow]:
    """The vdevs of a session that were used."""
    names: dict[int, str] = {}

    def rows(
        now: Sequence[DeviceCounts], earlier: Sequence[DeviceCounts], span: Span
    ) -> list[DeviceRow]:
        found = device.since(now, earlier)
        mine = [d for d in found if d.rest or options.pool in (None, d.pool)]
        # asked for once: on a pool in trouble that may take long
        new = [d for d in mine if not d.rest and d.guid not in names]
        names.update((d.guid, str(d.guid)) for d in new)
        for pool in {d.pool for d in new}:
            names.update(host.vdev_names(pool))
        return device.rows(mine, names, span.time, span.duration_ns, span.losses)

    return Meter(session, stop, (), session.devices, rows)
