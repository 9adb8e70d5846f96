"""Traces that stay on for weeks: commits and log blocks are counted exactly; what fsyncs spend
their time on is estimated, from short windows in which all of their stages are traced.

A window begins at random, so each moment is as likely to be in one as any other, and estimates are
not biased by what repeats itself. Operations of a window are not independent of one another;
windows are, which is why intervals come from how much these differ. What is recorded because
something was slow is no random moment, and in no estimate; a random window in which something was
slow is in the estimates, and kept as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from zfstrace.hist import Hist
from zfstrace.stages import NAMES
from zfstrace.strict import strict_zip
from zfstrace.student import student_quantile
from zfstrace.types import SCHEMA, Json, Latency, Losses, Probe, probes_to_json, same_dataset

CONFIDENCE = 0.95


@dataclass(frozen=True)
class CommitCounts:
    """A dataset since the session began; identity and rest as in types.DatasetCounts. total is of
    whole commits, log_write and flush are of log blocks."""

    pool: str
    objset: int
    dev: tuple[int, int]
    rest: bool
    total: Hist = field(default_factory=Hist)
    log_write: Hist = field(default_factory=Hist)
    flush: Hist = field(default_factory=Hist)

    def subtract(self, earlier: CommitCounts) -> CommitCounts:
        """What was added since an earlier state."""
        return replace(
            self,
            total=self.total.subtract(earlier.total),
            log_write=self.log_write.subtract(earlier.log_write),
            flush=self.flush.subtract(earlier.flush),
        )

    def merge(self, other: CommitCounts) -> CommitCounts:
        """The sum of two."""
        return replace(
            self,
            total=self.total.merge(other.total),
            log_write=self.log_write.merge(other.log_write),
            flush=self.flush.merge(other.flush),
        )


class CommitSums:
    """The counts of one session after another, as if they were of one: a dataset keeps its index,
    and the rest is the first."""

    # of a session after the first that are not in the rest; libzfstrace has the same limit
    MOST = 1024

    def __init__(self) -> None:
        self._past: list[CommitCounts] = []
        # where the datasets of the present session are in the sum
        self._places: list[int] = []

    def of(self, present: Sequence[CommitCounts]) -> list[CommitCounts]:
        """With what the present session has counted."""
        sums = list(self._past)
        for i, one in enumerate(present):
            if i == len(self._places):
                self._places.append(self._place(one, len(sums)))
            if self._places[i] == len(sums):
                sums.append(one)
            else:
                before = sums[self._places[i]]
                # its device may be another one now
                sums[self._places[i]] = before.merge(one) if before.rest else one.merge(before)
        return sums

    def _place(self, one: CommitCounts, end: int) -> int:
        for i, other in enumerate(self._past):
            if same_dataset(one, other):
                return i
        return end if end < self.MOST else 0

    def end(self, present: Sequence[CommitCounts]) -> None:
        """The present session ends with that."""
        self._past, self._places = self.of(present), []


@dataclass(frozen=True)
class SlowCommit:
    """A commit that took total_ns, by a thread of a process."""

    total_ns: int
    pid: int
    comm: str


@dataclass(frozen=True)
class Sample:
    """The operations of a dataset that began in one window; identity and rest as in
    types.DatasetCounts, stages in the order of stages.NAMES."""

    pool: str
    objset: int
    dev: tuple[int, int]
    rest: bool
    count: int
    stage_ns: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """time is when it ended, ISO 8601, UTC; cause is the slow commit that it is kept for, None as a
    part of the estimates. lost is how many of its operations are in no sample: not seen, or not
    ended when there was no more waiting for them."""

    time: str
    duration_ns: int
    samples: tuple[Sample, ...]
    cause: SlowCommit | None = None
    lost: int = 0


@dataclass(frozen=True)
class StageShare:
    """The share of a stage in the time of fsyncs, with its interval of 95 %; low and high are None
    with fewer than two windows."""

    name: str
    share: float
    low: float | None
    high: float | None


def shares(windows: Sequence[Sequence[int]]) -> tuple[StageShare, ...]:
    """The shares of stages, from the time in each of them (ns) in each window: a ratio of sums, and
    its interval from how far windows are from it (Cochran 1977, "Sampling Techniques", 6.4). Empty
    without any time."""
    totals = [sum(window) for window in windows]
    whole, count = sum(totals), len(windows)
    if not whole:
        return ()
    found = []
    for i, name in enumerate(NAMES):
        share = sum(window[i] for window in windows) / whole
        if count < 2:
            found.append(StageShare(name, share, None, None))
            continue
        off = sum((window[i] - share * total) ** 2 for window, total in strict_zip(windows, totals))
        error = math.sqrt(count / (count - 1) * off) / whole
        reach = student_quantile((1 + CONFIDENCE) / 2, count - 1) * error
        found.append(StageShare(name, share, max(0.0, share - reach), min(1.0, share + reach)))
    return tuple(found)


@dataclass(frozen=True)
class LightRow:
    """A pool (dataset None) or a dataset. latency is of commits in duration_ns, log_write and flush
    of its log blocks, None without any; shares are of the fsyncs in the last windows: `sampled` in
    as many `windows`, and `unsampled` of all pools are missing there."""

    time: str
    duration_ns: int
    pool: str | None
    dataset: str | None
    commits: int
    latency: Latency | None
    log_blocks: int
    log_write: Latency | None
    flush: Latency | None
    windows: int
    sampled: int
    unsampled: int
    shares: tuple[StageShare, ...]
    losses: Losses
    probes: tuple[Probe, ...]

    def to_json(self) -> Json:
        """A ``light_summary`` object of the schema."""
        return {
            "schema": SCHEMA,
            "type": "light_summary",
            "time": self.time,
            "pool": self.pool,
            "dataset": self.dataset,
            "duration_ns": self.duration_ns,
            "commits": self.commits,
            "latency": asdict(self.latency) if self.latency else None,
            "log_blocks": self.log_blocks,
            "log_write": asdict(self.log_write) if self.log_write else None,
            "flush": asdict(self.flush) if self.flush else None,
            "estimated": {
                "windows": self.windows,
                "fsyncs": self.sampled,
                "lost": self.unsampled,
                "confidence": CONFIDENCE,
                "stages": [asdict(one) for one in self.shares],
            },
            "lost": self.losses.lost,
            "losses": self.losses.to_json(),
            "unfinished": self.losses.unfinished,
            "probes": probes_to_json(self.probes),
        }


@dataclass(frozen=True)
class KeptRow:
    """A window that is kept because a commit was slow, for one dataset; that of no fsync, for what
    was asked for."""

    time: str
    duration_ns: int
    pool: str | None
    dataset: str | None
    cause: SlowCommit
    fsyncs: int
    stages: dict[str, int]

    def to_json(self) -> Json:
        """A ``light_window`` object of the schema."""
        return {"schema": SCHEMA, "type": "light_window", **asdict(self)}
