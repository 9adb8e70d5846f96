"""Fixtures of the tests of the journal."""

from __future__ import annotations

import pytest
from support.faults import Faults


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of looks at a journal, without a process for each."""
    monkeypatch.setattr("zfstune.changes.bounded.call", lambda _limit_s, what, *given: what(*given))
