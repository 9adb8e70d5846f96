"""The D scripts count exactly, on Linux, and agree with libzfstrace and ZFS's own kstats."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.rows import Json, pool_row, stage

FREEBSD = Path(__file__).parents[2] / "tracers/dtrace/freebsd"
FLUSH_NS = 30_000_000  # 40 ms by the slow pool's disk, which at times is early by a tick or two
STAGES = (
    "writeback",
    "async_to_sync",
    "tx_assign",
    "issuer_lock",
    "issue",
    "batch_wait",
    "log_write",
    "flush",
    "wakeup",
    "txg_fallback",
    "device_wait",
)
# ns before the pool was known, threads asleep, fsyncs, their ns, ns off CPU, lost
FSYNCSTACK = re.compile(
    r"^Not in the stacks: (\d+) ns before the pool was known, (\d+) threads still asleep\n"
    r"(\d+) fsyncs of (\d+) ns, off CPU (\d+) ns, lost: (\d+), errors: 0$",
    re.MULTILINE,
)
RUNS = (
    "zilcommit.d",
    "idle zilcommit.d",
    "zilslower.d",
    "zilevent-json.d",
    "threads zilevent-json.d",
    "zfsflush.d",
    "fsyncstack.d",
    "txgstate.d",
    "txgstate-json.d",
    "zfsthrottle.d",
    "zfsthrottle-json.d",
    "arcstate.d",
    "arcstate-json.d",
)


@pytest.fixture
def dtrace(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("dtrace", flavour)


def sums(text: str) -> dict[str, int]:
    """The table of sums of zilcommit.d, in us."""
    table = text.partition("Sums, us:\n")[2].partition("\n\n")[0]
    return {name: int(us) for name, us in (line.split() for line in table.splitlines())}


def hist(text: str, name: str) -> int:
    """How many values are in the histogram with this key (or heading, when it has no key)."""
    found = re.search(
        rf"^ *{re.escape(name)}\s*\n +value +-.*\n((?: +-?\d+ \|.*\n)+)", text, re.MULTILINE
    )
    assert found, f"no {name} in {text}"
    return sum(int(line.split()[-1]) for line in found[1].splitlines())


def lines(run: Json) -> list[Json]:
    return [json.loads(line) for line in run["stdout"].splitlines() if line]


def of_type(run: Json, kind: str) -> list[Json]:
    return [line for line in lines(run) if line["type"] == kind]


def timed_lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]


@pytest.mark.parametrize("name", RUNS)
def test_ends_cleanly(dtrace: Json, name: str) -> None:
    assert "failed" not in dtrace
    run = dtrace[name]
    assert run["status"] == 0
    assert run["stderr"] == ""  # no drops, no faults
    if name.endswith("-json.d"):
        assert lines(run)[0]["type"] == "trace_begin"
        end = lines(run)[-1]
        assert (end["type"], end["errors"]) == ("trace_end", 0)
        assert end["duration_ns"] > 0
        assert {line["schema"] for line in lines(run)} == {1}
    else:
        assert re.search(r"errors: 0$", run["stdout"], re.MULTILINE)
        assert max(map(len, run["stdout"].expandtabs(8).splitlines())) <= 110


@pytest.mark.parametrize("name", [n for n in RUNS if "idle" not in n])
def test_every_probe_fired(dtrace: Json, name: str) -> None:
    if name.endswith("-json.d"):
        assert lines(dtrace[name])[-1]["never_fired"] == [None]
    else:
        assert "Never fired" not in dtrace[name]["stdout"]


def test_zilcommit_counts_every_commit(dtrace: Json) -> None:
    run = dtrace["zilcommit.d"]
    assert run["kstat_commits"] == 211 + 13
    assert "\n211 commits, lost: 0, past the log: 0, errors: 0\n" in run["stdout"]
    assert hist(run["stdout"], "Whole commits, us:") == 211
    assert hist(run["stdout"], "async_to_sync") == 211
    found = sums(run["stdout"])
    commits = found.pop("commits")
    assert sum(found.values()) == pytest.approx(commits, rel=0.02)
    assert found.get("device_wait", 0) < commits * 0.02
    ours = pool_row(run["rows"])
    assert ours["commits"] == 211


def test_zilcommit_has_the_stages_of_libzfstrace(dtrace: Json) -> None:
    """In the same run; a span of libzfstrace lies inside one of DTrace or the other way round."""
    run = dtrace["zilcommit.d"]
    found = sums(run["stdout"])
    theirs = pool_row(run["rows"])
    total = sum(s["total_ns"] for s in theirs["stages"])
    assert found["commits"] * 1000 == pytest.approx(total, rel=0.15)
    for name in ("log_write", "flush"):
        assert found[name] * 1000 == pytest.approx(stage(theirs, name)["total_ns"], rel=0.25)


def test_zilslower_prints_every_slow_commit(dtrace: Json) -> None:
    run = dtrace["zilslower.d"]
    found = timed_lines(run["stdout"])
    assert run["kstat_commits"] == len(found) == 23
    assert "23 commits, 23 slow, lost: 0" in run["stdout"]
    for line in found:
        total, *parts = map(int, line[3:-1])
        assert total * 1000 >= FLUSH_NS
        assert sum(parts) == pytest.approx(total, abs=12)
        assert (line[1], line[-1]) == (str(dtrace["pid"]), "python3")
        assert parts[6] * 1000 >= FLUSH_NS * 0.9  # FLUSH


@pytest.mark.parametrize("name", ["zilevent-json.d", "threads zilevent-json.d"])
def test_zilevent_has_every_commit(dtrace: Json, name: str) -> None:
    run = dtrace[name]
    found = of_type(run, "commit")
    expected = {"tank": 211, "slow": 13} if name == "zilevent-json.d" else {"tank": 8 * 30}
    assert Counter(row["pool"] for row in found) == expected
    assert run["kstat_commits"] == len(found)
    end = lines(run)[-1]
    assert (end["count"], end["lost"], end["bypassed"]) == (len(found), 0, 0)
    for pool, count in expected.items():
        assert pool_row(run["rows"], pool)["commits"] == count
    for row in found:
        assert set(row["stages"]) == set(STAGES)
        assert sum(row["stages"].values()) == pytest.approx(row["total_ns"], rel=0.02)


def test_zilevent_measures_what_libzfstrace_does(dtrace: Json) -> None:
    run = dtrace["zilevent-json.d"]
    found = [row for row in of_type(run, "commit") if row["pool"] == "tank"]
    for row in found:
        assert sum(row["stages"].values()) == row["total_ns"]
        assert (row["comm"], row["kind"]) == ("python3", "fsync")
        assert row["pid"] == row["tid"] == dtrace["pid"]
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row["time"])
    assert sorted(row["time"] for row in found)[0][:13] >= dtrace["hour"]
    totals = sorted(row["total_ns"] for row in found)
    theirs = pool_row(run["rows"])["latency"]
    assert totals[len(totals) // 2] == pytest.approx(theirs["p50"], rel=0.15)
    assert sum(totals) / len(totals) == pytest.approx(theirs["mean"], rel=0.15)


def test_zfsflush_counts_log_writes_and_flushes(dtrace: Json) -> None:
    text = dtrace["zfsflush.d"]["stdout"]
    assert hist(text, "log_write") == hist(text, "log_flush") == 23
    assert "start was not seen: 0," in text
    assert hist(text, "dm-0") >= 23


def test_fsyncstack_finds_where_fsyncs_wait(dtrace: Json) -> None:
    text = dtrace["fsyncstack.d"]["stdout"]
    last = FSYNCSTACK.search(text)
    assert last
    before_ns, asleep, fsyncs, fsync_ns, off_ns, lost = map(int, last.groups())
    assert (fsyncs, before_ns, asleep, lost) == (23, 0, 0, 0)
    assert 23 * FLUSH_NS * 0.9 < off_ns <= fsync_ns
    off = text.partition("Off CPU, ns:\n")[2].partition("\nUntil woken")[0]
    stacks = [block.split() for block in off.split("\n\n") if block.strip()]
    assert sum(int(stack[-1]) for stack in stacks) == off_ns
    assert {stack[1] for stack in stacks} <= {"slow", "[unknown]"}
    longest = max(stacks, key=lambda stack: int(stack[-1]))
    assert longest[:6] == ["pool", "slow", "stage", "flush", "comm", "python3"]
    assert int(longest[-1]) > off_ns * 0.8
    assert any("zil_commit_impl" in frame for frame in longest)
    assert any("cv_wait_common" in frame for frame in longest)


def test_fsyncstack_becomes_a_picture(dtrace: Json) -> None:
    done = dtrace["convert"]
    assert done["status"] == 0
    assert "left out the wakeup and on-cpu stacks" in done["stderr"]
    assert "/out/fsyncstack.svg has " in done["stderr"]
    for frame in ("slow", "flush", "python3", "zil_commit_impl [zfs]", "cv_wait_common [spl]"):
        assert f"<title>{frame} (" in done["svg"]


def test_a_stack_session_agrees_with_its_script_and_libzfstrace(dtrace: Json) -> None:
    """To the ns what the script's last line says, and close to what libzfstrace has measured."""
    found = dtrace["session off-cpu"]
    last = FSYNCSTACK.search("\n".join(found["lines"]))
    assert last
    assert (int(last[3]), found["kstat_commits"]) == (23, 23)
    counts = found["counts"]
    assert sum(counts.values()) == int(last[5])
    assert set(found["losses"].values()) == {0}
    assert {stack.split(";")[2] for stack in counts} == {"python3"}
    assert {stack.split(";")[0] for stack in counts} <= {"slow", "[unknown]"}
    theirs = pool_row(found["rows"], "slow")
    flush = sum(ns for stack, ns in counts.items() if stack.split(";")[1] == "flush")
    assert flush > 23 * FLUSH_NS
    assert flush == pytest.approx(stage(theirs, "flush")["total_ns"], rel=0.15)


