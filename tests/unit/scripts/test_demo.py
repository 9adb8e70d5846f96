"""`make demo` leaves the page that it promises, or fails."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """scripts/demo, but for the guest."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("scripts_demo", str(ROOT / "scripts/demo"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    found = importlib.util.module_from_spec(spec)
    loader.exec_module(found)
    monkeypatch.setattr(found, "OUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["scripts/demo"])
    for name in ("meaning", "remedy"):
        monkeypatch.setattr(found, name, lambda _session: "")
    return found


@pytest.mark.parametrize(
    ("written", "drawn", "says"),
    [
        (True, True, ""),
        (False, True, "the recorder's trigger wrote no file in two minutes"),
        (True, False, "see above"),
    ],
)
def test_without_the_page_of_the_incident_it_fails(
    demo: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    written: bool,
    drawn: bool,
    says: str,
) -> None:
    def run_lab(*_: str) -> int:
        (tmp_path / "tune").mkdir()
        (tmp_path / "tune/report.html").touch()
        (tmp_path / "tune/session.json").write_text("{}")
        if written:
            (tmp_path / "incident.jsonl.gz").touch()
        return 0

    def draw(_command: str, _how: str, source: Path, page: Path) -> None:
        if drawn and source.exists():
            page.touch()

    monkeypatch.setattr(demo, "run_lab", run_lab)
    monkeypatch.setattr(demo, "draw", draw)
    assert demo.main() == (1 if says else 0)
    out, err = capsys.readouterr()
    # what there is can be looked at all the same
    assert "report.html" in out
    errors = [line for line in err.splitlines() if "error" in line]
    expected = f"demo: error: there is no page of the incident: {says}"
    assert errors == ([expected] if says else [])
