"""Scenario: parameters of FreeBSD are read, set, restored and kept over a reboot: by commands
and, after sessions were killed, by the rc.d script of an installation."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from forked import zfstune
from labkit import Json, finish, progress, run, sh
from zfstrace.errors import ParameterError
from zfstune.changes.session import ChangeSession
from zfstune.host import open_host
from zfstune.tunables import catalogue, guard, planner

SYSCTL_CONF = Path("/etc/sysctl.conf")
LOADER_CONF = Path("/boot/loader.conf")
RC_CONF = Path("/etc/rc.conf")
PIDFILE = Path("/var/run/zfstune-recover.pid")
MARK = Path("/var/run/zfstune/session")
SO_FAR = Path("/var/results.json")
INSTALL = ["python3", "/zfstune/scripts/install.py"]
KEPT = {"zfs_txg_timeout": 7, "zfs_dirty_data_max": 64 << 20, "zfs_wrlog_data_max": 128 << 20}
SESSION = {"zfs_txg_timeout": 11, "zfs_delay_scale": 400_000, "zfs_arc_max": 2 << 30}
MINE = """\
# mine
vfs.zfs.txg.timeout=9
vfs.zfs.prefetch.disable=1
"""
# rc.d/sysctl runs before rc.d/kld, which would load ZFS here
MINE_EARLIER = """\
zfs_load="YES"
vfs.zfs.dirty_data_max="128M"
vfs.zfs.txg.history="77"
"""
DEADLINE_S = 120


def by_sysctl(names: Iterable[str] | None = None) -> dict[str, int]:
    """Parameters as sysctl(8) prints them: all, or these."""
    oids = {oid: name for name, oid in catalogue.freebsd_names().items()}
    wanted = oids if names is None else [catalogue.freebsd_names()[name] for name in names]
    lines = sh(f"sysctl -e -i {' '.join(wanted)}").splitlines()
    return {oids[oid]: int(value) for oid, _, value in (line.partition("=") for line in lines)}


def until(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE_S
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def reading(results: Json) -> None:
    progress("list, get, explain")
    names = list(by_sysctl())
    listed = run(["zfstune", "params", "list", "--all", "--json"])
    results["list"] = json.loads(listed["stdout"])["parameters"]
    results["sysctl"] = by_sysctl()
    results["get"] = zfstune("params", "get", *names)
    oids = catalogue.freebsd_names()
    results["get_by_oid"] = zfstune("params", "get", *(oids[name] for name in names))
    results["explain"] = zfstune("params", "explain", *names)


def others() -> tuple[dict[str, int], dict[str, str]]:
    """Another legal value for each parameter that can be set, as near as possible; and why there is
    none."""
    host = open_host()
    state, facts = guard.state(host.parameters()), guard.facts(host)
    found: dict[str, int] = {}
    refused: dict[str, str] = {}
    names = [name for name, one in catalogue.load().items() if one.access == "rw" and name in state]
    # some only after the limits that come behind them
    for name in (*names, *names):
        if name in found:
            continue
        now, (low, high) = state[name], guard.bounds(name, state | found, facts)
        for value in (now + 1, now - 1, now * 2, now // 2, low, high):
            if value is None or value < 0 or value == now:
                continue
            try:
                planner.plan(state, found | {name: value}, facts)
            except guard.Refused as why:
                refused[name] = str(why)
            else:
                found[name] = value
                refused.pop(name, None)
                break
    return found, refused


def setting(results: Json) -> None:
    progress("set, status, revert")
    found: Json = {"before": by_sysctl()}
    found["wanted"], found["without"] = others()
    pairs = [f"{name}={value}" for name, value in found["wanted"].items()]
    found["set"] = zfstune("params", "set", "--json", *pairs)
    found["now"] = by_sysctl()
    found["status"] = zfstune("status", "--json")
    found["commands"] = zfstune("revert", "--print")
    found["revert"] = zfstune("revert", "--json")
    found["after"] = by_sysctl()
    found["status_after"] = zfstune("status", "--json")
    results["all"] = found
    results["refused"] = {
        name: zfstune("params", "set", f"{name}={value + 1}")
        for name, value in found["before"].items()
        if catalogue.load()[name].access != "rw"
    }
    results["refused"] |= {
        text: zfstune("params", "set", text)
        for text in ("zfs_txg_timeout=0s", "zfs_arc_max=1M", "vfs.zfs.nothing=1", "zfs_txg_timeout")
    }
    results["after_refusals"] = by_sysctl()
    try:
        open_host().parameters().write("zfs_arc_max", 1 << 20)
    except ParameterError as error:
        results["by_kernel"] = str(error)


def administrator(results: Json) -> None:
    """Sets one of two parameters after zfstune: `revert` restores only the other."""
    progress("administrator")
    found: Json = {"set": zfstune("params", "set", "zfs_txg_timeout=7s", "zfs_delay_scale=400us")}
    sh("sysctl vfs.zfs.txg.timeout=9")
    found["status"] = zfstune("status")
    found["revert"] = zfstune("revert")
    found["after"] = by_sysctl()
    sh("sysctl vfs.zfs.txg.timeout=5")
    results["administrator"] = found


def installation(results: Json) -> None:
    progress("install")
    found: Json = {"install": run(INSTALL), "tools": run([*INSTALL, "--tools"])}
    found["files"] = installed()
    found["command"] = run(["/usr/local/bin/zfstune", "params", "get", "vfs.zfs.txg.timeout"])
    found["disabled"] = run(["service", "zfstune", "start"])
    with RC_CONF.open("a") as file:
        file.write('zfstune_enable="YES"\nzfstune_pause="1"\n')
    results["install"] = found


def installed() -> list[str]:
    return sorted(line for line in sh("find /usr/local -name '*z[fi][sl]*'").splitlines())


def service(what: str) -> Json:
    return run(["service", "zfstune", what])


def loops() -> list[int]:
    """The loop below daemon(8)."""
    daemon = PIDFILE.read_text().strip() if PIDFILE.exists() else "0"
    return [
        int(pid)
        for pid in sh("pgrep -f '^/bin/sh -c.*zfstune-recove[r]'", check=False).split()
        if pid != daemon
    ]


class Session:
    """A process that holds a session with values in force, until it is killed."""

    def __init__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                self._hold(theirs)
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(9)
        os.close(theirs)
        with os.fdopen(ours) as said:
            self.supervisor = int(said.readline())
        self.values = by_sysctl(SESSION)

    @staticmethod
    def _hold(out: int) -> None:
        with ChangeSession(open_host(), "a session", list(SESSION)) as session:
            session.apply(SESSION)
            os.write(out, f"{session.supervisor.pid}\n".encode())
            while session.alive():
                time.sleep(0.5)

    def kill(self, *, both: bool) -> None:
        if both:
            os.kill(self.supervisor, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def killed(original: dict[str, int], *, both: bool) -> Json:
    session = Session()
    session.kill(both=both)
    back = until(lambda: by_sysctl() == original and not MARK.exists())
    return {"in_force": session.values, "back": back, "after": by_sysctl()}


def services(results: Json) -> None:
    """The rc.d script with the real rc.subr and daemon(8)."""
    progress("service")
    original = by_sysctl()
    found: Json = {"before": service("status"), "start": service("start")}
    until(lambda: bool(loops()))
    found["status"] = service("status")
    found["again"] = service("start")
    found["loops"] = len(loops())
    first = loops()
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    found["restarted"] = until(lambda: bool(loops()) and loops() != first)
    progress("a session is killed, then with its supervisor")
    found["session"] = killed(original, both=False)
    found["both"] = killed(original, both=True)
    progress("stop")
    found["stop"] = service("stop")
    found["ended"] = until(lambda: not loops())
    found["stopped"] = service("status")
    found["set"] = zfstune("params", "set", "zfs_txg_timeout=7s")
    found["stop_keeps"] = service("stop")
    found["kept"] = by_sysctl(["zfs_txg_timeout"])
    conf = RC_CONF.read_text()
    RC_CONF.write_text(conf + 'zfstune_revert="YES"\n')
    found["stop_reverts"] = service("stop")
    RC_CONF.write_text(conf)
    found["reverted"] = by_sysctl()
    results["service"] = {**found, "original": original}


def keeping(results: Json) -> None:
    """An administrator has lines of his own in both files."""
    progress("keep")
    found: Json = {"sysctl_conf": SYSCTL_CONF.read_text() + MINE}
    SYSCTL_CONF.write_text(found["sysctl_conf"])
    LOADER_CONF.write_text(LOADER_CONF.read_text() + MINE_EARLIER)
    found["nothing"] = zfstune("keep")
    pairs = [f"{name}={value}" for name, value in KEPT.items()]
    found["set"] = zfstune("params", "set", *pairs, "zfs_delay_scale=400us")
    found["print"] = zfstune("keep", "--print", *KEPT)
    found["untouched"] = SYSCTL_CONF.read_text() == found["sysctl_conf"]
    found["keep"] = run(["/usr/local/bin/zfstune", "keep", *KEPT])
    found["file"] = SYSCTL_CONF.read_text()
    found["status"] = zfstune("status", "--json")
    results["keep"] = found


def before_reboot() -> None:
    results: Json = {}
    reading(results)
    setting(results)
    administrator(results)
    installation(results)
    services(results)
    keeping(results)
    results["boot_id"] = boot_id()
    # nobody restores its values before the reboot
    session = Session()
    results["session"] = session.values
    session.kill(both=True)
    SO_FAR.write_text(json.dumps(results))
    progress("reboot")
    subprocess.run(["reboot"], check=True)
    time.sleep(600)


def boot_id() -> str:
    said = sh("/zfstune/scripts/freebsd-check --only 'boot id'")
    found = re.search(r"PASS +boot id +(\w+)", said)
    return found[1] if found else said


def after_reboot() -> None:
    progress("after the reboot")
    results = json.loads(SO_FAR.read_text())
    found: Json = {"values": by_sysctl(), "prefetch": sh("sysctl -n vfs.zfs.prefetch.disable")}
    found["service"] = service("status")
    found["loops"] = len(loops())
    earlier = results["boot_id"]
    found["boot"] = run(
        ["/zfstune/scripts/freebsd-check", "--only", "boot id", "--earlier-boot", earlier]
    )
    found["status"] = zfstune("status", "--json")
    found["text"] = zfstune("status")
    found["revert"] = zfstune("revert")
    found["after"] = by_sysctl()
    # what rc(8) does at the end of the boot, for modules that came late
    sh("sysctl vfs.zfs.txg.timeout=5; service sysctl_lastload start")
    found["lastload"] = by_sysctl()
    found["remove"] = zfstune("keep", "--remove")
    found["file"] = SYSCTL_CONF.read_text()
    results["rebooted"] = found
    progress("uninstall")
    service("stop")
    results["uninstall"] = run([*INSTALL, "--uninstall"])
    results["uninstall_tools"] = run([*INSTALL, "--uninstall", "--tools"])
    results["files_left"] = installed()
    finish(results)


if __name__ == "__main__":
    (before_reboot if os.environ["ZFSTUNE_LAB_BOOT"] == "1" else after_reboot)()
