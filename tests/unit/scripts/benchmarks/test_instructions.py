"""From counted blocks of code to what a trace adds to an fsync, and which functions its programs
call, of made-up counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import instructions

KALLSYMS = """\
ffffffff81000000 T schedule
ffffffff81000100 t __rcu_read_lock
ffffffff81000200 t bpf_ktime_get_ns
ffffffffc0000000 t bpf_prog_1_fentry_zpl_fsync [bpf]
ffffffffc0000080 t bpf_prog_2_part_of_it [bpf]
ffffffffc0000100 t zfs_write [zfs]
ffffffffc0000200 t __cv_wait [spl]
"""


def test_blocks_belong_to_the_function_before_their_address(tmp_path: Path) -> None:
    kallsyms = tmp_path / "symbols"
    kallsyms.write_text(KALLSYMS)
    symbols = instructions.Symbols(kallsyms)
    blocks = Counter({0x400000: 5, 0xFFFFFFFF81000000: 1, 0xFFFFFFFF810000FF: 2})
    blocks |= Counter({0xFFFFFFFFC0000123: 7, 0xFFFFFFFF80000000: 3})
    found = instructions.by_function(blocks, symbols)
    assert found == {"[user]": 8, "schedule": 3, "zfs_write": 7}


def test_only_what_tracing_adds_is_counted(tmp_path: Path) -> None:
    """All grew by 900, of which the scheduler's 870 are no cost of tracing."""
    counts = tmp_path / "counts"
    counts.mkdir()
    (counts / "marks").write_text("0 77\n1 1000\n2 88\n3 1900\n")
    (counts / "blocks").write_text(
        "0 ffffffffc0000000 99 9 ffffffff81000200\n"
        "1 ffffffff81000010 880 88 0\n1 ffffffff81000100 20 4 0\n"
        "1 ffffffffc0000100 100 10 ffffffff81000200\n"  # by nobody's program
        "3 ffffffff81000010 1750 175 0\n3 ffffffff81000100 30 6 0\n"
        "3 ffffffffc0000000 10 5 ffffffff81000200\n"
        "3 ffffffffc0000010 4 2 ffffffffc0000080\n3 ffffffffc0000084 6 3 ffffffff81000200\n"
        "3 ffffffffc0000100 100 10 ffffffff81000200\n"
        # traced, it begins with a call; what follows is another block
        "1 ffffffffc0000200 24 4 0\n3 ffffffffc0000200 18 9 ffffffffc0000000\n"
        "3 ffffffffc0000208 36 9 0\n"
    )
    row = {"dataset": "tank/db", "commits": 10}
    results = {
        "fsyncs": 10,
        "modes": [row | {"mode": "plain", "mark": 1}, row | {"mode": "fsync", "mark": 3}],
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    for mark in (1, 3):
        (tmp_path / f"symbols-{mark}").write_text(KALLSYMS)
    plain, fsync = instructions.read(counts, tmp_path)
    assert (plain.all, plain.tracing, fsync.all) == (100, 0, 190)
    assert fsync.tracing == pytest.approx(3)
    assert (plain.waits, fsync.waits) == (0.4, 0.9)
    assert plain.helpers == {}
    assert fsync.helpers == {"bpf_ktime_get_ns": 0.8}
    assert instructions.table([plain, fsync], {"perf": "not there"}).splitlines()[2:] == [
        "| plain | 100 |",
        "| fsync | 3, 0.8 |",
        "| perf | not there |",
    ]
    lines = instructions.top([plain, fsync], 2).splitlines()
    assert lines[1].split() == ["87.0", "schedule"]
    assert lines[-1].split() == ["0.8", "calls", "of", "bpf_ktime_get_ns"]
