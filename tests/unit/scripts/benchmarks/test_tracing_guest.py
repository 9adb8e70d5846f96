"""What tracing costs, by the kernel's counts (`make bench-tracing`), and the page about it: with
made-up ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tracing, tracing_guest

Json = dict[str, Any]


def pairs(*ratios: float) -> list[Json]:
    return [{"none": 2e6, "traced": 2e6 * ratio} for ratio in ratios]


def test_programs_are_counted_for_an_fsync() -> None:
    """bpftool names no time for one that never ran, and others were there before."""
    before = [{"id": 1}, {"id": 2, "run_time_ns": 900, "run_cnt": 9}, {"id": 3}]
    after = [
        {"id": 1, "name": "fentry_a", "run_time_ns": 4000, "run_cnt": 40},
        {"id": 2, "name": "fentry_b", "run_time_ns": 1900, "run_cnt": 19},
        {"id": 3, "name": "fentry_c"},
    ]
    assert tracing_guest.per_fsync(before, after, 10) == {
        "fentry_a": {"ns": 400.0, "runs": 4.0},
        "fentry_b": {"ns": 100.0, "runs": 1.0},
    }


def test_the_time_that_threads_ran_is_that_of_all_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux 6.12 prints it, shortened."""
    file = tmp_path / "schedstat"
    file.write_text(
        "version 16\n"
        "timestamp 4294949284\n"
        "cpu0 0 0 61190 27035 33393 8413 5160172938 1063306229 34083\n"
        "domain0 MC 3 1 2 3\n"
        "cpu1 0 0 53071 23180 29170 9069 4839827062 985013551 29813\n"
        "domain0 MC 3 1 2 3\n"
    )
    monkeypatch.setattr(tracing_guest, "SCHEDSTAT", file)
    assert tracing_guest.cpu_ns() == 10_000_000_000


def test_a_measurement_is_of_all_jobs_and_their_fsyncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job has a file of its own, and the time is divided by what all did."""
    clock = iter((1000, 7000))
    monkeypatch.setattr(tracing_guest, "cpu_ns", lambda: next(clock))
    load = tracing_guest.Load(str(tmp_path).lstrip("/"), 3, 2)
    assert tracing_guest.cpu_per_fsync(load) == 1000
    assert {path.name for path in tmp_path.iterdir()} == {"file0", "file1", "file2"}


def test_a_job_that_fails_is_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing_guest, "cpu_ns", lambda: 0)
    load = tracing_guest.Load(f"{tmp_path}/nothing".lstrip("/"), 2, 1)
    with pytest.raises(RuntimeError, match=r"2 of 2 jobs on .*nothing failed"):
        tracing_guest.cpu_per_fsync(load)


@pytest.mark.parametrize(
    ("output", "events"),
    [
        ("lost 0   unfinished 2\n", 0),
        ('{"lost": 12, "missing": []}', 12),
        ("Lost 7 events\nLost 5 events", 7),
        ("LOST 3 events!", 3),
        ("a histogram", None),
    ],
)
def test_lost_events_are_those_that_a_tool_admits(output: str, events: int | None) -> None:
    assert tracing_guest.lost(output) == events


def test_measuring_ends_when_the_intervals_are_narrow() -> None:
    steady = pairs(*[1.02] * tracing_guest.FEWEST)
    assert tracing_guest.narrow(steady, 0.01)
    assert not tracing_guest.narrow(steady[1:], 0.01)
    assert not tracing_guest.narrow(pairs(*[1.0, 1.1] * 5), 0.01)


def run(btf: bool) -> Json:
    program = {"ns": 500.0, "runs": 1.5}
    tool: Json = {
        "attach_seconds": [1.1, 1.3, 1.2],
        "own": [0.01],
        "lost": [0, 3, None],
        "loads": {"1 job": pairs(*[1.02] * 9), "8 jobs": pairs(*[1.01] * 9)},
        "programs": {"1 job": {"a": program, "b": program}, "8 jobs": {"b": program}},
    }
    peer = {
        **tool,
        "lost": [None],
        "loads": {"1 job": pairs(*[1.1] * 9), "8 jobs": pairs(*[0.99] * 9)},
    }
    return {
        "kernel": "6.1",
        "zfs": "2.1",
        "btf": btf,
        "cpu": "QEMU Virtual CPU",
        "loads": {"1 job": {}, "8 jobs": {}},
        "tools": {
            tracing.SUMMARY: tool,
            "one-liner": peer,
            "zfsdist": {"error": "no such program"},
        },
    }


def test_the_page_has_changes_with_their_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["tracing.py", "--rounds", "9"])
    text = tracing.page({"bookworm": run(btf=False)}, argparse.Namespace(rounds=9))
    assert 'make bench-tracing BENCH="--rounds 9"' in text
    assert "## bookworm: kernel 6.1, ZFS 2.1" in text
    assert "| none | 2,000 us | 2,000 us | - | - | - |" in text
    ours = "**+2.0%** (+2.0% to +2.0%) | **+1.0%** (+1.0% to +1.0%) | 1.0% | 1.20 s | 3 |"
    assert f"| zfstune trace fsync | {ours}" in text
    assert f"| {tracing.SUMMARY} | {tracing.TELLS[tracing.SUMMARY]} |" in text
    assert tracing.TELLS[tracing.LIGHT] not in text
    assert "| one-liner | **+10.0%** (+10.0% to +10.0%) | **-1.0%** (-1.0% to -1.0%)" in text
    assert "| zfsdist | did not attach: no such program | | | | |\n" in text
    assert "| a | 1.50, 0.50 us | - |\n" in text
    assert "| all | 3.00, 1.00 us | 1.50, 0.50 us |\n" in text


@pytest.mark.parametrize(
    ("btf", "said"), [(True, "above the goal of 1.5%"), (False, "within the goal of 5.0%")]
)
def test_a_goal_is_that_of_how_probes_attach(btf: bool, said: str) -> None:
    lines = tracing.verdicts(run(btf))
    assert lines[0] == f"* zfstune trace fsync, 1 job: +2.0%, {said}."
    assert lines[-1] == "* zfstune trace fsync: attached after 1.20 s, within the goal of 1.2."


def test_a_tool_of_ours_says_when_it_has_attached() -> None:
    """Words of `zfstune trace` and `zfstune exporter`; what comes before them is no sign."""
    attached = tracing_guest.ATTACHED.search
    assert attached("zfstune: fentry, tracing tank; Ctrl-C to end\n")
    before = "zfstune: view arc: 2 of 2 probes attached\n"
    served = "zfstune: serving http on 127.0.0.1, port 9810: /metrics\n"
    assert attached(before + served) and not attached(before)
