"""A fake exporter: text for Prometheus with series of every metric in the exporter's table, and
values that are invented and move. It says what a dashboard and rules can ask for, not what an
exporter answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, product
from threading import Thread
from time import monotonic

from zfstrace.stages import NAMES
from zfstrace.throttle import KINDS as LIMITS
from zfstrace.txg import REASONS
from zfstune.exporter.families import BOUNDS_NS, LE
from zfstune.exporter.metrics import COUNTER, HISTOGRAM, METRICS, Spec
from zfstune.term.units import SECOND

# One value or more for each label of the table.
VALUES: dict[str, tuple[str, ...]] = {
    "abi": ("7",),
    "bound": ("estimate", "low", "high"),
    "by": ("other", "zfstune"),
    "cache": ("hit", "miss"),
    "class": ("sync_write", "flush"),
    "counter": ("commit", "commit_error", "commit_stall", "commit_suspend"),
    # names may have what PromQL and its regular expressions take for their own
    "dataset": ("tank/db", 'tank/a "b" \\c', "<others>"),
    "how": ("kprobe", "missing"),
    "kernel": ("6.12.0",),
    "kind": ("fsync", "o_sync"),
    "limit": LIMITS,
    "name": ("zfs_dirty_data_max", "zfs_txg_timeout"),
    "phase": ("open", "quiesce", "wait", "sync"),
    "pool": ("tank",),
    "reason": REASONS,
    "stage": NAMES,
    "state": ("ONLINE",),
    "vdev": ("sda", "sdb"),
    "version": ("0.1.0",),
    "view": ("light", "txg", "throttle", "arc"),
    "what": ("light", "scrape"),
    "why": ("no_pool",),
    "zfs": ("2.3.9",),
}
# What a label means in one metric.
_OWN = {
    ("zfstune_trace_lost_total", "reason"): ("start", "return"),
    ("zfstune_trace_off_info", "view"): ("arc",),
    ("zfstune_parameter_changed", "by"): ("other",),
}


@dataclass(frozen=True)
class Fake:
    """A host. gauges and rates per second are by name of a metric, where they are not 1; of a
    histogram typical is a value. values are of labels, as in VALUES. ends is after how many scrapes
    counters stand, which count those instead of seconds."""

    gauges: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    typical: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)


_NEVER = {
    "zfstune_fsync_errors_total": 0.0,
    "zfstune_fsync_without_zil_total": 0.0,
    "zfstune_parameter_writes_total": 0.0,
    "zfstune_throttle_wait_seconds_total": 0.0,
    "zfstune_trace_lost_total": 0.0,
    "zfstune_zil_kstat_total": 0.0,
}
_COMMITS = ("zfstune_zil_commit_duration_seconds", "zfstune_fsync_duration_seconds")
_SIZES = {
    "zfstune_dirty_limit_bytes": 4e9,
    "zfstune_txg_dirty_bytes": 5e8,
    "zfstune_arc_size_bytes": 8e9,
    "zfstune_arc_target_bytes": 8.5e9,
    "zfstune_trace_budget_ratio": 0.01,
    "zfstune_trace_cost_ratio": 0.001,
    "zfstune_fsync_stage_share_ratio": 1 / len(NAMES),
    "zfstune_exporter_scrape_seconds": 0.02,
    "zfstune_exporter_resident_bytes": 6e7,
}
WELL = Fake(_SIZES, {**_NEVER, **dict.fromkeys(_COMMITS, 50.0)})
# All that can be wrong at once while commits still end. Rates are high because rules ask for those
# of minutes and hours, of which a test has seconds.
SLOW = Fake(
    {**_SIZES, "zfstune_trace_up": 0, "zfstune_trace_cost_ratio": 0.02},
    {**dict.fromkeys(_NEVER, 100.0), **dict.fromkeys(_COMMITS, 500.0)},
    {**dict.fromkeys(_COMMITS, 0.3), "zfstune_txg_duration_seconds": 9},
    {"state": ("SUSPENDED",), "why": ("privilege",)},
)
# No commit ends, and no txg after the first scrapes.
HUNG = Fake(
    {**_SIZES, "zfstune_zil_commits_unfinished": 9},
    {**_NEVER, **dict.fromkeys(_COMMITS, 0.0)},
    ends={"zfstune_txgs_total": 5},
)


def text(fake: Fake, seconds: float, scrapes: int) -> str:
    """What it exposes so long after its start, and after so many scrapes."""
    lines: list[str] = []
    for spec in METRICS.values():
        kind = "gauge" if spec.type == "info" else spec.type
        lines += [f"# HELP {spec.name} {spec.help}", f"# TYPE {spec.name} {kind}"]
        values = (_values(spec, label, fake) for label in spec.labels)
        for labels in product(*values):
            lines += _samples(
                spec, dict(zip(spec.labels, labels, strict=True)), fake, seconds, scrapes
            )
    return "\n".join(lines) + "\n"


def _values(spec: Spec, label: str, fake: Fake) -> tuple[str, ...]:
    return fake.values.get(label) or _OWN.get((spec.name, label)) or VALUES[label]


def _samples(
    spec: Spec, labels: dict[str, str], fake: Fake, seconds: float, scrapes: int
) -> Iterator[str]:
    rate = fake.rates.get(spec.name, 1.0)
    if spec.type == COUNTER:
        end = fake.ends.get(spec.name)
        yield _sample(spec.name, labels, rate * (seconds if end is None else min(scrapes, end)))
    elif spec.type == HISTOGRAM:
        yield from _histogram(spec.name, labels, fake.typical.get(spec.name, 0.001), rate * seconds)
    else:
        value = fake.gauges.get(spec.name, 1.0)
        # sizes go up and down, flags and counts do not
        moves = 1 + 0.1 * math.sin(seconds / 5) if value > 1000 else 1
        yield _sample(spec.name, labels, value * moves)


def _histogram(name: str, labels: dict[str, str], typical: float, number: float) -> Iterator[str]:
    """Half of the values are typical or less, the others twice that."""
    for le, bound in zip(LE, (*BOUNDS_NS, math.inf), strict=True):
        below = sum(0.5 for value in (typical, 2 * typical) if value <= bound / SECOND)
        yield _sample(f"{name}_bucket", {**labels, "le": le}, number * below)
    yield _sample(f"{name}_count", labels, number)
    yield _sample(f"{name}_sum", labels, number * typical * 1.5)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    escaped = {key: one.replace("\\", r"\\").replace('"', r"\"") for key, one in labels.items()}
    inside = ",".join(f'{key}="{one}"' for key, one in escaped.items())
    return f"{name}{{{inside}}} {value}"


@contextmanager
def served(fake: Fake) -> Iterator[str]:
    """Its address and port."""
    start, scrapes = monotonic(), count()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text(fake, monotonic() - start, next(scrapes)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
