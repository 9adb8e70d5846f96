"""What stands out in a measurement: the facts of each view, judged by signs.toml, and the sign to
look at first."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from zfstrace import stages
from zfstrace.arc import ArcRow
from zfstrace.device import BACKGROUND, DeviceRow, against_siblings, device_ns
from zfstrace.printable import printable
from zfstrace.throttle import ThrottleRow
from zfstrace.txg import Txg
from zfstrace.types import FsyncSummary
from zfstune.rules import data as rule_data
from zfstune.rules import language, thresholds
from zfstune.rules.language import Fact
from zfstune.term.units import format_count, format_percent, format_time

# Facts, and the row that they describe.
Evidence = tuple[Mapping[str, Fact], object]


@dataclass(frozen=True)
class SignRule:
    """An entry of signs.toml, which explains the fields."""

    name: str
    when: str
    urgent: str
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Sign:
    """text and advice are parts of a sentence. urgent: worth a look even if everything seems well;
    row is the one that shows it."""

    name: str
    urgent: bool
    text: str
    advice: str = ""
    row: object = None

    @property
    def sentence(self) -> str:
        parts = [f"{self.text[:1].upper()}{self.text[1:]}", self.advice]
        return f"{'; '.join(part for part in parts if part)}."


@functools.cache
def sign_rules() -> Mapping[str, SignRule]:
    """The rules by name, from cause to effect."""
    data = rule_data.read(__package__, "signs")
    return {entry["name"]: SignRule(**entry) for entry in data["sign"]}


def first(signs: Iterable[Sign]) -> Sign | None:
    """The sign to look at first: the urgent one nearest to the cause; None without urgent ones."""
    order = list(sign_rules())
    return min((s for s in signs if s.urgent), key=lambda s: order.index(s.name), default=None)


def of_device(rows: Sequence[DeviceRow]) -> list[Sign]:
    """The signs of one or more pools, at most one of each kind: the strongest."""
    return _judged(
        slow_vdev=_siblings(rows),
        background=_background(rows),
        flush=_flush(rows),
        queue=_queue(rows),
    )


def of_throttle(rows: Sequence[ThrottleRow]) -> list[Sign]:
    """Writers stopped at the hard limit, or else delayed."""
    if not rows:
        return []
    total = sum(row.total_ns for row in rows)
    duration = max(1, rows[0].duration_ns)
    shared: dict[str, Fact] = {
        "hard_permille": _permille(sum(_hard_ns(row) for row in rows), total),
        "throttled_permille": _permille(total, duration),
        "threads": f"{total / duration:.1f}",
    }

    def evidence(row: ThrottleRow) -> list[Evidence]:
        program = f"{row.comm} {row.pid}"
        return [({**shared, "program": program, "pool": row.pool, "max_ns": row.max}, row)]

    return _judged(
        dirty_hard=evidence(max(rows, key=_hard_ns)),
        delays=evidence(max(rows, key=lambda row: row.total_ns)),
    )


def of_txg(rows: Sequence[Txg]) -> list[Sign]:
    """The longest sync and the longest quiesce."""

    def longest(name: str) -> list[Evidence]:
        known = [(ns, row) for row in rows if (ns := getattr(row, name)) is not None]
        ns, row = max(known, key=lambda one: one[0], default=(0, None))
        return [({"txg": str(row.txg), "pool": row.pool, name: ns}, row)] if row else []

    return _judged(long_sync=longest("sync_ns"), long_quiesce=longest("quiesce_ns"))


def of_arc(rows: Sequence[ArcRow]) -> list[Sign]:
    """Writers delayed for lack of memory, and waits for eviction."""
    waits: list[Evidence] = [
        (
            {
                "waits": row.waits,
                "wait_ns": row.wait_ns,
                "waiting_permille": _permille(row.wait_ns, row.duration_ns),
            },
            row,
        )
        for row in rows
        if row.waits is not None and row.wait_ns is not None
    ]
    memory: list[Evidence] = [({"memory_throttle": row.memory_throttle}, row) for row in rows]
    return _judged(memory=memory, eviction=waits)


def of_fsync(rows: Sequence[FsyncSummary]) -> list[Sign]:
    """The dataset with the slowest fsyncs."""
    seen = [(r.latency.p99, r) for r in rows if r.dataset and r.latency and r.zil]
    if not seen:
        return []
    p99_ns, slowest = max(seen, key=lambda one: one[0])
    top = max(slowest.stages, key=lambda stage: stage.total_ns)
    facts: dict[str, Fact] = {
        "dataset": slowest.dataset or "",
        "p99_ns": p99_ns,
        "share": _share(top.total_ns, sum(stage.total_ns for stage in slowest.stages)),
        "stage": top.name,
        "meaning": stages.BY_NAME[top.name].meaning,
    }
    return _judged(slow_fsync=[(facts, slowest)])


def _judged(**found: Sequence[Evidence]) -> list[Sign]:
    """The signs that hold, one of each kind: evidence comes with the strongest first."""
    signs = []
    for name, evidence in found.items():
        rule = sign_rules()[name]
        for own, row in evidence:
            facts = {**thresholds.values(), **own}
            if language.holds(rule.when, facts):
                urgent = language.holds(rule.urgent, facts)
                signs.append(
                    Sign(name, urgent, _filled(rule.text, own), _filled(rule.advice, own), row)
                )
                break
    return signs


def _filled(text: str, facts: Mapping[str, Fact]) -> str:
    return text.format(**{name: _shown(name, fact) for name, fact in facts.items()})


def _shown(name: str, fact: Fact) -> str:
    if isinstance(fact, str):
        return printable(fact)
    return format_time(fact) if name.endswith("_ns") else format_count(fact)


# --- facts of devices


def _siblings(rows: Sequence[DeviceRow]) -> list[Evidence]:
    return [
        (
            {
                "vdev": row.vdev,
                "pool": row.pool,
                "io_class": row.io_class,
                "times": f"{times:.0f}",
                "p50_ns": row.device.p50,
                "siblings_p50_ns": others_ns,
            },
            row,
        )
        for times, row, others_ns in against_siblings(rows)
    ]


def _background(rows: Sequence[DeviceRow]) -> list[Evidence]:
    busy = max((r for r in rows if r.io_class in BACKGROUND), key=device_ns, default=None)
    if not busy:
        return []
    of_pool = [r for r in rows if r.pool == busy.pool]
    own, whole = _sum_ns(of_pool, busy.io_class), _sum_ns(of_pool)
    facts: dict[str, Fact] = {
        "background": BACKGROUND[busy.io_class],
        "pool": busy.pool,
        "share": _share(own, whole),
        "share_permille": _permille(own, whole),
    }
    return [(facts, busy)]


def _flush(rows: Sequence[DeviceRow]) -> list[Evidence]:
    flush = max((r for r in rows if r.io_class == "flush"), key=device_ns, default=None)
    if not flush:
        return []
    own, whole = _sum_ns(rows, "flush"), _sum_ns(rows)
    facts: dict[str, Fact] = {
        "vdev": flush.vdev,
        "p50_ns": flush.device.p50,
        "p99_ns": flush.device.p99,
        "share": _share(own, whole),
        "share_permille": _permille(own, whole),
    }
    return [(facts, flush)]


def _queue(rows: Sequence[DeviceRow]) -> list[Evidence]:
    queued = [(row.queue.mean * row.count, row) for row in rows if row.queue]
    if not queued:
        return []
    _, longest = max(queued, key=lambda one: one[0])
    assert longest.queue
    facts: dict[str, Fact] = {
        "queue_ns": sum(ns for ns, _ in queued),
        "device_ns": sum(device_ns(row) for _, row in queued),
        "io_class": longest.io_class,
        "vdev": longest.vdev,
        "queue_mean_ns": longest.queue.mean,
        "queue_p99_ns": longest.queue.p99,
        "device_mean_ns": longest.device.mean,
    }
    return [(facts, longest)]


def _sum_ns(rows: Sequence[DeviceRow], io_class: str | None = None) -> int:
    return sum(device_ns(row) for row in rows if io_class in (None, row.io_class))


def _hard_ns(row: ThrottleRow) -> int:
    return row.kinds["dirty_hard"].total_ns


def _permille(part: int, whole: int) -> int:
    return 1000 * part // max(1, whole)


def _share(part: int, whole: int) -> str:
    return format_percent(part / max(1, whole))
