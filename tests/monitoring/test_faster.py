"""Rules whose time goes faster, for tests, are the rules that users get, but for durations."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT
from support.prometheus import LEAST_INTERVAL_MS, LEAST_WINDOW_MS, faster, located, shorter

RULES = sorted((ROOT / "platform/monitoring").glob("*.yml"))
FACTORS = (5, 120)
_DURATION = re.compile(r"\b(\d+)(ms|[smhdwy])\b")
_MS = {"ms": 1, "s": 1000, "m": 60 * 1000, "h": 3600 * 1000, "d": 24 * 3600 * 1000}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def durations(found: Any) -> Iterator[tuple[str, float]]:
    """All of a file in ms, in their order, each with what it is. In an expression those outside of
    brackets count, too: `offset 5m` would have to be divided like any other."""

    def ms(text: str) -> Iterator[float]:
        code = re.sub(r'"[^"]*"|#.*', "", text)
        yield from (int(number) * _MS[unit] for number, unit in _DURATION.findall(code))

    for group in found["groups"]:
        yield from (("interval", one) for one in ms(group["interval"]))
        for rule in group["rules"]:
            yield from (("for", one) for one in ms(rule.get("for", "")))
            yield from (("window", one) for one in ms(rule["expr"]))


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_each_duration_is_divided(path: Path, factor: int, tmp_path: Path) -> None:
    least = {"interval": LEAST_INTERVAL_MS, "window": LEAST_WINDOW_MS, "for": 0}
    before, after = read(path), read(faster(path, tmp_path, factor))
    wanted = [(what, max(ms / factor, least[what])) for what, ms in durations(before)]
    assert len(wanted) > 5
    assert list(durations(after)) == wanted


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_nothing_else_changes(path: Path, tmp_path: Path) -> None:
    before, after = (
        _DURATION.sub("DURATION", json.dumps(read(one), sort_keys=True))
        for one in (path, faster(path, tmp_path, FACTORS[0]))
    )
    assert before == after


def test_promtool_accepts_them(tmp_path: Path) -> None:
    copies = [faster(path, tmp_path, FACTORS[0]) for path in RULES]
    subprocess.run((located("promtool"), "check", "rules", *copies), check=True)


def test_what_is_no_duration_is_told() -> None:
    assert shorter("1h", 15) == "240000ms"
    with pytest.raises(ValueError, match="'1h30m' is no duration"):
        shorter("1h30m", 15)
