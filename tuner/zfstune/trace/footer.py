"""The last lines of every output: what was not measured."""

from __future__ import annotations

from collections.abc import Sequence

from zfstrace.types import Losses, Probe
from zfstune.term.table import Style, wrap
from zfstune.term.units import format_count

_DATASETS = (
    "datasets that found no room: summed in <others>; POOL or --dataset leaves room for fewer"
)


def footer(
    losses: Losses, probes: Sequence[Probe], style: Style, rest: str = _DATASETS
) -> list[str]:
    """What was not measured: in every output, also when nothing was lost. rest says of
    what there were too many for the tables of the kernel side."""
    detail = (
        f" (no room {losses.start}, missed {losses.missed}, slow events {losses.event})"
        if losses.lost
        else ""
    )
    text = f"lost {format_count(losses.lost)}{detail}"
    lines = [style.paint(text, "bad") if losses.lost else text]
    lines[0] += f"   unfinished {format_count(losses.unfinished)}"
    if losses.log_block:
        lines += wrap(
            f"{format_count(losses.log_block)} waits had an unknown log block: counted in `other`",
            "",
            style.width,
        )
    if losses.skipped:
        lines += wrap(
            f"{format_count(losses.skipped)} lock waits on this host were not seen: if in an "
            "fsync, `issuer_lock` is part of the stage around",
            "",
            style.width,
        )
    if losses.overflow:
        lines += wrap(
            f"{format_count(losses.overflow)} operations are of {rest}",
            "",
            style.width,
        )
    return lines + _missing_probes(probes, style)


def _missing_probes(probes: Sequence[Probe], style: Style) -> list[str]:
    """One sentence for each probe that is missing: what that costs, and why."""
    lines = []
    for probe in probes:
        if probe.missing:
            why = f" ({probe.why})" if probe.why else ""
            text = f"missing probe {probe.name}: {probe.cost or 'less detail'}{why}"
            lines += wrap(text, "", style.width)
    return lines or ["missing probes: none"]
