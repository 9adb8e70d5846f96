"""Parameters of a FreeBSD host are what sysctl(8) says, whoever sets, restores or keeps them: by
hand, by the rc.d script after a session was killed, or over a reboot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from lab.rows import Json
from support.errors import ONE_ERROR

from zfstune.tunables import catalogue

KEPT = {"zfs_txg_timeout": 7, "zfs_dirty_data_max": 64 << 20, "zfs_wrlog_data_max": 128 << 20}
SESSION = {"zfs_txg_timeout": 11, "zfs_delay_scale": 400_000, "zfs_arc_max": 2 << 30}


@pytest.fixture
def changes(scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("freebsd_changes", flavour)


# --- list, get, explain


def test_every_parameter_is_listed_as_sysctl_8_reads_it(changes: Json) -> None:
    listed = {row["freebsd"]: row["value"] for row in changes["list"] if row["freebsd"]}
    oids = catalogue.freebsd_names()
    assert len(changes["sysctl"]) > 70
    assert listed == {oids[name]: value for name, value in changes["sysctl"].items()}


@pytest.mark.parametrize("how", ["get", "get_by_oid"])
def test_get_prints_what_sysctl_8_reads(changes: Json, how: str) -> None:
    found = changes[how]
    assert found["status"] == 0, found
    pairs = (line.split("=") for line in found["stdout"].splitlines())
    assert {name: int(value) for name, value in pairs} == changes["sysctl"]


def test_each_is_explained(changes: Json) -> None:
    found = changes["explain"]
    assert found["status"] == 0, found
    words = set(re.findall(r"[\w.]+\w", found["stdout"]))
    assert words >= set(changes["sysctl"])
    assert words >= {catalogue.freebsd_names()[name] for name in changes["sysctl"]}


# --- set, status, revert


def test_all_that_can_be_set_is_set_and_reverted(changes: Json) -> None:
    found = changes["all"]
    assert found["set"]["status"] == 0, found["set"]
    access = {name: catalogue.load()[name].access for name in found["before"]}
    # 0 in arcstats there: the kernel computes no limit that a restore could write
    assert list(found["without"]) == ["zfs_arc_sys_free"]
    assert "could not be restored" in found["without"]["zfs_arc_sys_free"]
    settable = {name for name, what in access.items() if what == "rw"}
    assert set(found["wanted"]) == settable - {"zfs_arc_sys_free"}
    assert found["now"] == found["before"] | found["wanted"]
    assert found["revert"]["status"] == 0, found["revert"]
    restored = json.loads(found["revert"]["stdout"])
    assert {row["name"] for row in restored["restored"]} == set(found["wanted"])
    assert restored["failed"] == restored["kept"] == restored["gone"] == []
    assert found["after"] == found["before"]


def test_status_shows_what_is_set(changes: Json) -> None:
    found = changes["all"]
    status = json.loads(found["status"]["stdout"])
    assert status["state"] == "changed"
    rows = {row["name"]: (row["value"], row["before"]) for row in status["parameters"]}
    before = found["before"]
    assert rows == {name: (value, before[name]) for name, value in found["wanted"].items()}
    assert json.loads(found["status_after"]["stdout"])["state"] == "unchanged"


def test_revert_prints_commands_of_sysctl_8(changes: Json) -> None:
    lines = changes["all"]["commands"]["stdout"].splitlines()
    assert "sysctl vfs.zfs.txg.timeout=5" in lines
    assert all(re.match(r"sysctl vfs\.zfs\.[\w.]+=\d+$|sleep 1 ", line) for line in lines), lines


def test_what_must_not_be_set_is_refused(changes: Json) -> None:
    refused = changes["refused"]
    access = {name: one.access for name, one in catalogue.load().items()}
    assert {name for name in refused if name in access} == {
        name for name in changes["sysctl"] if access[name] != "rw"
    } | {"zfs_txg_timeout"}
    for name, found in refused.items():
        assert found["status"] == 2, (name, found)
        assert re.fullmatch(ONE_ERROR, found["stderr"]), found
    assert changes["after_refusals"] == changes["all"]["before"]


def test_the_kernel_refuses_a_limit_of_the_arc(changes: Json) -> None:
    assert "the kernel refuses it for vfs.zfs.arc.max: it must be between" in changes["by_kernel"]


def test_what_an_administrator_sets_stays(changes: Json) -> None:
    found = changes["administrator"]
    rows = [line.split() for line in found["status"]["stdout"].splitlines()]
    assert ["zfs_txg_timeout", "9", "s", "5", "s", "set", "by", "another", "process"] in rows
    assert found["revert"]["status"] == 0
    assert "zfs_delay_scale: 400us -> 500us" in found["revert"]["stdout"]
    assert "`sysctl vfs.zfs.txg.timeout=5` sets its previous value" in found["revert"]["stdout"]
    assert found["after"] == changes["all"]["before"] | {"zfs_txg_timeout": 9}


# --- installation and rc.d


def test_all_of_it_is_installed_and_works(changes: Json) -> None:
    found = changes["install"]
    assert found["install"]["status"] == found["tools"]["status"] == 0, found
    below = {path.removeprefix("/usr/local/") for path in found["files"]}
    assert below >= {
        "bin/zfstune",
        "etc/rc.d/zfstune",
        "lib/zfstune",
        "lib/zfstune/dtrace/zilevent-json.d",
        "sbin/zilcommit.d",
        "share/man/man1/zfstune.1",
        "share/man/man8/zilcommit.d.8",
    }
    assert (found["command"]["status"], found["command"]["stdout"]) == (0, "zfs_txg_timeout=5\n")


def test_uninstalling_leaves_nothing(changes: Json) -> None:
    assert changes["uninstall"]["status"] == changes["uninstall_tools"]["status"] == 0
    assert changes["files_left"] == []


def test_the_service_starts_once_and_stops(changes: Json) -> None:
    assert "Set zfstune_enable to YES" in changes["install"]["disabled"]["stdout"]
    found = changes["service"]
    for one in (found["before"], found["stopped"]):
        assert (one["status"], one["stdout"]) == (1, "zfstune is not running.\n")
    assert found["start"]["status"] == 0, found["start"]
    assert found["status"]["status"] == 0
    assert re.fullmatch(r"zfstune is running as pid \d+\.\n", found["status"]["stdout"])
    assert "already running" in found["again"]["stdout"]
    assert found["loops"] == 1
    assert found["restarted"], found
    assert found["stop"]["status"] == 0, found["stop"]
    assert found["ended"]


@pytest.mark.parametrize("who", ["session", "both"])
def test_values_of_a_killed_session_come_back(changes: Json, who: str) -> None:
    """By its supervisor, or, if that was killed as well, by the loop of the rc.d script."""
    found = changes["service"][who]
    assert found["in_force"] == SESSION
    assert found["back"], found
    assert found["after"] == changes["service"]["original"]


def test_stop_reverts_only_if_told_to(changes: Json) -> None:
    found = changes["service"]
    assert found["set"]["status"] == found["stop_keeps"]["status"] == 0, found
    assert found["kept"] == {"zfs_txg_timeout": 7}
    assert found["stop_reverts"]["status"] == 0, found["stop_reverts"]
    assert found["reverted"] == found["original"]


# --- keep, over a reboot


def test_keep_puts_the_lines_of_others_aside(changes: Json) -> None:
    found = changes["keep"]
    assert (found["nothing"]["status"], found["print"]["status"]) == (1, 0)
    assert found["untouched"]
    assert found["keep"]["status"] == 0, found["keep"]
    lines = found["file"].splitlines()
    assert "# mine" in lines and "vfs.zfs.prefetch.disable=1" in lines
    assert "#zfstune-aside# vfs.zfs.txg.timeout=9" in lines
    ours = [line for line in lines if line.endswith("# zfstune keep")]
    assert sorted(line.split("  #")[0] for line in ours) == [
        f"{catalogue.freebsd_names()[name]}={value}" for name, value in sorted(KEPT.items())
    ]
    assert (
        "the line `vfs.zfs.txg.timeout=9` of /etc/sysctl.conf becomes a comment"
        in (found["keep"]["stderr"])
    )
    assert (
        "/boot/loader.conf also sets vfs.zfs.dirty_data_max=134217728; /etc/sysctl.conf is read "
        "later and wins"
    ) in found["keep"]["stderr"]
    assert json.loads(found["status"]["stdout"])["boot"] == KEPT


def test_the_next_boot_sets_what_is_kept_and_nothing_else(changes: Json) -> None:
    """Neither what was only set, nor what a killed session has left."""
    found = changes["rebooted"]
    assert changes["session"] == SESSION
    assert {name: found["values"][name] for name in KEPT} == KEPT
    # the loader's line, and the administrator's in sysctl.conf
    assert found["values"]["zfs_txg_history"] == 77
    assert found["prefetch"] == "1\n"
    # of the memory that the kernel had when the module started
    computed = {"zfs_dirty_data_max_max", "zfs_arc_free_target"}
    wanted = changes["all"]["before"] | KEPT | {"zfs_txg_history": 77}
    assert {n: value for n, value in found["values"].items() if n not in computed} == {
        n: value for n, value in wanted.items() if n not in computed
    }
    assert found["lastload"] == found["values"]


def test_after_a_reboot_nothing_is_changed(changes: Json) -> None:
    found = changes["rebooted"]
    status = json.loads(found["status"]["stdout"])
    assert (status["state"], status["parameters"], status["layers"]) == ("unchanged", [], [])
    assert status["boot"] == KEPT
    assert "no parameter is changed by zfstune" in found["text"]["stdout"]
    assert (found["revert"]["status"], found["revert"]["stdout"]) == (0, "nothing to restore\n")
    assert "the next boot sets zfs_dirty_data_max, zfs_txg_timeout" in found["revert"]["stderr"]
    assert found["after"] == found["values"]
    assert found["boot"]["status"] == 0, found["boot"]


def test_the_service_runs_after_a_reboot(changes: Json) -> None:
    assert changes["rebooted"]["service"]["status"] == 0, changes["rebooted"]["service"]
    assert changes["rebooted"]["loops"] == 1


def test_remove_gives_the_lines_of_others_back(changes: Json) -> None:
    found = changes["rebooted"]
    assert found["remove"]["status"] == 0, found["remove"]
    assert found["file"] == changes["keep"]["sysctl_conf"]
