"""`go tool pprof` reads the file and adds up the same numbers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from zfstrace.flame import write
from zfstrace.stacks import Stacks, unfold


def top(go: str, path: Path, unit: str) -> tuple[str, dict[str, tuple[int, int]]]:
    """The head of `pprof -top`, and flat and cumulative weight by name."""
    command = [go, "tool", "pprof", "-top", "-nodecount=1000", "-nodefraction=0", f"-unit={unit}"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head, _, table = done.stdout.partition("cum%\n")
    rows = {}
    for line in table.splitlines():
        match = re.fullmatch(r" *([0-9.]+)\D* +\S+ +\S+ +([0-9.]+)\D* +\S+ +(.*)", line)
        assert match, line
        rows[match[3]] = int(float(match[1])), int(float(match[2]))
    return head, rows


def expected(stacks: Stacks) -> dict[str, tuple[int, int]]:
    """Flat and cumulative weight by name."""
    found: dict[str, list[int]] = {}
    for stack, weight in stacks.counts.items():
        frames = unfold(stack)
        for name in set(frames):
            found.setdefault(name, [0, 0])[1] += weight
        found[frames[-1]][0] += weight
    return {name: (flat, cumulative) for name, (flat, cumulative) in found.items()}


def test_times(go: str, sample: Stacks, written: Callable[[str], Path]) -> None:
    head, rows = top(go, written("a.pb.gz"), "ns")
    assert "Type: off-cpu" in head
    assert sample.title in head
    assert rows == expected(sample)


def test_samples(go: str, tmp_path: Path) -> None:
    stacks = Stacks("on-cpu", "samples", "two", {"p;a;b": 3, "p;a": 2, "p;a;b;a": 1})
    write(stacks, str(tmp_path / "a.pb.gz"))
    head, rows = top(go, tmp_path / "a.pb.gz", "count")
    assert "Type: on-cpu" in head
    assert rows == expected(stacks)


def test_nothing_recorded(go: str, tmp_path: Path) -> None:
    write(Stacks("on-cpu", "samples", "none", {}), str(tmp_path / "a.pb.gz"))
    _, rows = top(go, tmp_path / "a.pb.gz", "count")
    assert rows == {}
