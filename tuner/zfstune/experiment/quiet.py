"""The first phase of a session: blocks without any change. Their scatter is the noise, and the load
shows how long a block has to be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from zfstune.errors import NotPossible
from zfstune.experiment import lengths, statistics
from zfstune.experiment.judging import Judge, noise
from zfstune.experiment.objective import THROUGHPUT
from zfstune.experiment.runner import BlockPlan, Experiment, Record, too_few
from zfstune.term.units import format_time

# At least two pairs; more for a minute of them, in which the rhythm of most loads shows, as far as
# a part of the budget goes
_PAIRS, _LEAST_S, _SHARE = 2, 60.0, 0.1
_ORDER = "ABBA"
# So many of the shortest proofs must fit into the time that is left when blocks get longer
_PROOFS = 1.5


def measure(
    experiment: Experiment, baseline: Mapping[str, int], judge: Judge, left_s: float, observe: bool
) -> list[Record]:
    """The blocks, with labels as if they were pairs. Sets the length of further blocks, and the
    judge's noises. observe: the load is not the session's own. Raises NotPossible if they have too
    little to judge, and what block() does."""
    end_s = experiment.now_s() + left_s
    records = [experiment.block("aa", None, "A", baseline)]
    _say(experiment, records[0])
    # without it they would be extended by their own length, and take longer
    _lengthen(experiment, lengths.for_fsyncs(experiment.plan, records[0].block), "for its fsyncs")
    _require(experiment, judge, records, observe)
    if records[0].block.seconds < experiment.plan.seconds:
        records = []
    wanted_s = min(_LEAST_S, _SHARE * left_s)
    pairs = max(_PAIRS, int(wanted_s / (2 * experiment.plan.seconds)))
    for label in (_ORDER * pairs)[len(records) : 2 * pairs]:
        records.append(experiment.block("aa", None, label, baseline))
    _require(experiment, judge, records, observe)
    judge.quiet(records)
    _keep_rhythm(experiment, judge, end_s - experiment.now_s())
    return records


def _lengthen(experiment: Experiment, plan: BlockPlan, why: str) -> None:
    if plan.seconds != experiment.plan.seconds:
        experiment.plan = plan
        experiment.progress.line(f"a block takes {plan.seconds:g} s here, {why}")


def _keep_rhythm(experiment: Experiment, judge: Judge, left_s: float) -> None:
    """Blocks of whole periods of the load, if they are not too long for that. Others can be judged
    as well: what they hold of a burst is noise, which was measured."""
    plan, meter = experiment.plan, experiment.meter
    period_s = lengths.period(meter.accepted())
    longer = lengths.for_period(plan, period_s)
    if longer is plan:
        return
    repeats = f"the load repeats every {period_s:g} s"
    kept = f"{repeats}, and a block of {plan.seconds:g} s holds now more, now less of it:"
    if longer is None:
        experiment.progress.line(f"{kept} use --block {period_s:g}s for steadier ones")
        return
    if longer.seconds > plan.seconds and not _room(experiment, longer.seconds, left_s):
        experiment.progress.line(
            f"{kept} a longer --budget would have time for blocks of {longer.seconds:g} s"
        )
        return
    _lengthen(experiment, longer, f"since {repeats}")
    # bursts are written by the clock, a full disk by its txgs
    whole = lengths.parts(meter.accepted(), longer.seconds)
    by_clock = noise([math.log(b / a) for a, b in zip(whole, whole[1:]) if a > 0 and b > 0])
    if by_clock < judge.noises.get(THROUGHPUT, 0.0) / 2:
        meter.periodic = True
        judge.noises[THROUGHPUT] = by_clock


def _room(experiment: Experiment, block_s: float, left_s: float) -> bool:
    """Whether blocks of this length leave time for a proof, and something to prove."""
    pairs = statistics.fewest_pairs(statistics.ALPHA)
    return _PROOFS * pairs * 2 * (block_s + experiment.settle_s()) <= left_s


def _require(
    experiment: Experiment, judge: Judge, records: Sequence[Record], observe: bool
) -> None:
    """Raises NotPossible when a record has too little to judge."""
    reason = too_few(experiment.plan, records)
    try:
        for record in records:
            judge.cost(record)
    except ValueError as error:
        reason = reason or str(error)
    if reason:
        load = "load" if observe else "workload"
        raise NotPossible(
            reason, f"use a longer --block, a heavier {load}, or --objective fsync.mean"
        )


def _say(experiment: Experiment, record: Record) -> None:
    p99 = record.block.metrics.get("fsync.p99")
    experiment.progress.line(
        f"{record.block.fsyncs} fsyncs in {record.block.seconds:.0f} s, "
        f"p99 {format_time(round(p99)) if p99 else 'unknown'}"
    )
