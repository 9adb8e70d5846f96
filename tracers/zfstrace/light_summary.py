"""Summarizes a light trace by dataset name, and by pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zfstrace.host import Host
from zfstrace.light import CommitCounts, KeptRow, LightRow, Sample, StageShare, Window, shares
from zfstrace.stages import NAMES
from zfstrace.strict import strict_zip
from zfstrace.summary import Key, Span, latency, name_of, wanted

_NOTHING = CommitCounts("", 0, (0, 0), False)
_NO_FSYNC = 0, (0,) * len(NAMES)
Sums = dict[Key, tuple[int, tuple[int, ...]]]


def since(now: Sequence[CommitCounts], earlier: Sequence[CommitCounts]) -> list[CommitCounts]:
    """What each dataset did between two states of one session, by index."""
    old = len(earlier)
    return [one.subtract(earlier[i]) if i < old else one for i, one in enumerate(now)]


def rows(
    counts: Iterable[CommitCounts],
    windows: Sequence[Window],
    host: Host,
    span: Span,
    pool: str | None = None,
    dataset: str | None = None,
) -> list[LightRow]:
    """For each pool a row with dataset None, and one for each of its datasets with commits, those
    with the most time in them first. Limited to a pool or dataset when given; with a dataset there
    is none for its pool."""
    found: dict[Key, CommitCounts] = {}
    for one in counts:
        key = name_of(one, host, pool)
        if not (one.total.count or one.log_write.count) or not wanted(key, pool, dataset):
            continue
        for part in [key] if dataset else [(key[0], None), key]:
            found[part] = found[part].merge(one) if part in found else one
    for name in [] if dataset else [pool] if pool else host.pools():
        found.setdefault((name, None), _NOTHING)
    if dataset:
        found.setdefault((dataset.split("/", 1)[0], dataset), _NOTHING)
    sums = [by_name(window.samples, host, pool, dataset) for window in windows]
    lost = sum(window.lost for window in windows)
    made = [_row(key, one, sums, lost, span) for key, one in found.items()]
    return sorted(made, key=_order)


def kept(
    window: Window, host: Host, pool: str | None = None, dataset: str | None = None
) -> list[KeptRow]:
    """A row for each dataset with fsyncs in a window that has a cause; without any, one that tells
    of the cause."""
    if not window.cause:
        return []
    sums = by_name(window.samples, host, pool, dataset)
    named = {key: one for key, one in sums.items() if key[1] is not None}
    return [
        KeptRow(
            window.time,
            window.duration_ns,
            *key,
            window.cause,
            count,
            dict(strict_zip(NAMES, stage_ns)),
        )
        for key, (count, stage_ns) in (named or {(pool, dataset): _NO_FSYNC}).items()
    ]


def by_name(samples: Iterable[Sample], host: Host, pool: str | None, dataset: str | None) -> Sums:
    """How many fsyncs each pool and dataset had in a window, and their time by stage."""
    found: Sums = {}
    for one in samples:
        key = name_of(one, host, pool)
        if not wanted(key, pool, dataset):
            continue
        for part in [(key[0], None), key]:
            count, stage_ns = found.get(part, _NO_FSYNC)
            added = tuple(a + b for a, b in strict_zip(stage_ns, one.stage_ns))
            found[part] = count + one.count, added
    return found


def _shares(key: Key, sums: Sequence[Sums]) -> tuple[int, tuple[StageShare, ...]]:
    mine = [window.get(key, _NO_FSYNC) for window in sums]
    return sum(count for count, _ in mine), shares([stage_ns for _, stage_ns in mine])


def _row(key: Key, one: CommitCounts, sums: Sequence[Sums], lost: int, span: Span) -> LightRow:
    sampled, found = _shares(key, sums)
    return LightRow(
        span.time,
        span.duration_ns,
        *key,
        one.total.count,
        latency(one.total),
        one.log_write.count,
        latency(one.log_write),
        latency(one.flush),
        len(sums),
        sampled,
        lost,
        found,
        span.losses,
        span.probes,
    )


def _order(row: LightRow) -> tuple[bool, str, bool, int, str]:
    busy_ns = row.latency.mean * row.commits if row.latency else 0
    return row.pool is None, row.pool or "", row.dataset is not None, -busy_ns, row.dataset or ""