def test_a_stack_session_names_the_wakers(dtrace: Json) -> None:
    found = dtrace["session wakeup"]
    counts = found["counts"]
    assert set(found["losses"].values()) == {0}
    flush = [stack for stack in counts if stack.startswith("slow;flush;python3;--;")]
    assert sum(counts[stack] for stack in flush) > 23 * FLUSH_NS
    assert any(";zil_lwb_flush_vdevs_done [zfs];" in stack for stack in flush)


def test_a_stack_session_on_cpu_has_samples_of_fsyncs(dtrace: Json) -> None:
    found = dtrace["session on-cpu"]
    assert (found["kind"], found["unit"]) == ("on-cpu", "samples")
    assert set(found["losses"].values()) == {0}
    # some of 97 a second of a thread that mostly waits
    assert sum(found["counts"].values()) > 0
    assert all(stack.startswith(("slow;", "[unknown];")) for stack in found["counts"])


def test_a_stack_session_of_a_pool_has_no_other(dtrace: Json) -> None:
    found = dtrace["session pool"]
    last = FSYNCSTACK.search("\n".join(found["lines"]))
    assert last
    assert (int(last[3]), found["kstat_commits"]) == (31, 38)
    assert all(re.match(r"tank;\w+;python3;", stack) for stack in found["counts"])
    assert sum(found["counts"].values()) == int(last[5])
    assert found["losses"]["lost_ns"] == int(last[1])


