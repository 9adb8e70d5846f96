"""What stands out in a measurement: rules for each view, and which one to look at first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from zfstrace import stages
from zfstrace.arc import ArcRow
from zfstrace.device import BACKGROUND, DeviceRow, device_ns, slowest_sibling
from zfstrace.throttle import ThrottleRow
from zfstrace.txg import Txg
from zfstrace.types import FsyncSummary
from zfstune.term.units import MS, SECOND, format_count, format_percent, format_time

# From cause to effect: a slow disk makes syncs long, those make the throttle stop writers,
# and all of it makes fsyncs slow.
ORDER = (
    "memory",
    "slow_vdev",
    "background",
    "dirty_hard",
    "long_sync",
    "long_quiesce",
    "delays",
    "eviction",
    "flush",
    "queue",
    "slow_fsync",
)


@dataclass(frozen=True)
class Sign:
    """text and advice are parts of a sentence. urgent: worth a look also when everything
    seems well; row is the one that shows it."""

    name: str
    urgent: bool
    text: str
    advice: str
    row: object = None

    @property
    def sentence(self) -> str:
        return f"{self.text[:1].upper()}{self.text[1:]}; {self.advice}."


def first(signs: Iterable[Sign]) -> Sign | None:
    """The one to look at first: of the urgent ones, the one nearest to the cause."""
    return min((s for s in signs if s.urgent), key=lambda s: ORDER.index(s.name), default=None)


def of_device(rows: Sequence[DeviceRow]) -> list[Sign]:
    """The signs of one or more pools, the strongest of each kind."""
    found = [_slow_vdev(rows), _background(rows), _flush(rows), _queue(rows)]
    return [sign for sign in found if sign]


def _slow_vdev(rows: Sequence[DeviceRow]) -> Sign | None:
    worst = slowest_sibling(rows)
    if not worst:
        return None
    times, row, middle = worst
    return Sign(
        "slow_vdev",
        row.device.p50 >= MS,
        f"vdev {row.vdev} of {row.pool} is {times:.0f} times as slow as its siblings at "
        f"{row.io_class} (p50 {format_time(row.device.p50)} against {format_time(middle)})",
        "if they are of one kind, look at that disk: `zpool status`, `smartctl -a`, its cable",
        row,
    )


def _background(rows: Sequence[DeviceRow]) -> Sign | None:
    busy = max((r for r in rows if r.io_class in BACKGROUND), key=device_ns, default=None)
    if not busy:
        return None
    of_pool = [r for r in rows if r.pool == busy.pool]
    share = _share(of_pool, lambda r: r.io_class == busy.io_class, device_ns)
    if share < 0.1:
        return None
    return Sign(
        "background",
        share >= 0.3,
        f"{BACKGROUND[busy.io_class]} is active on {busy.pool}: {format_percent(share)} of the "
        "time at its devices",
        f"`zpool status {busy.pool}` says how far it is, and it can be paused",
        busy,
    )


def _flush(rows: Sequence[DeviceRow]) -> Sign | None:
    flush = max((r for r in rows if r.io_class == "flush"), key=device_ns, default=None)
    if not flush:
        return None
    share = _share(rows, lambda r: r.io_class == "flush", device_ns)
    if share < 0.4:
        return None
    return Sign(
        "flush",
        flush.device.p99 >= 20 * MS,
        f"cache flushes take {format_percent(share)} of the time at the devices (longest on "
        f"{flush.vdev}: p50 {format_time(flush.device.p50)}, p99 {format_time(flush.device.p99)})",
        "each fsync and each txg waits for one; a log device with power loss protection helps",
        flush,
    )


def _queue(rows: Sequence[DeviceRow]) -> Sign | None:
    queued = [r for r in rows if r.queue]
    longest = max(queued, key=_queue_ns, default=None)
    if not longest or not longest.queue:
        return None
    wait, work = sum(map(_queue_ns, queued)), sum(map(device_ns, queued))
    if wait <= work:
        return None
    return Sign(
        "queue",
        # that the writes of a txg sync queue is by design
        longest.io_class.startswith("sync_") and longest.queue.p99 >= 20 * MS,
        f"I/Os wait longer in ZFS's queue than they are at the device (most: {longest.io_class} on "
        f"{longest.vdev}, on average {format_time(longest.queue.mean)} and "
        f"{format_time(longest.device.mean)})",
        "the devices have more to do than they can; or zfs_vdev_*_max_active holds I/Os back that "
        "they could take: compare with the column active",
        longest,
    )


def _queue_ns(row: DeviceRow) -> int:
    return row.queue.mean * row.count if row.queue else 0


def _share(
    rows: Sequence[DeviceRow],
    wanted: Callable[[DeviceRow], bool],
    weight: Callable[[DeviceRow], int],
) -> float:
    return sum(weight(r) for r in rows if wanted(r)) / max(1, sum(map(weight, rows)))


def of_throttle(rows: Sequence[ThrottleRow]) -> list[Sign]:
    if not rows:
        return []
    total = sum(row.total_ns for row in rows)
    hard = sum(row.kinds["dirty_hard"].total_ns for row in rows)
    threads = total / max(1, rows[0].duration_ns)
    top = max(rows, key=lambda row: row.total_ns)
    if hard * 2 >= total > 0:
        worst = max(rows, key=lambda row: row.kinds["dirty_hard"].total_ns)
        return [
            Sign(
                "dirty_hard",
                True,
                f"writers are stopped at zfs_dirty_data_max ({worst.comm} {worst.pid} on "
                f"{worst.pool}, up to {format_time(worst.max)})",
                "the pool writes more slowly than the programs do",
                worst,
            )
        ]
    return [
        Sign(
            "delays",
            threads >= 0.1,
            f"writers are held up, {threads:.1f} at any time ({top.comm} {top.pid} on {top.pool}, "
            f"up to {format_time(top.max)})",
            "the pool writes more slowly than the programs do",
            top,
        )
    ]


def of_txg(rows: Sequence[Txg]) -> list[Sign]:
    signs = []
    longest = max(rows, key=lambda t: t.sync_ns or 0, default=None)
    if longest and (longest.sync_ns or 0) >= 5 * SECOND:
        signs.append(
            Sign(
                "long_sync",
                True,
                f"txg {longest.txg} of {longest.pool} took {format_time(longest.sync_ns or 0)} to "
                "sync",
                "what it wrote, and how fast, is in its line",
                longest,
            )
        )
    held = max(rows, key=lambda t: t.quiesce_ns or 0, default=None)
    if held and (held.quiesce_ns or 0) >= SECOND:
        signs.append(
            Sign(
                "long_quiesce",
                True,
                f"txg {held.txg} of {held.pool} quiesced for {format_time(held.quiesce_ns or 0)}",
                "a running transaction or a log block holds it open",
                held,
            )
        )
    return signs


def of_arc(rows: Sequence[ArcRow]) -> list[Sign]:
    signs = []
    for row in rows:
        if row.memory_throttle:
            signs.append(
                Sign(
                    "memory",
                    True,
                    "memory is short: the ARC held back writers "
                    f"{format_count(row.memory_throttle)} times",
                    "find what takes the memory",
                    row,
                )
            )
        if row.waits and row.wait_ns and row.wait_ns * 10 >= row.duration_ns:
            signs.append(
                Sign(
                    "eviction",
                    True,
                    f"{format_count(row.waits)} waits for room in the ARC, "
                    f"{format_time(row.wait_ns)} in all",
                    "eviction does not keep up with reads and writes",
                    row,
                )
            )
    return signs


def of_fsync(rows: Sequence[FsyncSummary]) -> list[Sign]:
    seen = [row for row in rows if row.dataset and row.latency and row.zil]
    slowest = max(seen, key=lambda row: row.latency.p99 if row.latency else 0, default=None)
    if not slowest or not slowest.latency or slowest.latency.p99 < 50 * MS:
        return []
    total = sum(stage.total_ns for stage in slowest.stages)
    top = max(slowest.stages, key=lambda stage: stage.total_ns)
    stage = stages.BY_NAME[top.name]
    return [
        Sign(
            "slow_fsync",
            True,
            f"fsyncs on {slowest.dataset} take up to {format_time(slowest.latency.p99)} (p99), "
            f"{format_percent(top.total_ns / max(1, total))} of it in `{top.name}`: "
            f"{stage.meaning}",
            stage.advice,
            slowest,
        )
    ]
