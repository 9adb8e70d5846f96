"""The matrix of a report: its rows, agreement with it, its output, and its end."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_host import FakeHost, FakeStop
from support.samples import scratch_disk

from zfstrace import types
from zfstrace.disk import Scratch
from zfstrace.errors import TraceError
from zfstune.bench import scratch
from zfstune.bench.load import TESTS, BenchFailed, Rate
from zfstune.bench.matrix import command, html, pools, runner
from zfstune.bench.matrix import rows as bench_rows
from zfstune.bench.matrix import text as bench_matrix_view
from zfstune.bench.matrix.result import MatrixResult, RowResult
from zfstune.bench.matrix.rows import Matrix, Pair, ReportRow
from zfstune.bench.matrix.runner import MatrixBench
from zfstune.bench.measure import MeasuredTest
from zfstune.bench.scratch import Wanted
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.term.signals import Stop
from zfstune.term.table import Style
from zfstune.term.units import SECOND

MATRIX = bench_rows.load_matrix("reports-2014")
BY_NAME = {test.name: test for test in TESTS}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rate(test: str, per_s: float) -> MeasuredTest:
    return MeasuredTest(Rate(BY_NAME[test], per_s, None, None, "fio 3.39"), None, "not on ZFS", 0)


# rows


def test_each_row_is_complete() -> None:
    ids = [row.id for row in MATRIX.rows]
    assert len(set(ids)) == len(ids)
    for row in MATRIX.rows:
        assert row.kind in bench_rows.KINDS and row.on in bench_rows.ON
        assert set(row.tests) <= set(BY_NAME) and set(row.reported) <= set(row.tests)
        assert not row.like or row.like in ids[: ids.index(row.id)]
        assert row.limit is None or row.limit in ids
        assert row.reported or row.words or row.kind == "raw" or row.id == "compression-off"


def test_the_report_agrees_with_itself() -> None:
    measured = {(row.id, test): n for row in MATRIX.rows for test, n in row.reported.items()}
    found = bench_rows.pairs(MATRIX, measured)
    assert found and all(pair.agrees and pair.reported >= 1 for pair in found)


def test_a_row_reported_in_words_is_compared_with_the_row_it_names() -> None:
    measured = {("compression-off", "fdatasync"): 300.0, ("compression-lz4", "fdatasync"): 310.0}
    (pair,) = bench_rows.pairs(MATRIX, measured)
    assert (pair.one, pair.other, pair.reported) == ("compression-off", "compression-lz4", 1.0)
    assert pair.agrees


rates = st.floats(0.01, 1e7)


@given(rates, rates)
def test_a_pair_reversed_is_judged_the_same(reported: float, measured: float) -> None:
    one = Pair("fsync", "a", "b", reported, measured)
    other = Pair("fsync", "b", "a", 1 / reported, 1 / measured)
    near = any(abs(abs(x) / bench_rows.SAME - 1) < 1e-9 for x in (reported, 1 / reported))
    near |= any(abs(abs(x) / bench_rows.SAME - 1) < 1e-9 for x in (measured, 1 / measured))
    assert near or (one.agrees, one.reversed) == (other.agrees, other.reversed)
    assert not (one.agrees and one.reversed)


@given(st.dictionaries(st.sampled_from([row.id for row in MATRIX.rows]), rates))
def test_only_what_was_measured_is_compared(values: dict[str, float]) -> None:
    measured = {(row, "fdatasync"): n for row, n in values.items()}
    for pair in bench_rows.pairs(MATRIX, measured):
        assert {pair.one, pair.other} <= set(values) and pair.test == "fdatasync"
        assert pair.measured == pytest.approx(values[pair.one] / values[pair.other])


# disks


def confirmed(host: FakeHost, *paths: str, force: tuple[str, ...] = (), answer: str = "") -> None:
    wanted = [Wanted("--disk", path) for path in paths]
    scratch.confirm(host, wanted, force, yes=not answer, source=Terminal(answer))


@pytest.fixture
def host() -> FakeHost:
    found = FakeHost()
    found.scratches = {path: scratch_disk(path) for path in ("/dev/sdx", "/dev/sdy")}
    return found


@pytest.mark.parametrize(
    ("changed", "force", "text"),
    [
        ({"data": ("ext4 home",)}, (), "carries data (ext4 home)"),
        ({"data": ("ext4 \x1b[31m",)}, (), "carries data (ext4 ?[31m)"),
        ({"data": ("ext4",)}, ("/dev/sdy",), "carries data (ext4)"),
        ({"in_use": "is mounted on /home"}, (), "is mounted on /home: not erased"),
        ({"in_use": "is mounted on /home"}, ("/dev/sdx",), "not even with --force-erase"),
        ({"size_bytes": 512 << 20}, ("/dev/sdx",), "is too small: it has 512M, 1.00G"),
    ],
)
def test_disks_in_use_or_with_data_are_refused(
    host: FakeHost, changed: dict[str, Any], force: tuple[str, ...], text: str
) -> None:
    host.scratches["/dev/sdx"] = scratch_disk(**changed)
    with pytest.raises(NotPossible) as error:
        confirmed(host, "/dev/sdx", "/dev/sdy", force=force)
    assert text in str(error.value) and "\n" not in str(error.value)


def test_only_named_disks_can_be_forced(host: FakeHost) -> None:
    with pytest.raises(UsageError, match="no other option names this disk") as error:
        confirmed(host, "/dev/sdx", force=("/dev/sdz",))
    assert error.value.hint == "repeat one of /dev/sdx exactly"
    host.scratches["/dev/sdx"] = scratch_disk(data=("ext4",))
    confirmed(host, "/dev/sdx", force=("/dev/sdx",))


def test_one_disk_by_two_names_is_refused(host: FakeHost) -> None:
    host.scratches["/dev/disk/by-id/x"] = scratch_disk(
        path="/dev/disk/by-id/x", dev=scratch_disk().dev
    )
    with pytest.raises(UsageError, match="are one disk"):
        confirmed(host, "/dev/sdx", "/dev/disk/by-id/x")


def test_a_disk_and_its_partition_are_refused(host: FakeHost) -> None:
    host.scratches["/dev/sdx1"] = scratch_disk("/dev/sdx1", disk=scratch_disk().dev)
    for paths in (("/dev/sdx", "/dev/sdx1"), ("/dev/sdx1", "/dev/sdx")):
        with pytest.raises(UsageError, match="/dev/sdx1 is on /dev/sdx"):
            confirmed(host, *paths)


def test_two_partitions_of_a_disk_may_be_used(host: FakeHost) -> None:
    for name in ("/dev/sdx1", "/dev/sdx2"):
        host.scratches[name] = scratch_disk(name, disk=scratch_disk().dev)
    confirmed(host, "/dev/sdx1", "/dev/sdx2")


@pytest.mark.parametrize("answer", ["\n", "yes\n", "/dev/sdx\n", "/dev/sdx /dev/sdy /dev/sdz\n"])
def test_any_answer_but_their_names_erases_nothing(host: FakeHost, answer: str) -> None:
    with pytest.raises(UsageError, match="nothing was erased"):
        confirmed(host, "/dev/sdx", "/dev/sdy", answer=answer)
    assert host.erased == []


def test_their_names_in_any_order_confirm(
    host: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    confirmed(host, "/dev/sdx", "/dev/sdy", answer="/dev/sdy  /dev/sdx\n")
    said = capsys.readouterr().err
    assert "all data on these disks will be destroyed" in said
    assert "/dev/sdx" in said and "4.00G" in said and "ACME" in said and "blank" in said


def test_without_a_terminal_yes_is_required(host: FakeHost) -> None:
    with pytest.raises(UsageError, match="not a terminal") as error:
        scratch.confirm(host, [Wanted("--disk", "/dev/sdx")], (), yes=False, source=io.StringIO())
    assert error.value.hint == "repeat with --yes"


def test_disks_that_cannot_be_blanked_are_named(host: FakeHost) -> None:
    def fails(disk: Scratch) -> None:
        raise OSError(5, "Input/output error")

    host.erase = fails  # type: ignore[method-assign]
    assert scratch.blank(host, [scratch_disk()]) == [
        "test data is left on /dev/sdx (Input/output error)"
    ]


# running


class FakeLoad:
    name = "fio 3.39"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail_at: int | None = None
        self.stop_at: int | None = None
        self.stop: FakeStop | None = None

    def lacks(self, _test: object) -> str:
        return ""

    def run(self, test: Any, where: Path, seconds: float, stop: Stop, watch: Any = None) -> Any:
        self.calls.append(test.name)
        if self.fail_at == len(self.calls):
            raise BenchFailed("fio ended with status 1: Input/output error")
        if self.stop_at == len(self.calls):
            assert self.stop
            self.stop.asked = True
        if stop.wait(int(seconds * SECOND)):
            return None
        if watch:
            watch.begun()
            watch.ended()
        return Rate(test, 100.0, None, None, self.name)


class Rig:
    """A bench of made-up disks that only records its pools."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **given: Any) -> None:
        self.host, self.stop, self.load = FakeHost(), FakeStop(), FakeLoad()
        self.load.stop = self.stop
        self.made: list[str] = []
        self.undone: list[str] = []
        rig = self

        def make(row: ReportRow, *rest: Any) -> pools.Target:
            rig.made.append(row.id)
            rest[-1].pool = "zfstune-bench-1"
            return pools.Target(tmp_path, None)

        monkeypatch.setattr(pools, "make", make)
        monkeypatch.setattr(pools.Made, "undo", lambda made: rig.undone.append(made.pool or ""))
        defaults = {"duration": SECOND, "json": True, "keep_going": False}
        self.args = argparse.Namespace(**(defaults | given))

    def run(self, *ids: str) -> MatrixResult:
        rows = [MATRIX.of(name) for name in ids]
        bench = MatrixBench(
            self.args,
            MATRIX,
            self.host,
            self.load,
            [scratch_disk("/dev/sdx")],
            scratch_disk("/dev/sdy"),
        )
        return bench.run(rows, self.stop)


