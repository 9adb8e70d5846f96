"""`zfstune trace --from`: the views of an incident file through the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import incidents
from support.errors import ONE_ERROR

from zfstune import cli

Run = Callable[..., tuple[int, str, str]]
SLOW = incidents.SLOW


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return incidents.write(tmp_path_factory.mktemp("full") / "full.jsonl.gz")


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return incidents.write(tmp_path_factory.mktemp("light") / "light.jsonl.gz", full=False)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """trace(words): status, stdout, stderr, on a machine without ZFS."""
    monkeypatch.setattr("zfstune.changes.recovery.if_needed", lambda _who: None)

    def refuse() -> Any:
        raise AssertionError("the host was asked")

    monkeypatch.setattr("zfstune.trace.live.open_host", refuse)

    def run(*words: object) -> tuple[int, str, str]:
        status = cli.main(["trace", *map(str, words)])
        out, err = capsys.readouterr()
        if "--json" not in words:
            assert max(map(len, out.splitlines()), default=0) < 100
        return status, out, err

    return run


def test_the_screen_is_that_of_the_worst_moment(trace: Run, full: Path) -> None:
    status, out, err = trace("--from", full)
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == f"--- {incidents.moment(SLOW[0])}"
    assert lines[1].startswith("all pools, 10.0 s until 00:03:30 UTC")
    assert lines[2].startswith("> throttle: writers are stopped at zfs_dirty_data_max (postgres")
    assert any(re.match(r"    tank/db +5.0/s +181 ms +181 ms", line) for line in lines)
    assert any(re.match(r"    tank 5040 +5.00 s", line) for line in lines)
    assert "    sda flush " in out
    assert "lost 4 (fsync 2, device 2)" in out
    assert "stages are estimated" not in out
    assert err == (
        "zfstune: db1.example.net, 2026-11-26 23:56:40 UTC to 2026-11-27 00:06:40 UTC: the 10.0 s "
        "until 2026-11-27 00:03:30 UTC, the worst (p99 181 ms); choose with --at\n"
    )


def test_at_chooses_another_moment(trace: Run, full: Path) -> None:
    _, out, err = trace("--from", full, "--at", "23:58")
    assert "tank/db                40.0/s" in out
    assert "nothing was throttled" in out
    assert "choose with --at" not in err


def test_a_light_trace_fills_the_view_of_fsyncs(trace: Run, light: Path) -> None:
    _, out, _ = trace("--from", light)
    assert re.search(r"tank/db +5.0/s +181 ms +181 ms +181 ms flush 99%", out)
    assert "not available: above the budget" in out
    assert out.endswith("fsync: commits; their stages are estimated (`trace fsync --light`)\n")


@pytest.mark.parametrize("before", [True, False])
def test_the_file_may_be_named_before_or_after_the_view(
    trace: Run, full: Path, *, before: bool
) -> None:
    given = ["--from", full, "--at", "00:03:31"]
    status, out, _ = trace(*given, "txg") if before else trace("txg", *given)
    assert status == 0
    assert out.startswith(f"--- {incidents.moment(41)}\nTIME  ")


def test_the_table_of_fsyncs(trace: Run, full: Path) -> None:
    _, out, _ = trace("fsync", "tank", "--histogram", "--from", full)
    assert "  50 operations in 10.0 s, 5.0/s  (fsync 50)" in out
    assert "  flush       99.4 %" in out
    assert "  total latency" in out
    assert "missing probe cv_timedwait: `batch_wait` is part of `issue` (no symbol)" in out
    assert "idle" not in out


def test_light_rows_are_there_beside_exact_ones(trace: Run, full: Path) -> None:
    _, out, _ = trace("fsync", "--light", "--from", full)
    assert "  50 commits in 10.0 s, 5.0/s" in out
    assert "estimated from 150 fsyncs in 3 windows" in out


def test_the_other_tables(trace: Run, full: Path) -> None:
    assert "4711  postgres      30     2  3.03 s" in trace("throttle", "--from", full)[1]
    device = trace("device", "tank", "--from", full)[1]
    assert "  sda   sync_write   5.0" in device
    assert device.endswith("lost 2\n")
    assert "  tank/db  hit     9.0  36.0K/s  90.0 %" in trace("read", "--from", full)[1]


def test_lines_of_the_time_until_the_moment(trace: Run, full: Path) -> None:
    _, out, _ = trace("txg", "--from", full, "--at", "00:03:30")
    assert len([line for line in out.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]) == 30
    assert out.endswith("30 txgs in 5 m 0 s; sync p50 1.00 s, max 6.00 s; timer 30\n")
    _, out, _ = trace("txg", "--from", full, "--at", "00:03:30", "--duration", "20s")
    assert "2 txgs in 20.0 s" in out
    _, out, _ = trace("txg", "--from", full, "--at", "00:03:30", "--count", "4")
    assert "4 txgs in 30.0 s" in out
    _, out, _ = trace("arc", "--from", full, "--count", "3")
    assert len(out.splitlines()) == 1 + 1 + 3 + 1


def test_slow_operations(trace: Run, full: Path) -> None:
    _, out, _ = trace("slow", "--over", "1ms", "--from", full, "--at", "00:04:20")
    assert out.count(" postgres  tank/db ") == len(SLOW)
    assert out.splitlines()[-1].startswith("6 fsyncs of 1.00 ms or more in 5 m 0 s; the recorder")
    _, out, _ = trace("slow", "--over", "249ms", "--from", full, "--at", "00:04:20")
    assert out.count(" postgres  tank/db ") == 2
    _, out, _ = trace("slow", "--over", "1ms", "--pid", "1", "--from", full)
    assert "no slow fsync on all pools in 5 m 0 s" in out


def test_json_has_the_rows_as_a_live_trace_prints_them(trace: Run, full: Path) -> None:
    step = SLOW[0]
    wanted = [row for row in incidents.interval(step) if row["type"] == "device"]
    _, out, _ = trace("device", "--json", "--from", full)
    assert [json.loads(line) for line in out.splitlines()] == wanted
    _, out, _ = trace("--json", "--from", full)
    types = {json.loads(line)["type"] for line in out.splitlines()}
    assert {"fsync_summary", "txg", "throttle", "device", "arc"} < types


def test_of_probes_that_were_not_kept_nothing_is_said(trace: Run, tmp_path: Path) -> None:
    """The recorder leaves them out of its rows, with histograms and the kinds of losses."""
    left_out = ("probes", "histogram", "losses")
    rows = [
        {name: one for name, one in record.items() if name not in left_out}
        for record in incidents.records(SLOW)
    ]
    file = incidents.write(tmp_path / "x", rows)
    for words in ([], ["fsync"], ["fsync", "--light"]):
        _, out, _ = trace(*words, "--from", file)
        assert "probes" not in out
        assert "lost 2" in out or "lost 4" in out


def test_losses_of_an_interval_are_said_whatever_comes_first(trace: Run, tmp_path: Path) -> None:
    """A window of a slow commit has none, and ends before the interval; rows of txgs never have."""
    summary, window = (
        next(one for one in incidents.records(SLOW, full=False) if one["type"] == kind)
        for kind in ("light_summary", "light_window")
    )
    end = incidents.moment(SLOW[0])
    first = {"type": "interval", "time": end, "duration_ns": incidents.STEP_NS, "off": {}}
    kept = {name: one for name, one in summary.items() if name not in ("losses", "probes")}
    for lost, said in (({}, "lost 2 (fsync 2)"), ({"txg": 5, "light": 3}, "lost 8 (")):
        row = first | {"lost": lost}
        file = incidents.write(tmp_path / "x", [row, window | {"time": end}, kept])
        assert said in trace("--from", file)[1], lost
    assert trace("fsync", "--from", file)[1].endswith("lost 3\n")


def test_what_found_no_room_is_of_any_pool(trace: Run, tmp_path: Path) -> None:
    row = next(one for one in incidents.records(SLOW) if one["type"] == "throttle")
    first = next(incidents.records(SLOW))
    rest = row | {"pool": "", "pid": 0, "comm": "<others>"}
    file = incidents.write(tmp_path / "x", [first, row, rest])
    for words in ([], ["tank"]):
        assert "<others>" in trace("throttle", *words, "--from", file)[1]


def test_the_span_of_lines_is_no_longer_than_the_file(trace: Run, tmp_path: Path) -> None:
    file = incidents.write(tmp_path / "x", incidents.records([3, 4]))
    assert "2 txgs in 20.0 s;" in trace("txg", "--from", file, "--at", "23:57:30")[1]


def test_a_view_that_was_off_says_why(trace: Run, light: Path) -> None:
    status, out, _ = trace("device", "--from", light)
    assert status == 0
    assert out.splitlines()[1:] == ["no I/O on all pools: above the budget", ""]
    assert "it was not recorded" in trace("read", "--from", light)[1]
    _, out, _ = trace("slow", "--over", "1h", "--from", light)
    assert "no slow fsync on all pools in 5 m 0 s" in out


def test_a_light_trace_records_no_single_operations(trace: Run, tmp_path: Path) -> None:
    rows = [one for one in incidents.records([0], full=False) if one["type"] != "slow_fsync"]
    file = incidents.write(tmp_path / "x", rows)
    _, out, _ = trace("slow", "--over", "1h", "--from", file)
    assert "no slow fsync on all pools: it was not recorded" in out


def test_a_recorder_that_failed_says_why_of_every_view(trace: Run, tmp_path: Path) -> None:
    row = {"type": "interval", "time": incidents.moment(3), "duration_ns": incidents.STEP_NS}
    file = incidents.write(tmp_path / "x", [row | {"off": {"all": "no room"}}])
    assert trace("--from", file)[1].count("not available: no room") == 5


def test_a_file_cut_short_is_shown_as_far_as_it_goes(
    trace: Run, full: Path, tmp_path: Path
) -> None:
    data = full.read_bytes()
    file = tmp_path / "cut"
    file.write_bytes(data[: len(data) * 2 // 3])
    status, out, err = trace("--from", file, "--at", "23:58")
    assert status == 0
    assert "tank/db" in out
    assert re.match(rf"zfstune: {file} is cut short after [0-9]+ records\n", err)


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["--at", "12:00"], "--at: 12:00 is not in ", "it is from 2026-11-26 23:56:40 UTC to "),
        (["--at", "noon"], "--at: 'noon' is no time", "write it like 03:05"),
        (["fsync", "tnak"], "no pool 'tnak' in ", "choose from tank, idle"),
        (["--pool", "tnak"], "no pool 'tnak' in ", "choose from tank, idle"),
        (["--interval", "1s"], "--interval is not possible with --from: a file has the", "leave"),
        (["fsync", "--duration", "1s"], "--duration is not possible with --from: a table", "leave"),
        (["fsync", "--pid", "1"], "--pid is not possible with --from", "leave out --pid"),
        (["fsync", "--light", "--every", "1m"], "--every is not possible", "leave out --every"),
        (["fsync", "--light", "--over", "1s"], "--over is about windows", "leave out --over"),
        (["arc", "--source", "kstat"], "--source is not possible", "leave out --source"),
        (["txg", "--no-fentry"], "--no-fentry is not possible", "leave out --no-fentry"),
        (
            ["slow", "--over", "1s", "--timeline", "x.json"],
            "--timeline is not possible with --from",
            "leave out --timeline",
        ),
    ],
)
def test_what_is_not_possible_is_an_error_of_one_line(
    trace: Run, full: Path, words: list[str], problem: str, hint: str
) -> None:
    status, out, err = trace(*words, "--from", full)
    assert (status, out) == (2, "")
    assert re.fullmatch(ONE_ERROR, err)
    assert problem in err
    assert f"hint: {hint}" in err


@pytest.mark.parametrize("words", [["--at", "12:00"], ["fsync", "--at", "12:00"]])
def test_a_moment_without_a_file_is_refused(trace: Run, words: list[str]) -> None:
    status, _, err = trace(*words)
    assert status == 2
    assert err == ("zfstune: error: --at is a moment in a file\nhint: name the file with --from\n")
