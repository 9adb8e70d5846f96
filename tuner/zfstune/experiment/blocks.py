"""Blocks: the fsyncs and the write path of a pool during a stretch of time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from zfstrace.host import FsyncSession, Host, ReadSession
from zfstrace.kstat.txgs import TxgRow, by_txg, done_since, newest_done
from zfstrace.read import Demand, ReadCounts, ReadState, demand
from zfstrace.read import since as reads_since
from zfstrace.read_summary import pool_sum
from zfstrace.summary import Span, since, summarize
from zfstrace.types import DatasetCounts, FsyncSummary, Json, Losses
from zfstune.experiment.objective import METRICS
from zfstune.term.units import SECOND

# What is older is dropped, unless the present block needs it: most blocks take less
_KEPT_NS = 15 * 60 * SECOND


@dataclass(frozen=True)
class Block:
    """A stretch of time under one set of values. metrics has the known ones of objective.METRICS
    and four more; histogram and stages are as in a fsync_summary, times in ns."""

    seconds: float
    fsyncs: int
    metrics: dict[str, float]
    histogram: tuple[tuple[int, int, int], ...] = ()
    stages: tuple[Json, ...] = ()
    txgs: tuple[TxgRow, ...] = ()
    lost: int = 0


@dataclass
class BlockMeter:
    """Cuts the time of a running fsync trace into blocks; reads is a trace of reads beside it, None
    if there is none.

    Call note_txgs() every second, also between blocks: the kstat keeps at most a hundred rows. Call
    count_written() more often: the data of a txg follows from the counts around its birth, and
    writers that wait for memory write most of it in the second after that (docs/statistics.md).

    periodic: blocks are whole periods of the load, so that what is written in each is the same, and
    tells the throughput better than the txgs, which may have more or fewer bursts than the block.
    """

    host: Host
    pool: str
    session: FsyncSession
    reads: ReadSession | None = None
    periodic: bool = False
    _reads: ReadState | None = None
    _read_losses: Losses = field(default_factory=Losses)
    _arc: dict[str, int] = field(default_factory=dict)
    _counts: list[DatasetCounts] = field(default_factory=list)
    _losses: Losses = field(default_factory=Losses)
    _start_ns: int = 0
    _begin: int = 0
    _txg: int = 0
    # when that txg was born, by the kstats' clock; None if it is not known
    _born_ns: int | None = None
    _throttled: int = 0
    _rows: dict[int, TxgRow] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)
    _written: list[tuple[int, int]] = field(default_factory=list)

    def look(self) -> None:
        """Records txgs, then what programs have written: in this order every txg has a count
        after its birth."""
        self.note_txgs()
        self.count_written()

    def note_txgs(self) -> None:
        """Records the txgs in the kstat."""
        self._rows |= by_txg(self.host.txg_rows(self.pool))

    def count_written(self) -> None:
        """Records how much programs have written so far, and drops old records."""
        now, found = self.host.written(self.pool)
        # the count of a dataset that was mounted again begins with 0
        more = sum(max(0, n - self._last[one]) for one, n in found.items() if one in self._last)
        self._last |= found
        self._written.append((now, (self._written[-1][1] if self._written else 0) + more))
        if now - self._written[0][0] > _KEPT_NS:
            needed_ns = now if self._born_ns is None else self._born_ns
            old = bisect_left(self._written, (min(now - _KEPT_NS // 2, needed_ns),))
            self._written = self._written[max(0, old - 1) :]
            oldest_ns = min(now - _KEPT_NS, needed_ns)
            self._rows = {n: row for n, row in self._rows.items() if row.birth_ns >= oldest_ns}

    def accepted(self) -> list[float]:
        """The bytes that programs have written in each whole second of what is recorded."""
        if len(self._written) < 2:
            return []
        begin = self._written[0][0]
        ends = range(begin, self._written[-1][0] + 1, SECOND)
        counts = [_at(self._written, end) for end in ends]
        return [after - before for before, after in zip(counts, counts[1:])]

    def start(self, now_ns: int) -> None:
        """Begins a block."""
        self.look()
        self.session.refresh()
        self._counts, self._losses = self.session.datasets(), self.session.losses()
        self._start_ns, self._begin = now_ns, self._written[-1][1]
        self._txg = newest_done(self._history())
        last = self._rows.get(self._txg)
        self._born_ns = last.birth_ns if last else None
        self._throttled = throttled(self.host)
        self._arc = self.host.kstat("arcstats")
        if self.reads:
            self.reads.refresh()
            self._reads, self._read_losses = self.reads.state(), self.reads.losses()

    def so_far(self) -> int:
        """The number of fsyncs since the block began."""
        return self._summary(0).count

    def longest_ns(self) -> int:
        """The longest fsync that ended since the block began; 0 without one."""
        latency = self._summary(0).latency
        return latency.max if latency else 0

    def txgs(self) -> list[TxgRow]:
        """The txgs that were done since the block began, as last recorded."""
        return done_since(self._history(), self._txg)

    def end(self, now_ns: int) -> Block:
        """Ends the block that start() began, and returns it."""
        duration_ns = now_ns - self._start_ns
        summary = self._summary(duration_ns)
        self.look()
        rows = self._history()
        seconds = duration_ns / SECOND
        metrics = fsync_metrics(summary) | txg_metrics(rows, self._txg, self._written)
        if self.periodic:
            metrics["write.throughput"] = (self._written[-1][1] - self._begin) / seconds
        metrics |= self._read_metrics(seconds)
        metrics["throttle.delays"] = (throttled(self.host) - self._throttled) / seconds
        lost = summary.losses.lost
        if self.reads:
            lost += self.reads.losses().since(self._read_losses).lost
        return Block(
            seconds,
            summary.count,
            metrics,
            summary.histogram,
            tuple(stage for stage in summary.to_json()["stages"]),
            tuple(done_since(rows, self._txg)),
            lost,
        )

    def _read_metrics(self, seconds: float) -> dict[str, float]:
        metrics = cache_metrics(demand(self.host.kstat("arcstats"), self._arc))
        if not self.reads or not self._reads:
            return metrics
        self.reads.refresh()
        counts = reads_since(self.reads.state(), self._reads)
        return metrics | read_metrics(pool_sum(counts, self.host, self.pool), seconds)

    def _history(self) -> list[TxgRow]:
        return [self._rows[txg] for txg in sorted(self._rows)]

    def _summary(self, duration_ns: int) -> FsyncSummary:
        self.session.refresh()
        losses = self.session.losses().since(self._losses)
        span = Span("", duration_ns, losses, self.session.probes())
        counts = since(self.session.datasets(), self._counts)
        return summarize(counts, self.host, span, self.pool)[0]


def fsync_metrics(summary: FsyncSummary) -> dict[str, float]:
    """Latencies in ns, rate per second; without an fsync only the rate."""
    seconds = summary.duration_ns / SECOND
    rate = {"fsync.rate": summary.count / seconds if seconds else 0.0}
    if summary.latency is None:
        return rate
    latency = summary.latency
    return rate | {
        "fsync.mean": float(latency.mean),
        "fsync.p50": float(latency.p50),
        "fsync.p99": float(latency.p99),
        "fsync.p999": float(latency.p999),
    }


def read_metrics(counts: ReadCounts, seconds: float) -> dict[str, float]:
    """Latencies in ns, those of enough reads or writes, and read.rate, per second."""
    reads, write = counts.hit.merge(counts.miss), counts.write
    found = {"read.rate": reads.count / seconds if seconds else 0.0}
    for name, op, value in (
        ("read.p99", reads, reads.latency.quantile(990)),
        ("read.mean", reads, reads.latency.sum_ns / max(1, reads.count)),
        ("write.p99", write, write.latency.quantile(990)),
    ):
        if op.count >= METRICS[name].calls:
            found[name] = float(value)
    return found


def cache_metrics(found: Demand) -> dict[str, float]:
    """arc.miss, the share of demand reads of blocks that missed, of the whole host. With half a
    miss more and one read more: ratios of shares are compared, and a share of 0 has none."""
    reads = found.hits + found.misses
    if reads < METRICS["arc.miss"].calls:
        return {}
    return {"arc.miss": (found.misses + 0.5) / (reads + 1)}


def txg_metrics(
    rows: Sequence[TxgRow], after: int, written: Sequence[tuple[int, int]] = ()
) -> dict[str, float]:
    """Metrics of the txgs done after one: txg.sync, the mean sync time in ns, and write.throughput,
    the bytes that programs wrote into them, per second from the end of that one to the end of the
    last. Data that is dirty at the ends of a block would distort a count by time; and metadata,
    of which short txgs have more, does not count.

    written has pairs of a time (of the kstats' clock) and the bytes up to then; without one on
    either side of a txg's birth there is no throughput. Empty if no txg was done.
    """
    ended = done_since(rows, after)
    by_number = by_txg(rows)
    if not ended or after not in by_number:
        return {}
    found = {"txg.sync": sum(row.sync_ns for row in ended) / len(ended)}
    # a txg takes writes until the next one is born
    begin, end = (_until(written, by_number.get(txg + 1)) for txg in (after, ended[-1].txg))
    span_ns = ended[-1].end_ns - by_number[after].end_ns
    if begin is not None and end is not None and span_ns > 0:
        found["write.throughput"] = (end - begin) * SECOND / span_ns
    return found


def _until(written: Sequence[tuple[int, int]], born: TxgRow | None) -> float | None:
    """Bytes written before a txg was born, interpolated; None if unknown."""
    if born is None:
        return None
    inside = written and written[0][0] < born.birth_ns <= written[-1][0]
    return _at(written, born.birth_ns) if inside else None


def _at(written: Sequence[tuple[int, int]], when_ns: int) -> float:
    """Bytes written up to a time within the record, interpolated."""
    k = max(1, bisect_left(written, (when_ns,)))
    (before, low), (after, high) = written[k - 1], written[k]
    return low + (high - low) * (when_ns - before) / max(1, after - before)


def throttled(host: Host) -> int:
    """The number of transactions that the write throttle has delayed, in all pools."""
    counts = host.kstat("dmu_tx")
    return counts.get("dmu_tx_dirty_delay", 0) + counts.get("dmu_tx_wrlog_delay", 0)