def test_each_row_is_measured_on_blank_disks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig(monkeypatch, tmp_path)
    found = rig.run("slog", "recordsize-8k")
    assert found.whole and len(rig.made) == len(rig.undone) == 2
    assert rig.host.erased == ["/dev/sdx", "/dev/sdy", "/dev/sdx", "/dev/sdx", "/dev/sdy"]
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["row"] for row in rows] == ["slog", "recordsize-8k"]
    assert all(row["failed"] is None and row["type"] == "bench_row" for row in rows)
    assert found.to_json()["first"] == "slog"


def test_a_failure_ends_it_and_keeps_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rig = Rig(monkeypatch, tmp_path)
    rig.load.fail_at = 3
    found = rig.run("slog", "recordsize-8k")
    assert rig.made == ["slog"] and rig.undone == ["zfstune-bench-1"]
    assert len(found.results[0].measured) == 1 and not found.whole
    assert "Input/output error" in (found.results[0].failed or "")


def test_keep_going_continues_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rig = Rig(monkeypatch, tmp_path, keep_going=True)
    rig.load.fail_at = 3
    found = rig.run("slog", "recordsize-8k")
    assert rig.made == ["slog", "recordsize-8k"]
    assert found.results[0].failed and not found.results[1].failed


@pytest.mark.parametrize("at", range(1, 12))
def test_an_interrupt_at_any_test_destroys_the_pool_and_blanks_the_disks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: int
) -> None:
    rig = Rig(monkeypatch, tmp_path)
    rig.load.stop_at = at
    found = rig.run("slog", "recordsize-8k", "flash")
    assert found.interrupted and not found.whole
    assert len(rig.undone) == len(rig.made)
    assert rig.host.erased[-2:] == ["/dev/sdx", "/dev/sdy"]
    last = found.results[-1]
    assert last.failed == (None if len(last.measured) == len(last.row.tests) else "interrupted")


