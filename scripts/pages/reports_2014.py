"""docs/measurements/reports-2014.md, from runs of the scenario "reports". Prints it:
`python3 scripts/pages/reports_2014.py RESULTS...`"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

DEVICE = ("log_write", "flush")
_SAME = 1.25
# What the split is shown for: one writer, one write, each on the same virtual device.
SPLIT = (("flash", "fdatasync"), ("flash", "fsync"), ("slog", "fdatasync"), ("zvol", "fdatasync"))

_HEAD = """\
# A report of 2014, measured again: tables

Written by `make bench-reports`, which runs `zfstune bench --matrix reports-2014` in the lab.
[The page on this report](../reports-2014.md) says how far these numbers carry. x is the ratio to
the first row that has a reported number. Each test ran once, for {duration}."""


def page(results: Sequence[Json]) -> str:
    """The whole page; each of the results is from one flavour."""
    lines = [_HEAD.format(duration=results[0]["duration"]), "", *_split(results)]
    for result in results:
        lines += ["", *_flavour(result)]
    words = {row["label"]: row["words"] for result in results for row in result["rows"]}
    lines += ["", "## What the report says in words", ""]
    lines += [f"* {label}: {said}" for label, said in words.items() if said]
    return "\n".join(lines) + "\n"


def _name(result: Json) -> str:
    return f"ZFS {result['zfs']}, kernel {result['uname']}"


def stages(test: Json) -> dict[str, int]:
    """Time in ns of one fsync, by stage, the mean."""
    fsync = test["fsync"]
    if not fsync or not fsync["count"]:
        return {}
    return {s["name"]: s["total_ns"] / fsync["count"] for s in fsync["stages"] if s["total_ns"]}


def own_ns(test: Json) -> tuple[float, float] | None:
    """The mean of one fsync: ZFS's part (everything but the device's), and the whole."""
    times = stages(test)
    if not times:
        return None
    total = sum(times.values())
    return total - sum(times.get(name, 0) for name in DEVICE), total


def find(result: Json, row: str, test: str) -> Json | None:
    for one in result["rows"]:
        if one["row"] == row:
            for measured in one["tests"]:
                if measured["test"] == test:
                    return dict(measured)
    return None


def _split(results: Sequence[Json]) -> list[str]:
    lines = [
        "## ZFS's own part of an fsync",
        "",
        "ZFS's own part is every stage but `log_write` and `flush`, in which the device works.",
        "Times are means of one 8 kB fsync by one thread. Those two stages begin and end in ZFS,",
        "whose threads need the processor to start a write and to notice its end; the raw device",
        "(fio's fdatasync on the same disk without ZFS) shows how much that adds.",
        "",
        "| setup | ZFS | fsyncs | mean | device stages | ZFS's own | share | its largest stages "
        "| raw device |",
        "|---|---|---:|---:|---:|---:|---:|---|---:|",
    ]
    for row, name in SPLIT:
        for result in results:
            test = find(result, row, name)
            parts = own_ns(test) if test else None
            if not test or not parts:
                continue
            own, total = parts
            times = {k: v for k, v in stages(test).items() if k not in DEVICE}
            largest = sorted(times, key=lambda stage: -times[stage])[:3]
            cells = [
                f"{_label(result, row)}, {name}",
                result["zfs"],
                f"{test['fsync']['count']:,}",
                _us(total),
                _us(total - own),
                _us(own),
                _percent(own / total),
                ", ".join(f"`{stage}` {_us(times[stage])}" for stage in largest),
                _raw(result, row),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _raw(result: Json, row: str) -> str:
    """The mean time of a flushed write on the device below the row's log."""
    per_s = next(one["device_per_s"] for one in result["rows"] if one["row"] == row)
    return _us(1e9 / per_s) if per_s else ""


def _label(result: Json, row: str) -> str:
    return str(next(one["label"] for one in result["rows"] if one["row"] == row))


