"""The unit of the exporter: what systemd thinks of it, what its sandbox leaves it, that it counts
there what ZFS counts, and that it is started again however it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from exporting import labels
from lab.rows import Json

# systemd-analyze(1): "OK"; "exposed" begins at 5
EXPOSURE = 3.0
READ_ONLY = "Read-only file system"


@pytest.fixture
def service(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("service", flavour)


def is_exact(found: Json) -> None:
    assert found["exported"] == found["kstat"] == found["wrote"]


def test_it_is_installed_and_not_enabled(service: Json) -> None:
    assert service["install"]["status"] == 0, service["install"]
    assert service["enabled"] == "disabled"
    promised = service["promised"]
    assert promised["Type"] == "notify"
    assert promised["CPUQuotaPerSecUSec"] == "250ms"
    assert int(promised["MemoryMax"]) <= 512 << 20
    # systemctl(1) has it of a unit that runs, and here another one runs
    assert re.search(r"^WatchdogSec=[0-9]+$", service["unit"], re.M)


@pytest.mark.parametrize("key", ["offline", "online"])
def test_its_exposure_is_low(service: Json, key: str) -> None:
    done = service[key]
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done["stdout"])
    assert found, done
    assert float(found[1]) < EXPOSURE, done["stdout"]


def test_it_starts_and_counts(service: Json) -> None:
    start = service["start"]
    assert (start["status"], start["ActiveState"]) == (0, "active"), start
    is_exact(service["counted"])


def test_its_sandbox_holds(service: Json) -> None:
    sandbox = service["sandbox"]
    assert sandbox["probe"]["status"] == sandbox["outside"]["status"] == 0, sandbox
    inside, outside = (json.loads(sandbox[key]["stdout"]) for key in ("probe", "outside"))
    for path in ("/sys/module/zfs/parameters/zfs_txg_timeout", "/proc/sys/vm/swappiness"):
        assert (inside[path], outside[path]) == (READ_ONLY, "done"), path
    for path in ("/usr/bin/env", "/etc/passwd"):
        assert inside[path] == READ_ONLY, path
    # what it needs
    assert inside["/sys/kernel/tracing/kprobe_events"] == inside["/dev/zfs"] == "done"
    assert inside["mine"] == "done"
    # no home, no disk, by whatever name
    assert inside["home"] in ("done", "Permission denied")
    assert inside["disks"] == [] and "vdb" in outside["disks"]
    assert inside["disk"] == "Operation not permitted"
    assert inside["run"] == READ_ONLY


def test_its_process_has_little(service: Json) -> None:
    found = service["sandbox"]["status"]
    # CAP_SYS_ADMIN (21) at most
    assert int(found["CapBnd"], 16) == int(found["CapEff"], 16) == 1 << 21
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    assert int(service["sandbox"]["oom_score_adj"]) > 0


def test_it_has_room_in_its_memory(service: Json) -> None:
    sandbox = service["sandbox"]
    assert 0 < sandbox["memory"] < sandbox["memory_max"] * 0.8


def test_it_is_started_again(service: Json) -> None:
    for key in ("killed", "hangs"):
        is_exact(service[key]["counted"])
    assert int(service["hangs"]["restarts"]) == int(service["killed"]["restarts"]) + 1
    assert "Traceback" not in service["journal"]


def test_its_record_outlives_a_restart(service: Json) -> None:
    found = service["recorder"]
    status = json.loads(found["status"]["stdout"])
    assert status["memory_locked"] is True and status["errors"] == 0
    first, second = found["first"]["head"], found["second"]["head"]
    assert found["again"]["status"] == 0
    # in ms, of a clock that each process reads anew
    begun = [datetime.fromisoformat(one["time_from"]) for one in (first, second)]
    assert abs(begun[1] - begun[0]) < timedelta(milliseconds=100)
    assert first["time_to"] < second["time_to"]
    assert "continued" in service["journal"]


def test_its_dumps_are_roots(service: Json) -> None:
    found = service["recorder"]
    assert found["into"]["status"] == 0, found["into"]
    rows = found["directory"].splitlines()
    assert rows[0].startswith("drwx------") and " 0 0 " in rows[0]
    dumps = [row for row in rows if "incident-" in row]
    assert len(dumps) == 1 and dumps[0].startswith("-rw-------")
    assert found["nobody"]["status"] == 2 and "denied" in found["nobody"]["stderr"]


def test_the_module_can_be_unloaded(service: Json) -> None:
    module = service["module"]
    assert {labels(series)["why"] for series in module["off"]} == {"no_zfs"}
    assert len(module["off"]) == 4
    assert module["went_back"] == []
    is_exact(module["counted"])
    # it was there all the time
    assert module["restarts"] == service["start"]["NRestarts"]


def test_stopping_leaves_nothing(service: Json) -> None:
    stop = service["stop"]
    assert (stop["status"], stop["ActiveState"], stop["Result"]) == (0, "inactive", "success")
    for key in ("stopped", "left"):
        assert service[key] == {"programs": [], "events": ""}


def test_less_privilege(service: Json) -> None:
    """For kprobes CAP_BPF and CAP_PERFMON suffice."""
    less = service["less"]
    assert "Traceback" not in less["journal"]
    assert less["start"]["status"] == 0, less["journal"]
    is_exact(less["counted"])
    # CAP_PERFMON is 38, CAP_BPF 39
    assert int(less["capabilities"]["CapEff"], 16) == 3 << 38
    hows = {labels(series)["how"] for series in less["probes"]}
    assert "kprobe" in hows and "fentry" not in hows