def test_a_missing_script_is_reported(dtrace: Json) -> None:
    assert re.fullmatch(r"TraceError: cannot trace: [^\n]+", dtrace["no script"])


def test_txgstate_has_the_times_of_the_kstat(dtrace: Json) -> None:
    """Each txg is in the kstat with the same times (otime qtime wtime stime, in ns)."""
    run = dtrace["txgstate.d"]
    kstat = {row[0]: [int(ns) / 1e6 for ns in row[-4:]] for row in run["kstat"]}
    complete = [row for row in timed_lines(run["stdout"]) if "-1" not in row and row[2] in kstat]
    assert len(complete) >= 12
    for _, pool, txg, *times, _passes in complete:
        assert pool == "slow"
        for ours, theirs in zip(times, kstat[txg], strict=True):
            assert int(ours) == pytest.approx(theirs, abs=20, rel=0.1)


def test_txgstate_json_has_the_times_of_the_kstat(dtrace: Json) -> None:
    run = dtrace["txgstate-json.d"]
    kstat = {int(row[0]): [int(ns) for ns in row[-4:]] for row in run["kstat"]}
    found = [row for row in of_type(run, "txg") if row["txg"] in kstat]
    complete = [row for row in found if row["open_ns"] is not None]
    assert len(complete) >= 12
    assert {row["pool"] for row in found} == {"slow"}
    for row in complete:
        times = [row[key] for key in ("open_ns", "quiesce_ns", "wait_ns", "sync_ns")]
        assert times == pytest.approx(kstat[row["txg"]], abs=20e6, rel=0.1)
    theirs = {row["txg"]: row for row in run["rows"]}
    both = [row for row in complete if row["txg"] in theirs]
    assert len(both) >= 10
    for row in both:
        assert row["passes"] == theirs[row["txg"]]["passes"]
        assert row["sync_ns"] == pytest.approx(theirs[row["txg"]]["sync_ns"], abs=10e6, rel=0.1)


def test_zfsthrottle_counts_every_wait(dtrace: Json) -> None:
    run = dtrace["zfsthrottle.d"]
    found = re.search(r"^(\d+) waits, (\d+) delays,", run["stdout"], re.MULTILINE)
    assert found
    assert int(found[1]) == run["kstat_waits"] == hist(run["stdout"], "tank")
    assert int(found[2]) > 0
    waits = re.findall(r"^  tank +\S+ +\d+ +(\d+) ", run["stdout"], re.MULTILINE)
    assert sum(map(int, waits)) == run["kstat_waits"]
    assert re.search(r"^  dd +\d+ +\d+ ", run["stdout"], re.MULTILINE)


