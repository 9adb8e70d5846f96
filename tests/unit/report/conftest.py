from __future__ import annotations

import pytest

from zfstune.report import render


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of everything but the plots."""
    monkeypatch.setattr(render, "_plots", lambda _: {})
