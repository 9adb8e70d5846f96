"""Folded text follows the rule by which flamegraph.pl takes a line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from zfstrace.flame import read
from zfstrace.stacks import Stacks

# flamegraph.pl: `my ($stack, $samples) = (/^(.*)\s+?(\d+(?:\.\d*)?)$/);`
LINE = re.compile(r"^(.*)\s+?(\d+(?:\.\d*)?)$")


def test_each_line_is_a_stack_and_a_count(sample: Stacks, written: Callable[[str], Path]) -> None:
    counts = {}
    for line in written("a.folded").read_text().splitlines():
        match = LINE.match(line)
        assert match, line
        counts[match[1]] = int(match[2])
    assert counts == sample.counts


def test_each_format_becomes_each_other(sample: Stacks, written: Callable[[str], Path]) -> None:
    for name in ("a.folded", "a.txt", "a.speedscope.json", "a.pb.gz"):
        found = read(str(written(name))).stacks
        assert (found.counts, found.unit, found.kind) == (sample.counts, "ns", "off-cpu"), name
