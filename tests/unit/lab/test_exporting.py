"""What the scenarios of the exporter compare scrapes with, without a guest."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
from support.paths import ROOT

BEFORE = """\
# HELP zfstune_txgs_total Txgs that have ended.
# TYPE zfstune_txgs_total counter
zfstune_txgs_total{pool="tank",reason="time out"} 7.0
zfstune_txgs_total{pool="a \\"b\\" {c}",reason="dirty"} 1.0
zfstune_zil_commit_duration_seconds_bucket{pool="tank",dataset="tank/db",le="0.005"} 3.0
zfstune_zil_commit_duration_seconds_count{pool="tank",dataset="tank/db"} 3.0
zfstune_zil_commit_duration_seconds_sum{pool="tank",dataset="tank/db"} 0.25
zfstune_arc_size_bytes 1.5e+09
"""


@pytest.fixture(scope="module")
def exporting() -> Any:
    path = ROOT / "tests/lab/guest/exporting.py"
    spec = importlib.util.spec_from_file_location("guest_exporting", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_series_are_told_apart(exporting: Any) -> None:
    found = exporting.parse(BEFORE)
    assert len(found) == 6
    assert exporting.total(found, "zfstune_txgs_total") == 8
    assert exporting.total(found, "zfstune_txgs_total", pool="tank") == 7
    assert exporting.total(found, "zfstune_txgs_total", reason="time out", pool="side") == 0
    assert exporting.total(found, "zfstune_txgs") == 0
    (odd,) = exporting.select(found, "zfstune_txgs_total", reason="dirty")
    assert exporting.labels(odd) == {"pool": 'a \\"b\\" {c}', "reason": "dirty"}


@pytest.mark.parametrize(
    ("old", "new", "back"),
    [
        ('"time out"} 7.0', '"time out"} 6.0', ["zfstune_txgs_total"]),
        ('le="0.005"} 3.0', 'le="0.005"} 2.0', ["zfstune_zil_commit_duration_seconds_bucket"]),
        ('db"} 0.25', 'db"} 0.2499', ["zfstune_zil_commit_duration_seconds_sum"]),
        ('reason="time out"', 'reason="another"', ["zfstune_txgs_total"]),
        ("1.5e+09", "1.0", []),
        ('"time out"} 7.0', '"time out"} 8.0', []),
    ],
)
def test_what_goes_back_is_found(exporting: Any, old: str, new: str, back: list[str]) -> None:
    before = exporting.parse(BEFORE)
    assert exporting.gone_back(before, before) == []
    after = exporting.parse(BEFORE.replace(old, new))
    found = exporting.gone_back(before, after)
    assert [one["series"].partition("{")[0] for one in found] == back
