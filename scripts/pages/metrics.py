"""Writes the table of metrics of docs/operations.md from that of the exporter. Needs
PYTHONPATH=tuner:tracers."""

from __future__ import annotations

import re
from pathlib import Path

from zfstune.exporter.metrics import METRICS, Spec

PAGE = Path(__file__).parents[2] / "docs/operations.md"
BEGIN, END = "<!-- metrics:begin -->\n", "<!-- metrics:end -->\n"


def rendered(page: str) -> str:
    """The page with its table replaced by the current one. Raises ValueError if the marks are
    missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError("the marks of the table are missing")
    return head + begin + "".join(f"{line}\n" for line in table()) + end + tail


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


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
