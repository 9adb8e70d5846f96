"""Sample measurements of a pool, for the rules of a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from support.fake_host import FakeHost
from support.samples import counts

from zfstrace.stages import NAMES
from zfstrace.summary import Span, summarize
from zfstrace.types import Losses
from zfstune.diagnose.quantities import Observed, Single, Value, measure
from zfstune.term.units import MS, SECOND

TWENTY = 20 * SECOND
_NOTHING = (
    "txg_sync_permille",
    "txg_quiesce_max_ns",
    "async_write_permille",
    "background_permille",
    "throttle_waits",
    "throttled_permille",
    "dirty_delays",
    "indirect_records",
    "commit_bytes",
    "off_slog_permille",
    "fallback_errors",
    "fallback_stalls",
    "fallback_suspends",
    "fallback_reasons",
    "slow_vdev_times",
    "slow_vdev_p50_ns",
    "arc_waiting_permille",
    "zvol_threads",
    "syncing_device_mean_ns",
)


def observed(
    stages: Mapping[str, Sequence[int]],
    *,
    syncing: Sequence[bool] | None = None,
    threads: int = 1,
    single: bool = True,
    **given: object,
) -> Observed:
    """Operations with these times in ns; operation i takes the i-th time of each stage."""
    count = max((len(values) for values in stages.values()), default=0)
    slots = [counts(objset=68, stages=stages)] if count else []
    span = Span("2026-11-21T12:00:00.000Z", TWENTY, Losses(), ())
    rows = summarize(slots, FakeHost(), span, "tank")
    singles = []
    for i in range(count if single else 0):
        times = tuple(stages[n][i] if i < len(stages.get(n, ())) else 0 for n in NAMES)
        state = syncing[i] if syncing else False
        singles.append(Single(sum(times), times, "tank/db", 100 + i % threads, state))
    fields: dict[str, object] = {
        "pool": "tank",
        "state": "ONLINE",
        "time": span.time,
        "version": "2.3.9-1",
        "duration_ns": TWENTY,
        "unfinished": 0,
        "log_vdevs": 0,
        "fsync": rows[0],
        "singles": singles,
        "datasets": rows[1:],
    }
    return Observed(**(fields | given))  # type: ignore[arg-type]


def pool(stages: Mapping[str, Sequence[int]] | None = None, **given: Value) -> dict[str, Value]:
    """Every measurement of a quiet pool with a hundred fast fsyncs; what is given replaces them."""
    found = measure(observed(stages or {"log_write": [MS] * 100, "flush": [2 * MS] * 100}))
    quiet: dict[str, Value] = dict.fromkeys(_NOTHING, 0)
    quiet |= {"own_commits_permille": 1000, "commit_timeout_pct": 10, "device_flush_count": 100}
    quiet |= {"device_flush_p50_ns": MS, "device_log_p50_ns": MS, "device_flush_mean_ns": MS}
    return found | quiet | given