def test_an_exchanged_disk_is_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rig = Rig(monkeypatch, tmp_path)

    def changed(disk: Scratch) -> None:
        raise TraceError("/dev/sdx is not the disk any more that it was, nothing was written")

    rig.host.erase = changed  # type: ignore[method-assign]
    found = rig.run("slog")
    assert rig.made == [] and "not the disk any more" in (found.results[0].failed or "")
    assert len(found.left) == 2


def test_a_suspended_pool_ends_the_test() -> None:
    host, stop = FakeHost(), FakeStop()
    made = pools.Made(host, pool="zfstune-bench-1", devices=("/dev/null",))
    until = runner.StuckStop(stop, made.stuck)
    assert not until.wait(1) and not until.asked
    host.state = "SUSPENDED"
    assert until.wait(SECOND) and until.asked and made.stuck() == "the pool is SUSPENDED"
    made.devices = ("/dev/null", "/dev/nowhere")
    assert until.asked and made.stuck() == "/dev/nowhere is gone"
    assert not stop.asked


# what is left


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The commands that would be run; the pool's guid is 7."""
    done: list[list[str]] = []

    def ran(words: Any, _limit_s: float) -> str:
        done.append(list(words))
        return ""

    monkeypatch.setattr(pools, "_run", ran)
    monkeypatch.setattr(pools, "_guid", lambda _pool: "7")
    yield done


