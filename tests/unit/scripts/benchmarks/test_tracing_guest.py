"""What a fsync costs by the kernel's count of BPF programs (`make bench`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import tracing_guest


def test_the_cost_of_an_fsync_is_that_of_all_programs() -> None:
    """By the commits that there were, in all programs; bpftool names no time for one that never
    ran, and others were there before."""
    before = [{"id": 1}, {"id": 2, "run_time_ns": 900, "run_cnt": 9}, {"id": 3}]
    after = [
        {"id": 1, "run_time_ns": 4000, "run_cnt": 40},
        {"id": 2, "run_time_ns": 1900, "run_cnt": 19},
        {"id": 3},
    ]
    assert tracing_guest.per_fsync(before, after, 10) == {"ns": 500.0, "calls": 5.0}


def test_commits_are_read_from_the_kstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kstat = tmp_path / "zil"
    kstat.write_text(
        "7 1 0x01 2 544 1 2\n"
        "name                            type data\n"
        "zil_commit_count                4    1234\n"
        "zil_commit_writer_count         4    1200\n"
    )
    monkeypatch.setattr(tracing_guest, "ZIL", kstat)
    assert tracing_guest.commits() == 1234