def test_zfsthrottle_json_counts_every_wait(dtrace: Json) -> None:
    run = dtrace["zfsthrottle-json.d"]
    waits = of_type(run, "throttle_wait")
    theirs = sum(row["count"] for row in run["rows"])
    assert len(waits) == lines(run)[-1]["count"] == run["kstat_waits"] == theirs
    total = sum(row["ns"] for row in waits)
    assert total == pytest.approx(sum(row["total_ns"] for row in run["rows"]), rel=0.1)
    assert {row["pool"] for row in waits} == {"tank"}
    assert {row["comm"] for row in waits if row["delay_ns"]} == {"dd"}
    slept = [row for row in waits if row["delay_ns"]]
    assert all(row["dirty_wait"] for row in slept)
    assert all(4 << 20 <= row["dirty_bytes"] <= 32 << 20 for row in slept)


def delta(run: Json, *names: str) -> int:
    """What counters of arcstats have grown by."""
    return sum(run["after"][name] - run["before"][name] for name in names)


def test_arcstate_follows_the_limit_and_the_kstat(dtrace: Json) -> None:
    """It follows the limit up and down, and the kstat: an event between a row and the clearing of
    its numbers is in no row. Each request to shrink is one of the kernel's shrinker here."""
    run = dtrace["arcstate.d"]
    found = timed_lines(run["stdout"])
    target, misses, shrinks, shrink_mb, waits, _mb, longest = (
        [int(row[i]) for row in found] for i in range(1, 8)
    )
    assert max(target) == 400
    assert 160 in target
    assert target[-1] == run["after"]["c"] >> 20 < 160
    assert sum(misses) == pytest.approx(delta(run, "misses"), rel=0.01)
    assert sum(shrinks) == pytest.approx(
        delta(run, "memory_direct_count", "memory_indirect_count"), rel=0.01
    )
    assert sum(shrinks) > 100
    assert sum(shrink_mb) >= 400 - target[-1] - 1
    assert sum(waits) > 10
    assert max(longest) > 0
    who = run["stdout"].partition("by process, us:")[2]
    assert "cat " in who
    entries = re.findall(r"\|@* +(\d+) *$", who, re.MULTILINE)
    assert sum(map(int, entries)) == pytest.approx(sum(waits), rel=0.05)


def test_arcstate_json_agrees_with_the_kstat(dtrace: Json) -> None:
    """Its numbers are totals since the start, so nothing falls between two lines."""
    run = dtrace["arcstate-json.d"]
    found = of_type(run, "arc")
    last = found[-1]
    assert {row["target"] for row in found} == {None}  # a reader has the kstat
    assert last["misses"] == pytest.approx(delta(run, "misses"), rel=0.005)
    assert last["shrinks"] == pytest.approx(
        delta(run, "memory_direct_count", "memory_indirect_count"), rel=0.005
    )
    assert last["shrink_bytes"] >= (400 << 20) - run["after"]["c"]
    assert [row["misses"] for row in found] == sorted(row["misses"] for row in found)
    waits = [row["ns"] for row in of_type(run, "arc_wait")]
    assert len(waits) > 10
    assert (last["waits"], last["wait_ns"], last["wait_max_ns"]) == (
        len(waits),
        sum(waits),
        max(waits),
    )


def test_the_variants_for_freebsd_compile(dtrace: Json) -> None:
    """Their syntax, and types by stand-ins; the compiler looks at clauses of missing probes too."""
    compiled = dtrace["compiled"]
    bad = compiled.pop("bad")
    assert bad["status"] != 0
    assert "no_such_thing" in bad["stderr"]
    assert set(compiled) == {path.name for path in FREEBSD.iterdir()}
    assert {name: run["stderr"] for name, run in compiled.items() if run["status"]} == {}


@pytest.mark.parametrize(
    ("name", "asked"), [("__sysctl", "3.277.1.5"), ("__sysctlbyname", "vfs.zfs.txg.timeout")]
)
def test_sysctlwrite_prints_successful_writes_only(dtrace: Json, name: str, asked: str) -> None:
    """One write is printed; not the call that failed, nor the one below another node than vfs."""
    run = dtrace["sysctlwrite"][name]
    assert run["statuses"] == [0, -1, 0]
    begin, write, end = lines(run)
    assert (begin["type"], begin["tool"]) == ("trace_begin", "sysctlwrite")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", write.pop("time"))
    pid = dtrace["pid"]
    fields = {"schema": 1, "type": "sysctl_write", "pid": pid, "comm": "python3", "name": asked}
    assert write == fields
    assert (end["type"], end["count"], end["errors"]) == ("trace_end", 1, 0)
    assert (run["status"], run["stderr"]) == (0, "")


def test_a_script_without_commits_says_so(dtrace: Json) -> None:
    """A pool that does not exist."""
    text = dtrace["idle zilcommit.d"]["stdout"]
    assert "\n0 commits, lost: 0, past the log: 0, errors: 0\n" in text
    assert "No commit was seen" in text