def test_only_its_own_pool_is_destroyed(commands: list[list[str]], tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    made = pools.Made(FakeHost(), directory, False, "zfstune-bench-1", "7")
    made.undo()
    assert commands == [["zpool", "destroy", "-f", "--", "zfstune-bench-1"]]
    assert made.left == [] and not directory.exists()
    host = FakeHost()
    host.pools = lambda: ["zfstune-bench-1"]  # type: ignore[method-assign]
    other = pools.Made(host, None, False, "zfstune-bench-1", "8")
    other.undo()
    assert len(commands) == 1 and "is not the one that was created" in other.left[0]


def test_the_directory_of_a_pool_that_somebody_destroyed_is_removed(
    commands: list[list[str]], tmp_path: Path
) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    made = pools.Made(FakeHost(), directory, False, "zfstune-bench-1", "8")
    made.undo()
    assert commands == [] and made.left == [] and not directory.exists()


def test_a_hanging_command_times_out() -> None:
    assert pools._run(["sleep", "60"], 0.2) == "`sleep 60` does not end"
    assert pools._run(["true"], 10) == ""
    assert pools._run(["false"], 10) == "false ended with status 1"
    assert "No such file" in pools._run(["/nowhere/zpool"], 10)


@pytest.mark.parametrize("state", types.WRITES_BLOCKED)
def test_a_suspended_pool_is_left(commands: list[list[str]], state: str) -> None:
    host = FakeHost()
    host.state = state
    made = pools.Made(host, None, False, "zfstune-bench-1", "7")
    made.undo()
    assert commands == []
    assert f"cannot be destroyed: the pool is {state}" in made.left[0]


def test_pools_of_earlier_runs_are_named() -> None:
    host = FakeHost()
    host.pools = lambda: ["tank", "zfstune-bench-0a1b2c"]  # type: ignore[method-assign]
    (line,) = pools.leftovers(host)
    assert "remove it with `zpool destroy zfstune-bench-0a1b2c`" in line


@pytest.mark.parametrize("row", [row for row in MATRIX.rows if row.kind == "zfs"])
def test_pools_are_created_without_force(commands: list[list[str]], row: ReportRow) -> None:
    made = pools.Made(FakeHost())
    place = pools.make(row, FakeHost(), [scratch_disk("/dev/sdx")], scratch_disk("/dev/sdy"), made)
    (words,) = commands
    assert words[:2] == ["zpool", "create"] and "-f" not in words
    assert "failmode=wait" in words and "cachefile=none" in words
    assert ("log" in words) == (row.on == "disks+slog")
    assert place.pool and place.pool.startswith(pools.PREFIX) and place.pool == made.pool
    for name, value in row.dataset.items():
        assert f"{name}={value}" in words
    made.devices = ()
    made.undo()
    assert made.left == []


# output


def found_of(**values: dict[str, float]) -> MatrixResult:
    found = MatrixResult(MATRIX, "2.3.9-1")
    for name, tests in values.items():
        row = MATRIX.of(name.replace("_", "-"))
        found.results.append(RowResult(row, [rate(test, n) for test, n in tests.items()]))
    return found


def test_the_table_compares_rows_with_the_report() -> None:
    found = found_of(
        raw_slog={"fdatasync": 2000.0},
        slog={"fdatasync": 1900.0, "plain": 10_000.0},
        slog_throughput={"fdatasync": 150.0},
        flash={"fdatasync": 400.0},
    )
    found.results[-1].failed = "interrupted"
    lines = bench_matrix_view.view(found, Style())
    text = "\n".join(lines)
    assert lines[0].endswith("2014: here ZFS 2.3.9-1, fio 3.39")
    assert " 95 %" in text and "1.00x" in text and "0.079x" in text
    assert " 331/s  0.045x" in text and "interrupted" in text
    assert "orderings: 2 of 3 pairs of rows agree" in text
    assert "slog against flash: reported the same (1.10x), here faster (4.75x)" in text
    assert all(len(line) < 100 for line in lines)


def test_the_page_compares_rows_with_the_report() -> None:
    found = found_of(slog={"fdatasync": 1900.0}, slog_throughput={"fdatasync": 1800.0})
    found.left = ["pool <b> is SUSPENDED"]
    text = html.render(found)
    assert "logbias=throughput" in text and "1,800/s" in text and "331/s" in text
    assert "here the same (1.06x)" in text and "pool &lt;b&gt; is SUSPENDED" in text


def test_losses_of_the_trace_fail_the_matrix() -> None:
    found = found_of(slog={"fdatasync": 1900.0})
    assert found.whole
    found.results[0].measured[0] = replace(found.results[0].measured[0], lost=3)
    assert not found.whole
    assert bench_matrix_view.view(found, Style())[-1] == "lost 3"


def test_without_results_no_rows_are_compared() -> None:
    text = "\n".join(bench_matrix_view.view(MatrixResult(MATRIX, ""), Style()))
    assert "no two rows" in text


# command line


def options(**given: Any) -> argparse.Namespace:
    defaults: dict[str, Any] = {"matrix": "reports-2014", "rows": None, "slog": None}
    return argparse.Namespace(**(defaults | given))


def test_rows_with_a_slog_need_slog(capsys: pytest.CaptureFixture[str]) -> None:
    rows = command._rows(MATRIX, options())
    assert rows and all("slog" not in row.on for row in rows)
    assert "rows are skipped" in capsys.readouterr().err
    with pytest.raises(UsageError, match="--slog is missing"):
        command._rows(MATRIX, options(rows=["slog"]))


def test_unknown_rows_and_matrices_are_refused_with_a_guess() -> None:
    with pytest.raises(CommandError, match="no row 'recordsize-8K'") as error:
        command._rows(MATRIX, options(rows=["recordsize-8K"]))
    assert error.value.hint == "did you mean recordsize-8k?"
    with pytest.raises(CommandError, match="no matrix 'reports'") as error:
        command._matrix(options(matrix="reports"))
    assert error.value.hint == "choose reports-2014"


def test_a_matrix_is_data() -> None:
    data = {
        "title": "t",
        "source": "s",
        "tests": ["fsync"],
        "row": [{"id": "a", "label": "A", "kind": "zfs", "on": "disks"}],
    }
    assert bench_rows.parse_matrix("m", data) == Matrix(
        "m", "t", "s", (ReportRow("a", "A", "zfs", "disks", ("fsync",)),)
    )
