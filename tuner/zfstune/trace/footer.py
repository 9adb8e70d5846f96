"""The last lines of every output: what was not measured."""

from __future__ import annotations

from collections.abc import Sequence

from zfstrace.types import Losses, Probe
from zfstune.term.table import Style, wrap
from zfstune.term.units import format_count

_DATASETS = "datasets that found no room, summed in <others>; select fewer with POOL or --dataset"


def footer(
    losses: Losses, probes: Sequence[Probe], style: Style, rest: str = _DATASETS
) -> list[str]:
    """What was not measured: in every output, also when nothing was lost. rest names what
    overflowed the tables in the kernel, and the remedy."""
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
            f"{format_count(losses.skipped)} lock waits on this host were not seen: any inside an "
            "fsync count in the enclosing stage, not in `issuer_lock`",
            "",
            style.width,
        )
    if losses.overflow:
        lines += wrap(
            f"{format_count(losses.overflow)} operations of {rest}",
            "",
            style.width,
        )
    return lines + _missing_probes(probes, style)


def _missing_probes(probes: Sequence[Probe], style: Style) -> list[str]:
    """For each missing probe one sentence: its cost and the reason."""
    lines = []
    for probe in probes:
        if probe.missing:
            why = f" ({probe.why})" if probe.why else ""
            text = f"missing probe {probe.name}: {probe.cost or 'less detail'}{why}"
            lines += wrap(text, "", style.width)
    return lines or ["missing probes: none"]
