"""`trace arc` without a kernel."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession, run_of
from support.samples import arc

from zfstrace.arc import ArcState
from zfstrace.types import Losses
from zfstune.term.units import MS, SECOND
from zfstune.trace.arc import trace


def run(states: list[ArcState], **options: Any) -> str:
    out = io.StringIO()
    session = FakeSession(states, losses=Losses(missed=1))
    trace(run_of(FakeHost(session), out, **({"duration": 3 * SECOND} | options)))
    assert session.closed
    return out.getvalue()


def test_each_interval_has_a_line() -> None:
    end = arc(5, [10 * MS] * 3, memory_throttle_count=12, arc_no_grow=1)
    lines = run([arc(1), arc(2), arc(4, [10 * MS]), end]).splitlines()
    assert max(map(len, lines)) < 100
    assert lines[1].split()[1:] == [
        "4.00G", "5.00G", "512M-16.0G", "99.0%", "3", "10", "100", "0", "0", "ns", "0", "yes",
    ]  # fmt: skip
    assert lines[2].split()[4:8] == ["99.0%", "6", "20", "200"]
    assert lines[3].split()[-5:] == ["2", "20.0", "ms", "12", "no"]
    assert len({line.rstrip().index(" 4.00G ") for line in lines[1:4]}) == 1
    text = " ".join(lines[4:])
    assert text.startswith("3.0 s: 99 % of 4,000 demand reads were hits; 3 waits for eviction, ")
    assert "lost 1 " in text


def test_missing_waits_and_iohits_are_dashes() -> None:
    state = arc(waits=None)
    older = ArcState({n: v for n, v in state.stats.items() if "iohits" not in n}, None)
    lines = run([older, older], source="kstat", duration=SECOND).splitlines()
    assert lines[1].split()[4:] == ["-", "-", "0", "0", "-", "-", "0", "yes"]
    assert "waits for eviction not traced" in lines[2]


def test_count_ends_it() -> None:
    assert run([arc()], duration=None, count=2).count("512M-16.0G") == 2


def test_the_rest_of_an_interval_has_no_line() -> None:
    assert run([arc()], duration=2050 * MS).count("512M-16.0G") == 2


def test_short_intervals_have_lines_too() -> None:
    text = run([arc()], interval=50 * MS, duration=200 * MS)
    assert text.count("512M-16.0G") == 4


@pytest.mark.parametrize("end", [ArcState({}), arc(1)])
def test_without_the_module_or_with_another_nothing_is_counted(end: ArcState) -> None:
    """The kstat goes with the module, and counts from 0 in one that is loaded anew."""
    lines = run([arc(2), arc(5), end]).splitlines()
    assert lines[1].split()[6] == "30"
    assert lines[2].split()[1:7] == ["4.00G", "5.00G", "512M-16.0G", "-", "0", "0"]
    assert "3.0 s: 99 % of 3,000 demand reads were hits" in " ".join(lines)


def test_json_has_the_differences_of_each_interval(capsys: pytest.CaptureFixture[str]) -> None:
    states = [arc(1), arc(3, [MS])]
    lines = [json.loads(line) for line in run(states, json=True).splitlines()]
    assert [line["demand_hits"] for line in lines] == [1980, 0, 0]
    assert (lines[0]["type"], lines[0]["waits"], lines[0]["no_grow"]) == ("arc", 1, False)
    assert lines[0]["hit_ratio"] == 0.99
    assert lines[1]["hit_ratio"] is None
    assert "lost 1" in capsys.readouterr().err
