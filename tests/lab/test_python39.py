"""The one file under Python 3.9 and the glibc of Debian 11, on a real kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lab import everything

Json = dict[str, Any]


@pytest.fixture
def python39(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("python39", flavour)


def test_python_and_glibc_are_those_of_debian_11(python39: Json) -> None:
    python, libc, version = python39["versions"]["stdout"].split()
    assert python.startswith("3.9.")
    assert (libc, version) == ("glibc", "2.31")


def test_it_traces_and_diagnoses(python39: Json) -> None:
    everything.reads_and_traces(python39["everything"])
    assert "loaded from memory" in python39["everything"]["doctor"]["stdout"]
    assert '"slow_flush"' in python39["everything"]["diagnose"]["stdout"]


def test_it_tunes_and_reverts(python39: Json) -> None:
    everything.sets_and_reverts(python39["everything"])
    everything.tunes(python39["everything"])
    assert python39["changed"] == {}
