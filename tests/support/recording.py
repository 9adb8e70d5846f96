"""What a recorder is fed in tests: rows as the views make them, and clocks that a test sets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from support.fake_host import FakeHost
from support.samples import arc, from_values, txg, waits

from zfstrace import arc as arc_rows
from zfstrace import light_summary, throttle
from zfstrace.clock import iso_utc
from zfstrace.light import CommitCounts, Sample, SlowCommit, Window
from zfstrace.stages import NAMES
from zfstrace.summary import Span
from zfstrace.types import Json, Losses, Probe
from zfstune.record.recorder import Clock
from zfstune.term.units import MS, SECOND, US

NOON = 1_795_780_800 * SECOND  # 2026-11-27T12:00:00Z
_PROBES = tuple(
    Probe(f"zil_probe_{i}", f"zil_probe_{i}", "fentry", True, "nothing can be measured", "")
    for i in range(24)
)


class FakeClock(Clock):
    """A wall clock that can be set beside one that cannot."""

    def __init__(self, wall: int = NOON) -> None:
        self.now, self._base = 100 * SECOND, wall - 100 * SECOND

    def wall(self) -> int:
        return self._base + self.now

    def steady(self) -> int:
        return self.now

    def set(self, by: int) -> None:
        """Sets the wall clock that much ahead."""
        self._base += by


class Busy:
    """A busy host of two pools: rows() of one interval after the other, never twice the same.

    Each pool has so many datasets with commits, two txgs an interval, three programs that wait,
    and a slow commit now and then.
    """

    def __init__(self, datasets: int = 4, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._host = FakeHost()
        self._host.imported = ["tank", "backup"]
        self._host.names = {
            (pool, i): f"{pool}/srv/{name}{i}"
            for pool, name in (("tank", "database"), ("backup", "container"))
            for i in range(datasets)
        }
        self._txg = 4_000_000
        self._windows: list[Window] = []

    def rows(self, end: int) -> Mapping[str, Sequence[Json]]:
        """Of the 10 s until then, ns since 1970."""
        span = Span(iso_utc(end), 10 * SECOND, Losses(), _PROBES)
        return {
            "light": list(self._light(span)),
            "txg": list(self._txgs(end)),
            "throttle": self._throttle(span),
            "arc": [self._arc(span)],
        }

    def _times(self, count: int, least: int, most: int) -> list[int]:
        return [round(least * (most / least) ** self._random.random()) for _ in range(count)]

    def _light(self, span: Span) -> Iterator[Json]:
        counts = [
            CommitCounts(
                pool,
                objset,
                (0, 0),
                False,
                from_values(self._times(12, 300 * US, 80 * MS)),
                from_values(self._times(12, 100 * US, 40 * MS)),
                from_values(self._times(12, 50 * US, 30 * MS)),
            )
            for pool, objset in self._host.names
        ]
        if self._random.random() < 1 / 6:
            self._windows = [*self._windows[-5:], self._window(None)]
        rows = light_summary.rows(counts, self._windows, self._host, span)
        yield from (row.to_json() for row in rows)
        if self._random.random() < 0.05:
            cause = SlowCommit(self._random.randrange(SECOND), 4711, "postgres")
            for row in light_summary.kept(self._window(cause), self._host):
                yield row.to_json()

    def _window(self, cause: SlowCommit | None) -> Window:
        samples = tuple(
            Sample(pool, objset, (0, 0), False, 40, tuple(self._times(len(NAMES), US, SECOND)))
            for pool, objset in self._host.names
        )
        return Window("2026-11-27T12:00:00.000Z", 2 * SECOND, samples, cause)

    def _txgs(self, end: int) -> Iterator[Json]:
        for pool in self._host.imported:
            for back in (5, 0):
                self._txg += 1
                yield txg(
                    self._txg,
                    pool,
                    time=iso_utc(end - back * SECOND),
                    sync_ns=self._random.randrange(SECOND),
                    quiesce_ns=self._random.randrange(MS),
                    wait_ns=self._random.randrange(MS),
                    dirty_bytes=self._random.randrange(1 << 30),
                    written_bytes=self._random.randrange(1 << 30),
                    writes=self._random.randrange(10_000),
                    zil_sync_ns=self._random.randrange(10 * MS),
                ).to_json()

    def _throttle(self, span: Span) -> list[Json]:
        found = [
            waits(
                pid=1000 + self._random.randrange(5),
                comm=comm,
                dirty_bytes=self._random.randrange(1 << 32),
                dirty_delay=self._times(8, 10 * US, 10 * MS),
            )
            for comm in ("postgres", "fio", "rsync")
        ]
        rows = throttle.rows(found, span.time, span.duration_ns, 4 << 30, span.losses)
        return [row.to_json() for row in rows]

    def _arc(self, span: Span) -> Json:
        sizes = {"size": self._random.randrange(1 << 34), "c": self._random.randrange(1 << 34)}
        hits = {"demand_data_hits": 990 + self._random.randrange(1_000_000)}
        now = arc(2)
        now = replace(now, stats={**now.stats, **sizes, **hits})
        return arc_rows.row(now, arc(1), span.time, span.duration_ns, span.losses).to_json()


def light_row(pool: str = "tank", p99: int = MS, *, commits: int = 100, **given: object) -> Json:
    """The `light_summary` of a pool with a p99."""
    latency = dict.fromkeys(("mean", "p50", "p90", "p99", "p999", "max"), p99)
    row: Json = {
        "schema": 1,
        "type": "light_summary",
        "time": iso_utc(NOON),
        "pool": pool,
        "dataset": None,
        "duration_ns": 10 * SECOND,
        "commits": commits,
        "latency": latency if commits else None,
        "log_blocks": commits,
        "log_write": latency if commits else None,
        "flush": latency if commits else None,
        "estimated": {"windows": 0, "fsyncs": 0, "lost": 0, "confidence": 0.95, "stages": []},
        "lost": 0,
        "unfinished": 0,
    }
    return {**row, **given}
