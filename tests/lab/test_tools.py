"""The one-file tools count exactly and agree with ZFS's own kstats."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from lab.rows import Json

BPFTRACE = (
    "zilcommit.bt",
    "zilslower.bt",
    "zfsflush.bt",
    "fsyncoffcpu.bt",
    "txgstate.bt",
    "zfsthrottle.bt",
)
BCC = ("zilslower.py", "zildist.py")
FLUSH_US = 30_000  # 40 ms by the slow pool's disk, which at times is early by a tick or two


@pytest.fixture
def tools(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("tools", flavour)


def scalar(text: str, name: str) -> int:
    """The value of a map of bpftrace with one number."""
    found = re.search(rf"^@{name}: (\d+)$", text, re.MULTILINE)
    assert found, f"no @{name} in {text}"
    return int(found[1])


def hist(text: str, name: str) -> list[tuple[str, int]]:
    """The buckets of a histogram of bpftrace: its lower bound, as printed, and the count."""
    found = re.search(rf"^@{re.escape(name)}: ?\n((?:[\[(].*\n)+)", text, re.MULTILINE)
    assert found, f"no @{name} in {text}"
    rows = [re.match(r"[\[(](\w+)[^)\]]*[)\]] +(\d+) \|", line) for line in found[1].splitlines()]
    return [(row[1], int(row[2])) for row in rows if row]


def count(text: str, name: str) -> int:
    return sum(n for _, n in hist(text, name))


def slow_lines(text: str) -> list[list[str]]:
    """The fields of the lines of zilslower that are commits."""
    return [line.split() for line in text.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]


@pytest.mark.parametrize("name", [*BPFTRACE, *BCC])
def test_ends_cleanly(tools: Json, name: str) -> None:
    assert tools[name]["status"] == 0
    assert "ERROR" not in tools[name]["stderr"]
    assert max(map(len, tools[name]["stdout"].splitlines())) < 100


def test_no_probe_is_left(tools: Json) -> None:
    assert tools["kprobes_left"] == ""


def test_zilcommit_counts_every_commit(tools: Json) -> None:
    text = tools["zilcommit.bt"]["stdout"]
    assert tools["zilcommit.bt"]["kstat_commits"] == 211 + 97
    assert scalar(text, "commits") == 211
    assert scalar(text, "lost_returns") == 0
    assert count(text, "commit_us") == 211
    assert count(text, "us[async_to_sync]") == 211
    # one may end while its block is held open for company, on a busy machine a tenth do
    assert 211 / 2 < count(text, "us[device_wait]") < 211 * 2
    sums = {k: int(v) for k, v in re.findall(r"^@sum_us\[(\w+)\]: (\d+)$", text, re.MULTILINE)}
    # each span is cut to whole us
    assert sum(sums.values()) - sums["commits"] == pytest.approx(sums["commits"], rel=0.01)


def test_zilslower_bt_prints_every_slow_commit(tools: Json) -> None:
    text = tools["zilslower.bt"]["stdout"]
    lines = slow_lines(text)
    assert tools["zilslower.bt"]["kstat_commits"] == scalar(text, "commits") == 23
    assert len(lines) == scalar(text, "slow") == 23
    for line in lines:
        total, *parts = map(int, line[3:-1])
        assert total >= FLUSH_US
        assert sum(parts) == pytest.approx(total, abs=len(parts))
        assert parts[5] >= FLUSH_US  # DEVICE


def test_zfsflush_counts_log_writes_and_flushes(tools: Json) -> None:
    text = tools["zfsflush.bt"]["stdout"]
    assert count(text, "log_write_us") == count(text, "log_flush_us") == 23
    assert scalar(text, "unknown_log_blocks") == 0
    disk = re.findall(r"^@disk_flush_us\[(.*)\]: ?$", text, re.MULTILINE)
    assert any(name.startswith("dm-") for name in disk)
    for name in ("log_flush_us", next(f"disk_flush_us[{n}]" for n in disk if n[:3] == "dm-")):
        slow = sum(n for low, n in hist(text, name) if low in ("32K", "64K", "128K", "256K"))
        assert count(text, name) >= 23
        assert slow >= 0.9 * count(text, name)


def test_fsyncoffcpu_finds_where_fsyncs_wait(tools: Json) -> None:
    text = tools["fsyncoffcpu.bt"]["stdout"]
    assert scalar(text, "fsyncs") == 23
    assert scalar(text, "lost_returns") == 0
    total = scalar(text, "off_cpu_total_us")
    assert 23 * FLUSH_US * 0.9 < total <= scalar(text, "fsync_us")
    stacks = re.findall(r"^@off_cpu_us\[\n(.*?)\]: (\d+)$", text, re.MULTILINE | re.DOTALL)
    assert sum(int(us) for _, us in stacks) == total
    stack, us = max(stacks, key=lambda s: int(s[1]))
    assert "zil_commit_impl" in stack
    assert "cv_wait_common" in stack
    assert int(us) > total * 0.8


def test_txgstate_has_the_times_of_the_kstat(tools: Json) -> None:
    """Each txg is in the kstat with the same times (otime qtime wtime stime, in ns)."""
    kstat = {row[0]: [int(ns) / 1e6 for ns in row[-4:]] for row in tools["txgstate.bt"]["kstat"]}
    lines = slow_lines(tools["txgstate.bt"]["stdout"])
    complete = [line for line in lines if "-1" not in line and line[2] in kstat]
    assert len(complete) >= 12
    # SYNC of those that wrote something
    assert sum(int(line[-1]) >= FLUSH_US / 1000 for line in complete) >= 12
    assert {pool for _, pool, *_ in complete} == {"slow"}
    ours = [int(ms) for _, _, _, *times in complete for ms in times]
    theirs = [ms for line in complete for ms in kstat[line[2]]]
    near = sum(a == pytest.approx(b, abs=20, rel=0.1) for a, b in zip(ours, theirs, strict=True))
    # a thread may be off its CPU between ZFS's look at the clock and the probe
    assert near >= 0.95 * len(ours)
    assert sum(ours) == pytest.approx(sum(theirs), rel=0.1)


def test_zfsthrottle_counts_every_wait(tools: Json) -> None:
    text = tools["zfsthrottle.bt"]["stdout"]
    waits = re.findall(r"^@waits_us\[tank, dd, \d+\]: count (\d+), ", text, re.MULTILINE)
    assert sum(map(int, waits)) > 0
    everyone = re.findall(r"^@waits_us\[.*\]: count (\d+), ", text, re.MULTILINE)
    assert sum(map(int, everyone)) == tools["zfsthrottle.bt"]["kstat_waits"]
    assert count(text, "wait_us[tank]") == tools["zfsthrottle.bt"]["kstat_waits"]
    assert re.search(r"^@delay_us\[dd, \d+\]: count \d+, ", text, re.MULTILINE)
    assert 16 * 0.6 <= scalar(text, "dirty_max_mib") + 1 <= 32


def test_zilslower_py_prints_every_slow_commit(tools: Json) -> None:
    """24 threads: more than the kernel's default of return probes."""
    text = tools["zilslower.py"]["stdout"]
    lines = slow_lines(text)
    assert tools["zilslower.py"]["kstat_commits"] == len(lines) == 24 * 11
    assert text.splitlines()[-1] == "264 commits, lost: 0 lines, 0 commits"
    for line in lines:
        assert (line[2], line[-1]) == ("tank", "python3")
        total, *parts = map(float, line[4:-1])
        assert sum(parts) == pytest.approx(total, abs=0.05)


