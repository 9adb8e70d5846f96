"""`zfstune bench --matrix` erases the named disks and nothing else, however it ends. No time or
rate is judged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

Json = dict[str, Any]

# What each refusal says, and its status: 2 for the command line, 3 for the disk.
REFUSALS = {
    "file system": ("carries data", 3),
    "wrong name": ("no other option names this disk", 2),
    "another name of it": ("no other option names this disk", 2),
    "nobody to ask": ("repeat with --yes", 2),
    "wrong answer": ("not the names of the disks", 2),
    "mounted": ("is mounted on /mnt", 3),
    "mounted, forced": ("is mounted on /mnt", 3),
    "partition table": ("carries data (MBR", 3),
    "partition mounted": ("is mounted on /mnt", 3),
    "partition mounted, forced": ("is mounted on /mnt", 3),
    "swap, forced": ("is used for swap", 3),
    "imported pool": ("is part of the pool victim", 3),
    "imported pool, forced": ("not even with --force-erase", 3),
    "imported pool, its partition": ("is part of the pool victim", 3),
    "exported pool": ("carries data (GPT, ZFS victim", 3),
    "loop, forced": ("is behind loop0", 3),
    "dm": ("is used by vdb-delay", 3),
    "unknown data": ("data of an unknown kind", 3),
    "volume": ("is a volume of a pool", 3),
    "too small": ("is too small", 3),
    "one twice": ("are one disk", 2),
    "file": ("is not a disk", 2),
    "nothing there": ("No such file", 2),
    "no disk": ("--disk is missing", 2),
    "no such row": ("did you mean recordsize-8k?", 2),
    "no such matrix": ("choose reports-2014", 2),
    "with a path": ("", 2),
}
NOTHING: Json = {"pools": [], "directories": [], "mounts": [], "fio": [], "programs": []}


@pytest.fixture
def found(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("bench_matrix", flavour)


def lines(text: str) -> list[Json]:
    return [json.loads(line) for line in text.splitlines()]


def part(found: Json, name: str) -> Any:
    if name not in found and not found["whole"]:
        pytest.skip("only with --signals 2, it takes minutes")
    return found[name]


def test_each_refusal_is_tried(found: Json) -> None:
    tried = found["refusals"].keys()
    assert tried == REFUSALS.keys() if found["whole"] else len(tried) == 5


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_with_one_line_and_nothing_written(found: Json, name: str) -> None:
    if name not in found["refusals"] and not found["whole"]:
        pytest.skip("only with --signals 2, it takes minutes")
    one = found["refusals"][name]
    text, status = REFUSALS[name]
    assert one["status"] == status, one
    assert text in one["stderr"]
    said = [line for line in one["stderr"].splitlines() if not line.startswith("hint: ")]
    # the disks are listed before the question
    assert len(said) == 1 or name == "wrong answer", one
    assert said[-1].count("zfstune: ") == 1
    assert not one["written"]


def test_a_forced_disk_is_erased_and_blank_afterwards(found: Json) -> None:
    forced = part(found, "forced")
    first, second = forced["first"], forced["second"]
    assert first["status"] == 0, first
    assert "all data on these disks will be destroyed" in first["stderr"]
    assert first["written"] and first["left"] == NOTHING
    # it is blank then, so that it need not be forced again
    assert second["status"] == 0, second


def test_each_row_has_rates_and_stages(found: Json) -> None:
    one = found["rows"]
    assert one["status"] == 0, one["stderr"]
    *rows, matrix = lines(one["stdout"])
    assert matrix["type"] == "bench_matrix" and matrix["first"] == "slog"
    assert not matrix["interrupted"] and matrix["left"] == []
    assert len(rows) >= 2
    assert len(matrix["pairs"]) == 4 * math.comb(len(rows) - 1, 2)
    for row in rows:
        assert row["failed"] is None
        names = [
            "fdatasync",
            *([] if row["kind"] == "raw" else ["fsync", "two-fdatasync", "plain"]),
        ]
        assert [test["test"] for test in row["tests"]] == names
        assert row["kind"] == "raw" or row["device_per_s"] > 0
        for test in row["tests"]:
            on_zfs = row["kind"] in ("zfs", "zvol")
            assert test["lost"] == 0 and (test["untraced"] is None) == on_zfs
            if on_zfs and test["test"] != "plain":
                assert test["fsync"]["count"] > 0
    assert one["left"] == NOTHING


def test_a_signal_at_any_moment_leaves_nothing(found: Json) -> None:
    for one in found["signals"]:
        assert one["left"] == NOTHING, one
        # it may also come before disks are examined, or after the end
        assert one["status"] in (0, 1, 130, -2, -15), one
        assert "Traceback" not in one["stderr"], one
        for line in lines(one["stdout"]):
            assert line["type"] in ("bench_row", "bench_matrix")
        if one["status"] == 1:
            assert lines(one["stdout"])[-1]["interrupted"], one


def test_what_sigkill_leaves_is_named_and_left_alone(found: Json) -> None:
    one = part(found, "killed")
    assert one["next"]["status"] == 3
    assert f"pool {one['pool']} was left by another `zfstune bench`" in one["next"]["stderr"]
    assert f"is part of the pool {one['pool']}" in one["next"]["stderr"]


def test_a_vanished_disk_is_named_with_what_is_left(found: Json) -> None:
    one = part(found, "vanished")
    assert one["status"] == 1, one
    assert "Traceback" not in one["stderr"]
    assert "/dev/vdd is gone" in json.loads(one["stdout"].splitlines()[0])["failed"]
    # ZFS cannot destroy a pool that is suspended: it says what is left
    assert f"left: pool {one['pool']} cannot be destroyed: " in one["stderr"]


def test_pools_of_others_are_untouched(found: Json) -> None:
    assert found["keep"] == {"same": True, "state": "ONLINE", "writes": 0}
