"""Tests of the recorder leave the memory of their own process alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.driven import Driven
from support.recording import FakeClock

from zfstune.record import memory


@pytest.fixture(autouse=True)
def _unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "lock", lambda: "")


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    """drive(triggers ...): one after the other in the same directory."""
    made: list[Driven] = []

    def start(*triggers: str, clock: FakeClock | None = None, observed: bool = False) -> Driven:
        for one in made:
            one.recorder.close()
        made.append(Driven(tmp_path / "run", *triggers, clock=clock))
        if observed:
            made[-1].observed()
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.recorder.close()
