"""What the memory of a trace gains in a day, from samples of some hours (tests/lab/guest/weeks.py),
and the page about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import mean

from lab.rows import Json
from lab.slopes import slope

DAY_S, MIB, KIB = 86400, 1 << 20, 1 << 10
# After the module was loaded again: until the windows of the estimates are there, and each dataset
# has been seen
WARM_S = 1200
# Samples follow from those before; means of so long hardly
BLOCK_S = 300
# Shorter runs say nothing about a day
LEAST_S = 3600
# What each may gain in a day, with a confidence of 95 %, and what two hours can tell: a page for
# each window, which come three times as often here as by default
DAY_LIMITS = {"the process": 16 << 20, "tables in the kernel": 1 << 20}
# What a dataset takes that was not seen before: 117 KiB of stages, 29 of commits, and as much of
# Python. The library distinguishes so many.
DATASET_KIB, MOST_DATASETS = 300, 1023
HAPPENED = {
    "datasets": "a dataset was created, or unmounted and mounted",
    "cpu": "a CPU was taken offline and back",
    "pools": "a pool was exported and imported",
    "reload": "the module was unloaded and loaded",
}
HEAD = """\
# A light trace for weeks

Written by `make test-weeks` on {date}: `zfstune trace fsync --light` beside two threads that
write 8 kB and fsync, for {minutes:.0f} minutes, in a guest of the lab; kernel {kernel}, ZFS {zfs}.
"""
FOOT = """

The interval is that of the slope by least squares, of means of {block} minutes; the first {warm}
minutes after the module was loaded again are left out. The same datasets came and went. Each that
the trace has not seen before takes {each:.0f} KiB of the process, and of those it distinguishes
{most:,}: at most {mib:.0f} MiB.
"""


def blocks(weeks: Json) -> list[Json]:
    """The means of the samples after the warm-up, in bytes."""
    samples = weeks["samples"]
    end = samples[-1]["seconds"]
    begin = min(weeks["reloaded"] + WARM_S, (weeks["reloaded"] + end) / 2)
    found: dict[int, list[Json]] = {}
    for one in samples:
        if one["seconds"] >= begin:
            found.setdefault(int(one["seconds"] // BLOCK_S), []).append(one)
    return [
        {
            "seconds": mean(one["seconds"] for one in block),
            "the process": mean(one["rss_kib"] * KIB for one in block),
            "tables in the kernel": mean(one["maps"] for one in block),
        }
        for block in found.values()
    ]


def per_day(warm: Sequence[Json], what: str) -> tuple[float, float] | None:
    """What is gained in a day, in bytes, with its interval of 95 %; None if that is not known."""
    if len(warm) < 3 or warm[-1]["seconds"] - warm[0]["seconds"] < LEAST_S - BLOCK_S:
        return None
    low, high = slope([one["seconds"] for one in warm], [one[what] for one in warm])
    return low * DAY_S, high * DAY_S


def for_a_dataset(weeks: Json) -> float:
    """KiB of the process for a dataset that it has not seen before."""
    new = weeks["new"]
    gained: float = new["after"]["rss_kib"] - new["before"]["rss_kib"]
    return gained / float(new["datasets"])


def page(weeks: Json) -> str:
    lines = ["", "| what happened | times |", "|---|---|"]
    lines += [f"| {text} | {weeks['done'].get(name, 0)} |" for name, text in HAPPENED.items()]
    lines += [f"| ZFS counted a commit | {weeks['kstat']:,} |", ""]
    warm = blocks(weeks)
    lines += [
        "| memory | at first | at last | gained in a day, 95 % | limit |",
        "|---|---|---|---|---|",
    ]
    for what, limit in DAY_LIMITS.items():
        gained = per_day(warm, what)
        ends = "not known" if gained is None else " to ".join(f"{x / MIB:+.2f} MiB" for x in gained)
        values = " | ".join(f"{one[what] / MIB:.2f} MiB" for one in (warm[0], warm[-1]))
        lines.append(f"| {what} | {values} | {ends} | {limit / MIB:.0f} MiB |")
    each = for_a_dataset(weeks)
    head = HEAD.format(
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        minutes=weeks["samples"][-1]["seconds"] / 60,
        kernel=weeks["uname"],
        zfs=weeks["zfs"],
    )
    foot = FOOT.format(
        block=BLOCK_S // 60,
        warm=WARM_S // 60,
        each=each,
        most=MOST_DATASETS,
        mib=max(0.0, each) * MOST_DATASETS * KIB / MIB,
    )
    return head + "\n".join(lines) + foot


def too_much(weeks: Json) -> list[str]:
    """What has gained more than it may: in a day, or in a run that is too short to tell."""
    warm, found = blocks(weeks), []
    for what, limit in DAY_LIMITS.items():
        gained = per_day(warm, what)
        high = warm[-1][what] - warm[0][what] if gained is None else gained[1]
        if high > (MIB if gained is None else limit):
            found.append(what)
    return found
