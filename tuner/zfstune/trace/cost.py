"""`zfstune doctor --cost`: what tracing costs here, by the kernel's own count."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from typing import TextIO

from zfstrace.cost import CostCounts, ProgramCost
from zfstrace.host import Host
from zfstrace.types import SCHEMA, Json, TraceOptions
from zfstune import __version__
from zfstune.host import open_host
from zfstune.preflight import prepare
from zfstune.term.log import say
from zfstune.term.signals import Stop
from zfstune.term.table import aligned, style_of, wrap
from zfstune.term.units import SECOND, format_count, format_rate, format_span, format_time
from zfstune.trace.live import loop

_DURATION_NS = 5 * SECOND
_HEAD = ("", "", "runs", "per fsync", "each", "per fsync", "of a CPU")
_NOTES = (
    "Not counted: the kernel's way into a program and out of it, which for a kprobe or a kretprobe "
    "takes longer than most programs run{kprobes}. Counted with it: about one reading of the clock "
    "for each run. The counting itself slows all BPF programs of this host while it lasts."
)


def run(args: argparse.Namespace) -> int:
    """The command; returns 0. Raises CommandError and TraceError."""
    host = open_host()
    # the host says best why it cannot: some never can
    prepare(host, TraceOptions(), bpf=False)
    with Stop(sys.stdout) as stop:
        measure(host, sys.stdout, stop, args.duration or _DURATION_NS, as_json=args.json)
    return 0


def measure(host: Host, out: TextIO, stop: Stop, duration_ns: int, *, as_json: bool) -> None:
    """Attaches all tracers, counts until stop or the duration, prints. Raises TraceError."""
    say("attaching ...")
    with closing(host.open_cost_trace()) as session:
        first, start = session.counts(), stop.now()
        tracers = {one.tracer for one in first.programs}
        say(
            f"{len(first.programs)} programs of {len(tracers)} tracers attached, counting for "
            f"{format_span(duration_ns)}; Ctrl-C to end"
        )

        def tick() -> bool:
            host.tick()
            return not host.loaded()

        loop(stop, duration_ns, None, tick)
        if stop.reader_gone:
            return
        counts, elapsed_ns = session.counts().since(first), stop.now() - start
    if as_json:
        print(json.dumps(_to_json(counts, elapsed_ns)), file=out)
    else:
        print("\n".join(lines(counts, elapsed_ns, out)), file=out)
    out.flush()


def _to_json(counts: CostCounts, elapsed_ns: int) -> Json:
    return {
        "schema": SCHEMA,
        "type": "doctor_cost",
        "version": __version__,
        "duration_ns": elapsed_ns,
        "operations": counts.operations,
        "lost": counts.lost,
        "run_ns": counts.run_ns(),
        "cpu_share": counts.run_ns() / max(1, elapsed_ns),
        "per_operation_ns": _each(counts.run_ns(), counts.operations),
        "reads": {
            "operations": counts.reads,
            "run_ns": counts.run_ns("read"),
            "per_operation_ns": _each(counts.run_ns("read"), counts.reads),
        },
        "programs": [one.to_json() for one in counts.programs],
        "unavailable": counts.unavailable,
    }


def _each(ns: int, number: int) -> int | None:
    return round(ns / number) if number else None


def lines(counts: CostCounts, elapsed_ns: int, out: TextIO) -> list[str]:
    """A block for each tracer, its programs with the most time first, and what it means."""
    style = style_of(out)
    cells: list[tuple[str, ...]] = [_HEAD]
    heads: list[int] = []
    tracers = list(dict.fromkeys(one.tracer for one in counts.programs))
    for tracer in tracers:
        programs = [one for one in counts.programs if one.tracer == tracer]
        ran = sorted((one for one in programs if one.runs), key=lambda one: -one.run_ns)
        total = ProgramCost(tracer, "", "", sum(one.runs for one in ran), counts.run_ns(tracer))
        heads.append(len(cells))
        name = "trace read (per call)" if tracer == "read" else f"trace {tracer}"
        cells.append((name, "", *_numbers(total, counts, elapsed_ns)))
        cells += [(f"  {one.probe}", one.how, *_numbers(one, counts, elapsed_ns)) for one in ran]
    rows = aligned(cells, "<<>>>>>")
    for i in (0, *heads):
        rows[i] = style.paint(rows[i], "bold")
    idle = sum(not one.runs for one in counts.programs)
    if idle:
        rows.append(f"{format_count(idle)} programs did not run")
    for tracer, why in counts.unavailable.items():
        rows += wrap(f"trace {tracer} is not available: {why}")
    rows += ["", *wrap(_verdict(counts, elapsed_ns)), *wrap(_of_reads(counts, elapsed_ns))]
    if counts.lost:
        rows.append(style.paint(f"lost {format_count(counts.lost)} fsyncs", "bad"))
    kprobes = sum(one.how == "kprobe" for one in counts.programs)
    of = f" ({kprobes} of {len(counts.programs)} programs here)" if kprobes else " (none here)"
    return [*rows, "", *wrap(_NOTES.format(kprobes=of))]


def _numbers(one: ProgramCost, counts: CostCounts, elapsed_ns: int) -> tuple[str, ...]:
    calls = counts.calls(one.tracer)
    per_ns = _each(one.run_ns, calls)
    each_ns = _each(one.run_ns, one.runs)
    return (
        format_count(one.runs),
        f"{one.runs / calls:.2f}" if calls else "-",
        "-" if each_ns is None else format_time(each_ns),
        "-" if per_ns is None else format_time(per_ns),
        _share(one.run_ns, elapsed_ns),
    )


def _share(ns: int, elapsed_ns: int) -> str:
    """Finer than format_percent: most programs take less than a thousandth."""
    percent = 100 * ns / max(1, elapsed_ns)
    return f"{percent:.3f} %" if percent < 1 else f"{percent:.1f} %"


def _verdict(counts: CostCounts, elapsed_ns: int) -> str:
    span = format_span(elapsed_ns)
    all_of = f"all of `zfstune trace` took {_share(counts.run_ns(), elapsed_ns)} of one CPU"
    if not counts.operations:
        return (
            f"no fsync and no other ZIL commit was seen in {span}: the pool is idle, so nothing "
            f"can be said for each; {all_of}"
        )
    fsync_ns = counts.run_ns("fsync")
    return (
        f"{format_count(counts.operations)} fsyncs and other ZIL commits in {span} "
        f"({format_rate(counts.operations, elapsed_ns)}): `zfstune trace fsync` took "
        f"{format_time(round(fsync_ns / counts.operations))} for each and "
        f"{_share(fsync_ns, elapsed_ns)} of one CPU; {all_of}"
    )


def _of_reads(counts: CostCounts, elapsed_ns: int) -> str:
    """Apart, because a screen of all views does not trace reads."""
    if not counts.reads:
        return ""
    ns = counts.run_ns("read")
    return (
        f"{format_count(counts.reads)} reads and writes of files "
        f"({format_rate(counts.reads, elapsed_ns)}): `zfstune trace read` took "
        f"{format_time(round(ns / counts.reads))} for each and {_share(ns, elapsed_ns)} of one CPU"
    )