def _us(ns: float) -> str:
    return f"{ns / 1000:,.0f} µs"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _flavour(result: Json) -> list[str]:
    lines = [f"## {_name(result)}", "", *_table(result)]
    failed = [row for row in result["rows"] if row["failed"]]
    if failed:
        lines += ["", "Not measured to the end:", ""]
        lines += [f"* {row['label']}: {row['failed']}" for row in failed]
    return [*lines, "", *_orders(result)]


def _rates(result: Json, kind: str) -> dict[tuple[str, str], float]:
    found = {}
    for row in result["rows"]:
        if kind == "reported":
            found.update({(row["row"], name): value for name, value in row["reported"].items()})
        else:
            found.update({(row["row"], t["test"]): t["per_s"] for t in row["tests"]})
    return found


def _table(result: Json) -> list[str]:
    measured, reported = _rates(result, "measured"), _rates(result, "reported")
    first = result["matrix"]["first"] if result["matrix"] else None
    lines = [
        "| setup | test | measured | x | reported | x | of the device | largest stages |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in result["rows"]:
        for number, test in enumerate(row["tests"]):
            name = test["test"]
            key, base = (row["row"], name), (str(first), name)
            limit = row["device_per_s"] if name == "fdatasync" else None
            cells = [
                "" if number else row["label"],
                name,
                _rate(measured[key]),
                _times(measured[key], measured.get(base)),
                _rate(reported.get(key)),
                _times(reported.get(key), reported.get(base)),
                _percent(test["per_s"] / limit) if limit else "",
                largest(test["shares"]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}/s"


def _times(value: float | None, base: float | None) -> str:
    if not value or not base:
        return ""
    ratio = value / base
    return f"{ratio:.1f}" if ratio >= 9.95 else f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.3f}"


def largest(shares: dict[str, float], number: int = 3) -> str:
    """``flush 93 %, issue 4 %``."""
    parts = [f"{name} {_percent(share)}" for name, share in list(shares.items())[:number]]
    return ", ".join(part for part in parts if not part.endswith(" 0 %"))


def _orders(result: Json) -> list[str]:
    pairs = result["matrix"]["pairs"] if result["matrix"] else []
    wrong = [pair for pair in pairs if not pair["agrees"]]
    # where the report sees no difference, a run of seconds may well do
    apart = [pair for pair in wrong if pair["reported"] >= _SAME]
    apart.sort(key=lambda pair: pair["measured"] / pair["reported"])
    lines = [
        f"{len(pairs) - len(wrong)} of {len(pairs)} pairs of rows are in the order of the report; "
        f"rates less than 25 % apart count as the same. In {len(wrong) - len(apart)} of the others "
        f"the report sees no difference.{_again(result)}"
    ]
    if apart:
        lines += ["", "Those in which it does, with the stages of both here:", ""]
        lines += [
            "| test | faster in the report | than | reported | here | stages of the first | of the "
            "second |",
            "|---|---|---|---:|---:|---|---|",
        ]
    for pair in apart:
        found = [find(result, pair[which], pair["test"]) for which in ("one", "other")]
        shown = [largest(test["shares"], 2) if test else "" for test in found]
        cells = [
            pair["test"],
            _label(result, pair["one"]),
            _label(result, pair["other"]),
            _times(pair["reported"], 1),
            _times(pair["measured"], 1),
            *shown,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _again(result: Json) -> str:
    """A sentence on how much runs differ."""
    measured = _rates(result, "measured")
    ratios = [
        f"{name} {_times(value, measured.get(('slog', name)))}"
        for (row, name), value in measured.items()
        if row == "slog-again" and ("slog", name) in measured
    ]
    if not ratios:
        return ""
    return f" The first row, measured again as the last one, against itself: {', '.join(ratios)}."


if __name__ == "__main__":
    print(page([json.loads(Path(name).read_text()) for name in sys.argv[1:]]), end="")
