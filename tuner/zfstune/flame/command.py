"""`zfstune flame`: records stacks and writes them as a flame graph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from zfstrace import flame
from zfstrace.flame.human import MEASURES, amount
from zfstrace.host import Host, StackSession
from zfstrace.recording import Recording, StackLosses, StackOptions
from zfstrace.types import TraceOptions
from zfstune.errors import CommandError
from zfstune.host import open_host
from zfstune.preflight import prepare
from zfstune.term.log import say
from zfstune.term.signals import Stop
from zfstune.term.units import SECOND, format_count, format_span, format_time
from zfstune.trace.live import loop, say_waits

_PROGRESS_NS = 5 * SECOND

_TARGETS = {
    "fsync": "threads in an fsync",
    "txg-sync": "threads that sync a txg",
    "zfs": "threads in ZFS",
}


def run(args: argparse.Namespace) -> int:
    """The command. Raises CommandError and TraceError."""
    flame.check_output(args.output)
    host = open_host()
    prepare(host, TraceOptions(args.pool, args.pid), question="flame")
    to_stdout = args.output == "-"
    # a reader of stdout that leaves ends the recording only if the stacks go there
    with Stop(sys.stdout if to_stdout else sys.stderr) as stop, recorded(args, host, stop) as found:
        # written before it detaches, which may take long
        recording, took_ns = found
        report(args, recording)
        stacks = recording.stacks
        if not stacks.counts:
            raise CommandError(f"nothing was recorded of {who(args)} in {format_span(took_ns)}")
        if to_stdout and stop.reader_gone:
            return 0
        title = args.title or f"{MEASURES[args.mode]} of {who(args)}, {format_span(took_ns)}"
        flame.write(replace(stacks, title=title), args.output, inverted=args.inverted)
        seen = f"{amount(stacks.total, stacks.unit)} in {format_count(len(stacks.counts))} stacks"
        say(f"{seen}, written to {'stdout' if to_stdout else args.output}")
    return 0


def who(args: argparse.Namespace) -> str:
    """The recorded threads, for a sentence."""
    target = _TARGETS.get(args.target, f"process {args.pid}")
    return f"{target}, pool {args.pool}" if args.pool else target


@contextmanager
def recorded(args: argparse.Namespace, host: Host, stop: Stop) -> Iterator[tuple[Recording, int]]:
    """Attaches, waits until stop or the duration, and detaches at the end of the block. Yields the
    recording and its length in ns. Raises TraceError."""
    say("attaching ...")
    session = host.open_stack_trace(StackOptions(args.mode, args.target, args.pid, args.pool))
    with closing(session):
        say_begun(args, session)
        start = stop.now()

        def tick() -> bool:
            host.tick()
            if args.pid is None or host.process_error(args.pid) is None:
                return False
            say(f"process {args.pid} has ended")
            return True

        def show() -> bool:
            say(f"{format_span(stop.now() - start)} recorded")
            return False

        try:
            took_ns = loop(stop, args.duration, _PROGRESS_NS, tick, show)
            say("reading the stacks ...")
            yield session.finish(), took_ns
        finally:
            say_waits(host)


def say_begun(args: argparse.Namespace, session: StackSession) -> None:
    """Reports on stderr what is recorded, for how long, and which probes are missing."""
    probes = session.probes()
    missing = [probe for probe in probes if probe.missing]
    there = f"{len(probes) - len(missing)} of {len(probes)} probes attached"
    span = f", {format_span(args.duration)}" if args.duration else ""
    say(f"{there}, recording {MEASURES[args.mode]} of {who(args)}{span}; Ctrl-C to end")
    for probe in missing:
        say(f"missing probe {probe.name} ({probe.why}): {probe.cost}")


def report(args: argparse.Namespace, recording: Recording) -> None:
    """Reports on stderr what the output lacks, even if that is nothing."""
    losses = recording.losses
    say(f"lost: {lost(losses)}")
    if args.target == "zfs":
        idle = amount(recording.idle, recording.stacks.unit)
        say(f"left out: {idle} of threads that waited for work")
    elif losses.asleep:
        # DTrace does not know for how long
        so_far = f", {format_time(losses.asleep_ns)} so far" if losses.asleep_ns else ""
        say(f"left out: {format_count(losses.asleep)} threads still asleep{so_far}")


def lost(losses: StackLosses) -> str:
    """All losses as text, also those of 0."""
    sums = f" ({format_time(losses.lost_ns)})" if losses.lost_ns else ""
    return (
        f"{losses.no_stack} stacks not walked, {losses.stacks_full} found no room, "
        f"{losses.sums_full} not counted{sums}, {losses.sleepers_full} sleepers, "
        f"{losses.skipped} probe hits, {losses.fsyncs} fsyncs"
    )
