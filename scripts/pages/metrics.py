"""Writes the tables of metrics, of series, and of what these take on 500 hosts into
docs/operations.md, from the table of the exporter. Needs PYTHONPATH=tracers:tuner."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

from zfstrace.stages import KINDS, NAMES
from zfstrace.throttle import KINDS as LIMITS
from zfstrace.txg import REASONS
from zfstune.exporter.collector import PARTS
from zfstune.exporter.families import LE
from zfstune.exporter.metrics import HISTOGRAM, KSTAT, METRICS, SELF, Spec
from zfstune.exporter.parameters import MOST
from zfstune.exporter.server import ERRORS
from zfstune.record.args import DEFAULT_VIEWS

PAGE = Path(__file__).parents[2] / "docs/operations.md"
BEGIN, END = "<!-- metrics:begin -->\n", "<!-- metrics:end -->\n"

HOSTS, DAY_S = 500, 86400
# Between the 1 and 2 that Prometheus names
SAMPLE_BYTES = 1.5

# How many values a label has on a host where all is well; 1 for what rows are counted by
_VALUES = {
    **dict.fromkeys(("abi", "class", "dataset", "kernel", "pool", "state", "vdev", "version"), 1),
    "bound": 3,
    "by": 2,
    "cache": 2,
    "counter": 20,  # in OpenZFS 2.3
    "how": 2,
    "kind": len(KINDS),
    "limit": len(LIMITS),
    "name": MOST,
    "phase": 4,
    "reason": len(REASONS),
    "stage": len(NAMES),
    "view": len(DEFAULT_VIEWS),
    "what": len((*PARTS, *DEFAULT_VIEWS, *ERRORS, "recorder")),
    "why": 0,
    "zfs": 1,
}
# What a label means in one metric
_OWN = {
    ("zfstune_parameter_changed", "name"): 0,
    ("zfstune_trace_lost_total", "reason"): 7,
}
# What rows are counted by, beside the host itself, the narrowest first
BY = ("vdev", "dataset", "pool")
_ALWAYS = (*DEFAULT_VIEWS, KSTAT, SELF)


def series(by: str, *views: str) -> int:
    """The series of these views for each vdev and class, dataset or pool, or those that a host has
    beside them (""). by is the narrowest label that they have of BY."""
    return sum(
        _size(spec)
        for spec in METRICS.values()
        if spec.view in views and next((one for one in BY if one in spec.labels), "") == by
    )


def _size(spec: Spec) -> int:
    values = prod(_OWN.get((spec.name, label), _VALUES[label]) for label in spec.labels)
    # with its sum and its count
    return values * (len(LE) + 2 if spec.type == HISTOGRAM else 1)


def host(datasets: int) -> int:
    """The series of a host with one pool, and of so many datasets."""
    return sum(series(by, *_ALWAYS) for by in ("", "pool")) + datasets * series("dataset", *_ALWAYS)


def table() -> list[str]:
    return [
        "| metric | type | labels | view | |",
        "|---|---|---|---|---|",
        *(_row(spec) for spec in METRICS.values()),
    ]


def _row(spec: Spec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels)
    # names of parameters and kstats, as code
    says = re.sub(r"(?<![`\w])(\w*_\w*|sync=\w+)\b(?!`)", r"`\1`", spec.help)
    return f"| `{spec.name}` | {spec.type} | {labels} | {spec.view} | {says} |"


def series_table() -> list[str]:
    rows = {
        "a host with one pool": host(0),
        "each dataset with series of its own, and the sum of the others": series(
            "dataset", *_ALWAYS
        ),
        "each further pool": series("pool", *_ALWAYS),
        "`--views fsync`: each dataset": series("dataset", "fsync"),
        "`--views fsync`: each pool": series("pool", "fsync"),
        "`--views device`: each vdev and class of I/O": series("vdev", "device"),
        "`--views read`: each dataset": series("dataset", "read"),
    }
    return ["| | series |", "|---|---:|", *(f"| {of} | {_about(n)} |" for of, n in rows.items())]


def fleet_table() -> list[str]:
    rows = {
        "`--max-datasets 8`": (8, 15),
        "`--max-datasets 16`, the default": (16, 15),
        "the default, `scrape_interval: 60s`": (16, 60),
    }
    return [
        f"| {HOSTS} hosts with one pool | series | samples/s | disk for 15 days | for 90 days |",
        "|---|---:|---:|---:|---:|",
        *(f"| {what} | {_fleet(*numbers)} |" for what, numbers in rows.items()),
    ]


def _fleet(most_datasets: int, every_s: int) -> str:
    # one more for the others
    found = HOSTS * host(most_datasets + 1)
    rate = found / every_s
    disk = (f"{_about(rate * DAY_S * days * SAMPLE_BYTES / 1e9)} GB" for days in (15, 90))
    return " | ".join((_about(found), _about(rate), *disk))


def _about(number: float) -> str:
    """To two digits: hosts have some more or less."""
    return f"{float(f'{number:.2g}'):,.0f}"


TABLES = {"metrics": table, "series": series_table, "fleet": fleet_table}
_MARKED = re.compile(rf"(<!-- ({'|'.join(TABLES)}):begin -->\n).*?(<!-- \2:end -->\n)", re.DOTALL)


def rendered(page: str) -> str:
    """The page with its tables replaced by the current ones. Raises ValueError if the marks are
    missing."""
    if not _MARKED.search(page):
        raise ValueError("the marks of the tables are missing")
    return _MARKED.sub(
        lambda found: found[1] + "".join(f"{line}\n" for line in TABLES[found[2]]()) + found[3],
        page,
    )


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
