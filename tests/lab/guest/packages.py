"""Scenario: the packages of Debian, installed, upgraded, removed and purged, with nothing in force,
with values, and with sessions that run or were killed. /share has them in two versions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit import (
    PARAMETERS,
    SESSION,
    Json,
    finish,
    make_pool,
    progress,
    run,
    sh,
    values,
)
from uses import changed, everything

SHARE = Path("/share")
PACKAGED, CHECKOUT = "/usr/bin/zfstune", "/zfstune/bin/zfstune"
MODULES = {
    PACKAGED: ("/usr/lib/zfstune/python",),
    CHECKOUT: tuple(f"/zfstune/{name}" for name in ("tracers", "tuner", "platform/linux")),
}
JOURNALS = (Path("/run/zfstune/journal"), Path("/var/lib/zfstune/journal"))
KEPT = Path("/etc/modprobe.d/zfstune.conf")


def version(which: str = PACKAGED) -> str:
    return sh(f"{which} --version").split()[1]


def packages(number: str) -> list[str]:
    return [str(path) for path in sorted(SHARE.glob(f"*_{number}_*.deb"))]


def dpkg(*words: str) -> Json:
    progress(f"dpkg {' '.join(word.rpartition('/')[2] for word in words)}")
    return run(["dpkg", *words], timeout=600)


def value(name: str) -> str:
    return (PARAMETERS / name).read_text().strip()


def in_force() -> dict[str, str]:
    return {name: value(name) for name in ("zfs_txg_timeout", "zfs_delay_scale")}


def journals() -> list[str]:
    return [path.read_text() if path.exists() else "" for path in JOURNALS]


def status(which: str = PACKAGED) -> Json:
    found: Json = json.loads(run([which, "status", "--json"])["stdout"])
    return found


def installed() -> dict[str, str]:
    """The state of each of the packages that dpkg knows."""
    rows = sh("dpkg-query -W -f '${Package} ${db:Status-Status} ${Version}\\n' 'zfstune*'", False)
    return {row.split()[0]: row.partition(" ")[2] for row in rows.splitlines()}


def left() -> list[str]:
    """What the file system has of the packages, besides the checkout and what the lab makes."""
    roots = "/etc /usr /var /run /lib/systemd /root"
    found = sh(f"find {roots} -xdev -name '*zfstune*' -o -xdev -name '*libzfstrace*'", False)
    return [path for path in found.split() if path != "/usr/local/bin/zfstune"]


@contextmanager
def session(which: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A session with a value in force, and its supervisor's pid. Afterwards neither is there. What
    it loads after the upgrade of its package must be in memory or fit."""
    found = "import sys; sys.path[:0] = sys.argv[1:]\n"
    command = [sys.executable, "-I", "-c", found + SESSION, *MODULES[which]]
    with Path("/tmp/session.err").open("w") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
    assert process.stdout
    supervisor = int(process.stdout.readline() or 0)
    if not supervisor:
        raise RuntimeError(Path("/tmp/session.err").read_text())
    yield process, supervisor
    process.kill()
    process.wait(60)
    ended(supervisor)


def ended(pid: int) -> bool:
    """Whether a process that may not be our child has ended, within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def upgrade(results: Json, old: str, new: str) -> None:
    """With a value set, and a session running on top of it."""
    results["set"] = run([PACKAGED, "params", "set", "zfs_txg_timeout=7"])
    with session(PACKAGED) as (process, supervisor):
        before, journal = in_force(), journals()
        results["upgrade"] = dpkg("-i", *packages(new))
        time.sleep(2)
        results["upgraded"] = {
            "version": version(),
            "installed": installed(),
            "before": before,
            "after": in_force(),
            "journal_same": journals() == journal,
            "alive": process.poll() is None,
            "status": status(),
        }
        results["remove_running"] = dpkg("-r", "zfstune")
        results["refused"] = {"installed": installed(), "after": in_force(), "version": version()}
        process.kill()
        process.wait(60)
        ended(supervisor)
        results["killed"] = {"after": in_force(), "status": status()}
    results["remove"] = dpkg("-r", "zfstune")
    results["removed"] = {
        "after": in_force(),
        "installed": installed(),
        "python": Path("/usr/lib/zfstune").exists(),
    }


def purge(results: Json, number: str) -> None:
    """After a session that was killed with its supervisor, and with kept values."""
    results["again"] = dpkg("-i", *packages(number))
    run([PACKAGED, "params", "set", "zfs_txg_timeout=9"])
    results["keep"] = run([PACKAGED, "keep"])
    with session(PACKAGED) as (process, supervisor):
        os.kill(supervisor, signal.SIGKILL)
        process.kill()
        process.wait(60)
    results["left_by_killed"] = in_force()
    results["kept"] = KEPT.exists()
    results["purge"] = dpkg("--purge", "zfstune", "zfstune-tools")
    results["purged"] = {"after": in_force(), "installed": installed(), "left": left()}


def checkout(results: Json, number: str) -> None:
    """Installed over a session of a checkout, and purged while that has set a value."""
    run([CHECKOUT, "params", "set", "zfs_txg_timeout=6"])
    with session(CHECKOUT) as (process, supervisor):
        results["over"] = dpkg("-i", *packages(number))
        results["sees"] = {"status": status(), "after": in_force(), "alive": process.poll() is None}
        results["remove_over"] = dpkg("-r", "zfstune")
        process.kill()
        process.wait(60)
        ended(supervisor)
        results["restored_over"] = in_force()
    results["removed_over"] = dpkg("-r", "zfstune") | {"after": in_force()}
    run([CHECKOUT, "params", "set", "zfs_txg_timeout=6"])
    results["purge_refused"] = dpkg("--purge", "zfstune") | {"after": in_force()}
    results["status_refused"] = status(CHECKOUT)
    run([CHECKOUT, "revert"])
    results["purge_over"] = dpkg("--purge", "zfstune", "zfstune-tools") | {"left": left()}


def main() -> None:
    results: Json = {}
    old, new = sorted({path.name.split("_")[1] for path in SHARE.glob("*.deb")})
    results["versions"] = [old, new]
    make_pool()
    before, results["left_before"] = values(), left()
    results["defaults"] = in_force()
    results["install"] = dpkg("-i", *packages(old))
    results["installed"] = {"version": version(), "installed": installed()}
    results["audit"] = sh("dpkg --audit", False)
    wants = Path("/etc/systemd/system/multi-user.target.wants")
    results["wants"] = sorted(path.name for path in wants.glob("zfstune*"))
    results["everything"] = everything([PACKAGED], "tank")
    results["tool"] = run(["zildist.py", "-h"])
    results["completion"] = Path("/usr/share/bash-completion/completions/zfstune").exists()
    upgrade(results, old, new)
    purge(results, new)
    checkout(results, old)
    results["changed"] = changed(before)
    finish(results)


main()
