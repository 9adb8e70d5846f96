"""Bad input is an error; every way out detaches; datasets may come and go."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from attaching import may_skip, seen
from lab.guests import ATTEMPTS, again, count_boots
from lab.rows import Json, dataset_row, pool_row
from support.errors import ONE_ERROR, REFUSED

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def robust(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("robust", flavour)


@pytest.mark.parametrize(
    ("case", "status", "words"),
    [
        ("unknown pool", 2, "tank"),
        ("unknown dataset", 2, "tank/db"),
        ("pid that is not", 2, "4194300"),
        ("not root", 3, "CAP_SYS_ADMIN"),
        ("no BTF", 3, "BTF"),
        ("no sysfs", 3, "/sys is not mounted"),
        ("container", 3, "run zfstune on the host"),
        ("noexec", 3, "mounted noexec"),
        ("cut short", 3, "not complete"),
    ],
)
def test_bad_input_is_one_line(robust: Json, case: str, status: int, words: str) -> None:
    result = robust["bad"][case]
    assert result["status"] == status
    assert result["stdout"] == ""
    assert re.fullmatch(REFUSED, result["stderr"])
    assert words in result["stderr"]


def test_doctor_finds_every_probe(robust: Json) -> None:
    assert robust["doctor"]["status"] == 0
    assert re.search(r"^(\d+) of \1 probes found", robust["doctor"]["stdout"], re.MULTILINE)
    assert robust["doctor_json"]["status"] == 0
    assert robust["doctor_nobody"]["status"] == 3
    assert "CAP_SYS_ADMIN" in robust["doctor_nobody"]["stdout"]


def test_an_idle_pool_says_so(robust: Json) -> None:
    assert robust["idle"]["status"] == 0
    assert re.search(r"no fsync seen in 2\.\d s on tank", robust["idle"]["stdout"])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_print_and_detach(robust: Json, name: str) -> None:
    result = robust["signals"][name]
    assert result["status"] == 0
    assert "11 operations" in result["stdout"]
    assert "log_write" in result["stdout"]
    assert "Traceback" not in result["stderr"]
    assert result["programs"] == []


def test_events_before_the_end_are_shown(robust: Json) -> None:
    assert len(robust["behind"]["rows"]) == 37
    assert "37 fsyncs of 1.00 us or more" in robust["behind"]["stderr"]


def test_a_closed_stdout_ends_it(robust: Json) -> None:
    assert robust["head"]["stdout"].count("\n") == 1
    assert "Traceback" not in robust["head"]["stderr"]
    assert robust["head"]["programs"] == []


def test_trace_slow_ends_after_count(robust: Json) -> None:
    result = robust["slow_count"]
    assert result["status"] == 0
    assert result["stdout"].count(" fio ") == 5


def test_sigkill_leaves_no_program(robust: Json) -> None:
    assert robust["killed"] == {"--no-fentry": [], "default": []}
    assert dataset_row(robust["after_kill"]["rows"], "tank/db")["count"] == 13
    assert robust["events_left"] == ""


def test_without_tracefs_fsyncs_are_counted(robust: Json) -> None:
    row = dataset_row(robust["no_tracefs"]["rows"], "tank/db")
    assert (row["count"], row["lost"]) == (7, 0)


def test_datasets_may_come_and_go(robust: Json) -> None:
    rows = robust["moving"]["rows"]
    known = dataset_row(rows, "tank/db"), dataset_row(rows, "side/late"), pool_row(rows, "side")
    for row, expected in zip(known, (11 + 13 + 17, 19, 19), strict=True):
        assert seen(robust["host"], row, row["kinds"]["fsync"], expected)
    assert robust["moving"]["status"] == 0


def test_attaching_under_load_loses_nothing(robust: Json) -> None:
    rounds = robust["rounds"]
    assert rounds["counted"] > rounds["rounds"] > 0
    # the kernel may skip one in some hundreds
    assert rounds["lost"] <= (rounds["counted"] // 50 if may_skip(robust["host"]) else 0)
    assert rounds["writers_alive"]
    assert rounds["programs"] == []
    assert rounds["after"] == rounds["after_commits"] == 101
    for word in ("BUG", "Oops", "WARNING", "general protection", "Call Trace"):
        assert word not in rounds["dmesg"]


def test_without_zfs_trace_and_doctor_are_status_3(flavour: str) -> None:
    command = [str(ROOT / "scripts/lab"), "run", "--verbose", "--flavour", flavour]
    script = "zfstune trace fsync --duration 1s; echo status $?; zfstune doctor; echo status $?"
    command += ["--no-zfs", "--", "sh", "-c", script]
    for attempt in range(1, ATTEMPTS + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        count_boots("robust", flavour, done.stderr)
        if not again(attempt, "robust", flavour, done.stderr):
            break
    assert done.returncode == 0, done.stderr
    said = "".join(x for x in done.stderr.splitlines(True) if not x.startswith(("lab: ", "  | ")))
    assert re.fullmatch(ONE_ERROR, said), done.stderr
    assert "ZFS not loaded" in said
    assert "modprobe zfs" in said
    assert done.stdout.startswith("status 3\n")
    assert done.stdout.endswith("status 3\n")
