"""Tests of the recorder leave the memory of their own process alone."""

import pytest

from zfstune.record import memory


@pytest.fixture(autouse=True)
def _unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "lock", lambda: "")