def test_zildist_counts_every_commit(tools: Json) -> None:
    text = tools["zildist.py"]["stdout"]
    found = re.findall(r"^(\d+) commits, lost: (\d+) commits$", text, re.MULTILINE)
    assert len(found) > 1
    assert tools["zildist.py"]["kstat_commits"] == sum(int(n) for n, _ in found) == 24 * 11
    assert {lost for _, lost in found} == {"0"}


@pytest.mark.parametrize("name", BCC)
def test_the_return_probe_misses_nothing(tools: Json, name: str) -> None:
    """Its line has hits and misses."""
    lines = [line.split() for line in tools[name]["profile"].splitlines()]
    assert [line[1:] for line in lines if "zil_commit_impl_bcc_" in line[0]] == [["264", "0"]]


def test_nothing_is_lost_by_attaching_and_detaching(tools: Json) -> None:
    text = tools["busy zilcommit.bt"]["stdout"]
    assert scalar(text, "commits") > 0
    assert scalar(text, "lost_returns") == 0
    assert scalar(tools["busy zilslower.bt"]["stdout"], "lost_returns") == 0
    text = tools["busy zildist.py"]["stdout"]
    assert re.search(r"^\d+ commits, lost: 0 commits$", text, re.MULTILINE)
    # the parts are complete from the first commit on
    sums = dict(re.findall(r"^(\w+) +([\d.]+) ms", text, re.MULTILINE))
    commit = float(sums.pop("commit"))
    assert sum(map(float, sums.values())) == pytest.approx(commit, rel=0.01, abs=500)
    lines = slow_lines(tools["busy zilslower.bt"]["stdout"])
    assert lines
    for line in lines:
        total, *parts = map(int, line[3:-1])
        assert sum(parts) == pytest.approx(total, abs=len(parts))


@pytest.mark.parametrize(
    ("case", "status", "words"),
    [
        ("not a number", 2, "MIN_MS"),
        ("negative", 2, "MIN_MS"),
        ("interval", 2, "interval"),
        ("not root", 1, "root"),
        ("no bcc", 1, "python3-bpfcc"),
    ],
)
def test_bad_input_is_an_error_with_a_hint(tools: Json, case: str, status: int, words: str) -> None:
    found = tools["bad"][case]
    assert found["status"] == status
    assert found["stdout"] == ""
    assert re.fullmatch(r"zil\w+: error: [^\n]+\nhint: [^\n]+\n", found["stderr"])
    assert words in found["stderr"]


def test_zilslower_bt_without_a_threshold_prints_its_usage(tools: Json) -> None:
    assert "USAGE: zilslower.bt MIN_MS" in tools["bad"]["no threshold"]["stdout"]
