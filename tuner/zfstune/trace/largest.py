"""The largest stages of an fsync, in a few words."""

from __future__ import annotations

from collections.abc import Mapping


def largest_stages(stages: Mapping[str, int], width: int) -> str:
    """``flush 93% issue 4%``: up to three of the largest, as many as fit, at least one; "" if all
    are 0."""
    total = sum(stages.values())
    text = ""
    for name, ns in sorted(stages.items(), key=lambda stage: -stage[1])[:3]:
        part = f"{name} {ns / total:.0%}" if total else ""
        if not ns or part.endswith(" 0%"):
            break
        if text and len(text) + 1 + len(part) > width:
            break
        text = f"{text} {part}" if text else part
    return text
