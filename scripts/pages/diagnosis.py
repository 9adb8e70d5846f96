"""docs/measurements/diagnosis.md, from runs of the scenario "diagnose": what was injected, against
what was found. Prints it: `PYTHONPATH=tuner:tracers python3 scripts/pages/diagnosis.py RESULTS...`
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zfstune.diagnose import causes

Json = dict[str, Any]

# Scenarios in which no cause may be named.
WELL = ("healthy", "healthy_log", "idle")

_HEAD = """\
# How often the diagnosis is right

Each cause that the lab can reproduce was injected (column *runs*: how often, each time with
different parameters), and `zfstune diagnose` was run. `make test-diagnose` runs the scenarios of
`tests/lab/guest/diagnose.py` (on FreeBSD `freebsd_diagnose.py`), five times each, and writes this
page; tables with fewer runs come from a shorter test. Rows are the injected cause, columns the
cause named first. A run is right if the injected cause came first, or a consequence of it that the
scenario lists in advance; on a healthy pool, if no cause was named."""

_RECORDED = """\
Each cause was there once more, nobody asked, and `zfstune record run` ran. When all was over and
ZFS unloaded, `zfstune diagnose --from FILE --at TIME` was asked for the time of each cause. The
recorder watches for ten seconds, the runs above took 20 to 40."""


def found_first(run: Json) -> str:
    """The id of the first cause; the verdict when there is none."""
    one = run["diagnosis"]
    if one is None:
        return "no output"
    causes = one["causes"]
    return str(causes[0]["id"] if causes else one["verdict"])


def right(run: Json) -> bool:
    """Whether the injected cause came first, or none where none was injected."""
    if run["diagnosis"] is None:
        return False
    found = [cause["id"] for cause in run["diagnosis"]["causes"]]
    if run["scenario"] in WELL and not found:
        return True
    return bool(found) and found[0] in run["first"] and set(run["among"]) <= set(found)


def accused(run: Json) -> list[str]:
    """The causes of fsync times that were named on a pool that is well."""
    if run["scenario"] not in WELL or run["diagnosis"] is None:
        return []
    return [c["id"] for c in run["diagnosis"]["causes"] if c["id"] not in run["first"]]


def rate(runs: Sequence[Json]) -> float:
    """The part of the runs that are right; 0 without any."""
    return sum(map(right, runs)) / len(runs) if runs else 0.0


def page(results: Sequence[Json]) -> str:
    """Each of the results is from one flavour."""
    lines = [_HEAD]
    for result in results:
        lines += ["", *_flavour(result)]
    lines += ["", *_not_produced()]
    return "\n".join(lines) + "\n"


def _not_produced() -> list[str]:
    return [
        "## Causes that the lab does not reproduce",
        "",
        "| cause | why not |",
        "|---|---|",
        *(
            f"| {cause.title} (`{cause.id}`) | {cause.not_produced} |"
            for cause in causes.load()
            if cause.not_produced
        ),
    ]


def _flavour(result: Json) -> list[str]:
    lines = [
        f"## ZFS {result['zfs']}, kernel {result['uname']}",
        "",
        f"{result['date']}, {result['cpus']} emulated CPUs, disks in files.",
        *_judged(result["runs"]),
    ]
    for name, why in result["failed"].items():
        reason = textwrap.shorten(why, 200, placeholder=" ...")
        lines += ["", f"The scenario `{name}` failed in the lab: {reason}"]
    if "recorded" in result:
        lines += ["", "### From a file of the recorder", "", _RECORDED]
        lines += _judged(result["recorded"])
    return lines


def _judged(runs: Sequence[Json]) -> list[str]:
    wrong = [run for run in runs if not right(run)]
    good = len(runs) - len(wrong)
    lines = [
        f"Right in {good} of {len(runs)} runs ({100 * rate(runs):.0f} %); a cause was named on a "
        f"healthy pool in {sum(bool(accused(run)) for run in runs)} runs.",
        "",
        *_matrix(runs),
    ]
    if wrong:
        lines += ["", "Not right:", "", *map(_line, wrong)]
    return lines


def _matrix(runs: Sequence[Json]) -> list[str]:
    names = list(dict.fromkeys(run["scenario"] for run in runs))
    counts = Counter((run["scenario"], found_first(run)) for run in runs)
    columns = list(dict.fromkeys(found_first(run) for run in runs))
    lines = [
        f"| injected | runs | right | {' | '.join(f'`{name}`' for name in columns)} |",
        "|---|" + "---:|" * (2 + len(columns)),
    ]
    for name in names:
        mine = [run for run in runs if run["scenario"] == name]
        cells = [str(counts[name, column] or "") for column in columns]
        lines.append(f"| {name} | {len(mine)} | {sum(map(right, mine))} | {' | '.join(cells)} |")
    return lines


def _line(run: Json) -> str:
    numbers = ", ".join(f"{name} {value}" for name, value in run["numbers"].items())
    causes = run["diagnosis"]["causes"] if run["diagnosis"] else []
    shares = ", ".join(f"{c['id']} {_percent(c['share_p99'])}" for c in causes)
    return f"* {run['scenario']} ({numbers}): {shares or found_first(run)}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


if __name__ == "__main__":
    print(page([json.loads(Path(name).read_text()) for name in sys.argv[1:]]), end="")
