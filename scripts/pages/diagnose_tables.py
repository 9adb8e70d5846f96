"""Writes the tables of docs/tools/zfstune-diagnose.md from the causes and thresholds. Needs
PYTHONPATH=tuner:tracers."""

from __future__ import annotations

import re
from pathlib import Path

from zfstune.diagnose import causes
from zfstune.diagnose.causes import Cause
from zfstune.rules.thresholds import thresholds

PAGE = Path(__file__).parents[2] / "docs/tools/zfstune-diagnose.md"


def rendered(page: str) -> str:
    """The page with its tables replaced by current ones."""
    page = _replace(page, "causes", _causes())
    return _replace(page, "thresholds", _thresholds())


def _replace(page: str, name: str, lines: list[str]) -> str:
    pattern = rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)"
    return re.sub(pattern, lambda m: m[1] + "\n".join(lines) + "\n" + m[2], page, flags=re.DOTALL)


def _causes() -> list[str]:
    return [
        "| no. | cause | explains | at best | sources |",
        "|---|---|---|---|---|",
        *(_row(cause) for cause in causes.load()),
    ]


def _row(cause: Cause) -> str:
    stages = ", ".join(f"`{stage}`" for stage in cause.explains) or "outside of fsyncs"
    best = "cannot be seen" if cause.never else cause.certainties[0]
    return (
        f"| {cause.number} | {cause.title} (`{cause.id}`) | {'-' if cause.never else stages} | "
        f"{best} | {'; '.join(cause.sources)} |"
    )


def _thresholds() -> list[str]:
    return [
        "| name | value | why | from |",
        "|---|---|---|---|",
        *(
            f"| `{name}` | {one.value} | {one.reason} | {one.source} |"
            for name, one in thresholds().items()
        ),
    ]


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
