"""`zfstune check`: measures a pool for some seconds and compares metrics with limits."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from zfstrace import arc
from zfstrace.arc import ArcState
from zfstrace.clock import iso_now
from zfstrace.host import Host
from zfstrace.types import WRITES_BLOCKED, Losses, TraceOptions
from zfstune.check import limits
from zfstune.check.judge import CRITICAL, OK, UNKNOWN, Judged, judge, line, ordered, to_json, worst
from zfstune.check.limits import UNITS, Limit
from zfstune.check.metrics import DEFAULT, METRICS, Metric, Seen
from zfstune.errors import UsageError
from zfstune.host import open_host
from zfstune.preflight import prepare
from zfstune.term.signals import Stop
from zfstune.term.table import aligned
from zfstune.term.units import SECOND, format_span
from zfstune.trace import live, sources
from zfstune.trace.live import Run
from zfstune.trace.sources import Reading, Source

_SLACK_NS = 25 * SECOND


def run(args: argparse.Namespace) -> int:
    """The command; returns the plugin's status. Raises CommandError and TraceError, which are
    UNKNOWN."""
    if args.list:
        print("\n".join(table()))
        return OK
    if args.pool is None:
        raise UsageError("no pool is given", "write `zfstune check POOL`, or see --list")
    warn, crit = limits.parse(args.warn), limits.parse(args.crit)
    for name in args.show:
        limits.known(name)
    wanted = list(dict.fromkeys([*crit, *warn, *args.show])) or list(DEFAULT)
    with _at_most(args.timeout or args.duration + _SLACK_NS, args):
        host = open_host()
        options = TraceOptions(args.pool, None, args.no_fentry)
        prepare(host, options, bpf=False)
        state = host.pool_state(args.pool)
        if state in WRITES_BLOCKED:
            # nothing can be measured there, and a trace might not detach (zfstune diagnose)
            return _print(args, CRITICAL, [f"the pool is {state}: writes do not end"], [])
        with Stop(sys.stdout) as stop:
            return _measured(
                Run(args, options, host, sys.stdout, stop),
                [METRICS[name] for name in wanted],
                warn,
                crit,
            )


def table() -> list[str]:
    """All metrics, with units, for people and scripts."""
    cells = [["metric", "like", "needs", "meaning"]]
    for one in METRICS.values():
        needs = "kstats" if one.source == "kstat" else "root"
        cells.append([one.name, UNITS[one.unit].example, needs, one.meaning])
    return aligned(cells, "<<<<")


@contextmanager
def _at_most(span_ns: int, args: argparse.Namespace) -> Iterator[None]:
    """Ends the process with UNKNOWN after that time: a monitoring system would kill it and learn
    nothing. The kernel detaches the programs of a process that ends."""

    def late(_number: int, _frame: object) -> None:
        text = f"no answer within {format_span(span_ns)}"
        # print() may be what hangs
        os.write(1, f"{_output(args, UNKNOWN, [text], [])}\n".encode())
        os._exit(UNKNOWN)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, span_ns / SECOND)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _measured(
    run: Run[TraceOptions],
    wanted: Sequence[Metric],
    warn: Mapping[str, Limit],
    crit: Mapping[str, Limit],
) -> int:
    host, pool = run.host, run.options.pool or ""
    names = {metric.source for metric in wanted} & sources.OPEN.keys()
    with ExitStack() as stack:
        views = {
            name: stack.enter_context(sources.opened(name, run))
            for name in sources.OPEN
            if name in names
        }
        for view in views.values():
            view.restart()
        before = _kstats(host)
        spanning = any(metric.spans for metric in wanted)
        start = run.stop.now()
        if spanning:
            live.loop(run.stop, run.args.duration, None, lambda: _tick(run, views))
        duration = run.stop.now() - start
        after = _kstats(host)
        found = {name: view.measure(step=False) for name, view in views.items()}
        if run.stop.reader_gone:
            return UNKNOWN
        if run.gone():
            return _print(run.args, UNKNOWN, [f"{run.gone()} meanwhile"], [])
        errors = {name: reading.error for name, reading in found.items() if reading.error}
        if "arc" in found and not errors.get("arc"):
            lack = sources.lack_of(host)
            errors |= {"arc": lack.in_one_line()} if lack else {}
        seen = _seen(host, pool, duration, found, before, after)
        judged = [judge(m, seen, errors, warn.get(m.name), crit.get(m.name)) for m in wanted]
        state = host.pool_state(pool)
        texts = [*ordered(judged), *([f"pool is {state}"] if state not in ("ONLINE", "") else [])]
        # what was measured before it stopped may be good
        status = CRITICAL if state in WRITES_BLOCKED else worst(judged)
        # before the traces are detached, which may take long
        return _print(run.args, status, texts, judged)


def _tick(run: Run[TraceOptions], views: Mapping[str, Source]) -> bool:
    for view in views.values():
        view.tick()
    if run.gone():
        return True
    run.host.tick()
    return False


_KSTATS = ("zil", "dmu_tx", "arcstats")


def _kstats(host: Host) -> dict[str, dict[str, int]]:
    return {name: host.kstat(name) for name in _KSTATS}


def _seen(
    host: Host,
    pool: str,
    duration_ns: int,
    found: Mapping[str, Reading],
    before: Mapping[str, Mapping[str, int]],
    after: Mapping[str, Mapping[str, int]],
) -> Seen:
    def rows(name: str) -> list[Any]:
        return list(found[name].rows) if name in found else []

    def since(name: str) -> dict[str, int]:
        return {n: value - before[name].get(n, 0) for n, value in after[name].items()}

    fsyncs = [row for row in rows("fsync") if row.pool == pool and row.dataset is None]
    losses = [reading.losses for reading in found.values()]
    cache = None
    if after["arcstats"]:
        then, now = ArcState(before["arcstats"]), ArcState(after["arcstats"])
        cache = arc.row(now, then, iso_now(), duration_ns, losses[0] if losses else Losses())
    return Seen(
        pool,
        duration_ns,
        fsyncs[0] if fsyncs else None,
        [row for row in rows("throttle") if row.pool == pool],
        [row for row in rows("device") if row.pool == pool],
        next(iter(rows("arc")), None),
        cache,
        [row for row in host.txg_rows(pool) if row.done],
        since("zil"),
        since("dmu_tx"),
        host.parameter("zfs_dirty_data_max"),
        sum(one.lost for one in losses),
    )


def _output(
    args: argparse.Namespace, status: int, texts: Sequence[str], found: Sequence[Judged]
) -> str:
    pool = args.pool or ""
    if args.json:
        return json.dumps(to_json(pool, iso_now(), status, ", ".join(texts), found))
    return line(pool, status, texts, found)


def _print(
    args: argparse.Namespace, status: int, texts: Sequence[str], found: Sequence[Judged]
) -> int:
    print(_output(args, status, texts, found), flush=True)
    return status
