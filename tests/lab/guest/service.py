"""Scenario: the unit of the exporter, below systemd: installed, started, counting, what its sandbox
leaves it, every way in which it ends and is started again, and its profile with less privilege."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

from exporting import Scraper, run, select, total, unloaded, until

from labkit import (
    Json,
    commits,
    finish,
    make_pool,
    programs,
    progress,
    sh,
    sync_writes,
)

UNIT = "zfstune-exporter.service"
INSTALLED = Path("/usr/local/lib/systemd/system") / UNIT
DROP_INS = Path(f"/run/systemd/system/{UNIT}.d")
EXAMPLES = Path("/usr/local/share/doc/zfstune/examples")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
EVENTS = Path("/sys/kernel/tracing/kprobe_events")
DEFAULT = ("light", "txg", "throttle", "arc")
# An emulated CPU has no quarter to give; and nobody waits for what takes minutes by default
LAB = """
[Service]
CPUQuota=
TimeoutStartSec=800
WatchdogSec=60
RestartSec=2
"""
# What a process of the unit can do. It has joined the unit's namespace of mounts and its control
# group, but has all capabilities: what it cannot do, those of the unit do not help with either.
PROBE = """
import json, os, stat
def attempt(call):
    try:
        return call() or "done"
    except OSError as error:
        return error.strerror
def opened(path, flags):
    return attempt(lambda: os.close(os.open(path, flags)))
def made(path, device):
    os.mknod(path, stat.S_IFBLK | 0o600, device)
    try:
        os.close(os.open(path, os.O_RDONLY))
    finally:
        os.unlink(path)
found = {path: opened(path, os.O_WRONLY) for path in (
    "/sys/module/zfs/parameters/zfs_txg_timeout", "/proc/sys/vm/swappiness",
    "/sys/kernel/tracing/kprobe_events", "/usr/bin/env", "/etc/passwd")}
found["/dev/zfs"] = opened("/dev/zfs", os.O_RDWR)
found["home"] = attempt(lambda: " ".join(os.listdir("/root")))
found["disks"] = [name for name in os.listdir("/dev") if name.startswith("vd")]
found["disk"] = attempt(lambda: made("/run/zfstune-exporter/disk", DEVICE))
found["run"] = attempt(lambda: os.mkdir("/run/elsewhere"))
found["mine"] = attempt(lambda: os.rmdir(os.mkdir("/run/zfstune-exporter/x") or
                                         "/run/zfstune-exporter/x"))
print(json.dumps(found))
"""
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
scraper = Scraper(9810)


def shown(*names: str) -> dict[str, str]:
    """Properties of the unit."""
    lines = sh(f"systemctl show {UNIT} -p {','.join(names)}").splitlines()
    return dict(line.split("=", 1) for line in lines)


def main_pid() -> int:
    return int(shown("MainPID")["MainPID"])


def journal() -> str:
    return sh(f"journalctl --no-pager -o cat -u {UNIT}", check=False)


def started(*views: str) -> Json:
    """Starts the unit, or starts it again: it returns when the unit is ready."""
    begun = time.monotonic()
    done = run(["systemctl", "restart", UNIT])
    facts = done | {"seconds": time.monotonic() - begun} | shown("ActiveState", "NRestarts")
    if not done["status"]:
        scraper.begin_anew()
        # ready is ready: it answers at once
        scraper.scrape()
        scraper.until_up(views)
    return facts


def counted(number: int = 101) -> Json:
    """What it counts of so many fsyncs."""
    before, kstat = scraper.fresh(), commits()
    sync_writes("/tank/db/file", number)
    kstat = commits() - kstat
    name = "zfstune_zil_commit_duration_seconds_count"
    found = total(scraper.fresh(), name) - total(before, name)
    return {"wrote": number, "kstat": kstat, "exported": found}


def drop_in(name: str, text: str | None) -> None:
    """Adds one, or takes it away."""
    DROP_INS.mkdir(parents=True, exist_ok=True)
    path = DROP_INS / f"{name}.conf"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    sh("systemctl daemon-reload")


def install(results: Json) -> None:
    """Into /usr/local, as a user does."""
    progress("install")
    # the lab's link to the checkout
    Path("/usr/local/bin/zfstune").unlink()
    command = ["python3", "/zfstune/scripts/install.py", "--prefix", "/usr/local"]
    results["install"] = run(command)
    # as packages do it: the unit cannot write byte code
    sh("python3 -m compileall -q /usr/local/lib/zfstune /zfstune/.venv/guest", check=False)
    results["unit"] = INSTALLED.read_text()
    sh("systemctl daemon-reload")
    results["enabled"] = sh(f"systemctl is-enabled {UNIT}", check=False).strip()
    results["promised"] = shown("MemoryMax", "CPUQuotaPerSecUSec", "Type")
    for key, words in {"offline": f"--offline=yes {INSTALLED}", "online": UNIT}.items():
        results[key] = run(["sh", "-c", f"systemd-analyze --no-pager security {words}"])
    drop_in("lab", LAB)


def sandbox(results: Json) -> None:
    progress("its sandbox")
    pid = main_pid()
    group = Path("/sys/fs/cgroup") / Path(f"/proc/{pid}/cgroup").read_text().strip()[4:]
    device = Path("/dev/vdb").stat().st_rdev
    script = Path("/tmp/join.sh")
    # the shell is in the group before it enters the namespace
    script.write_text(f'echo $$ > {group}/cgroup.procs\nexec nsenter -t {pid} -m -- "$@"\n')
    words = ["sh", str(script), "python3", "-c", PROBE.replace("DEVICE", str(device))]
    status = Path(f"/proc/{pid}/status").read_text()
    results["sandbox"] = {
        "probe": run(words),
        "outside": run(["python3", "-c", PROBE.replace("DEVICE", str(device))]),
        "status": dict(re.findall(r"^(CapEff|CapBnd|NoNewPrivs|Seccomp):\s*(\S+)", status, re.M)),
        "memory": int((group / "memory.current").read_text()),
        "memory_max": int((group / "memory.max").read_text()),
        "oom_score_adj": Path(f"/proc/{pid}/oom_score_adj").read_text().strip(),
    }


def ends(results: Json) -> None:
    """kill -9, and a process that hangs: systemd starts it again."""
    for name, signum in {"killed": signal.SIGKILL, "hangs": signal.SIGSTOP}.items():
        progress(name)
        begun = time.monotonic()
        until_another(signum)
        results[name] = {
            "seconds": time.monotonic() - begun,
            "restarts": shown("NRestarts")["NRestarts"],
            "counted": counted(),
        }
    results["journal"] = journal()


def until_another(signum: int) -> None:
    """Sends its process a signal, and waits until another one counts."""
    pid = main_pid()
    os.kill(pid, signum)
    until("another process", lambda: main_pid() not in (0, pid))
    until("an answer", scraper.answers)
    scraper.until_up(DEFAULT)


def recorder(results: Json) -> None:
    progress("the recorder")

    def dump() -> Json:
        done = run(["zfstune", "record", "dump", "-o", "/tmp/dump.jsonl.gz"])
        found = run(["sh", "-c", "gzip -dc /tmp/dump.jsonl.gz | head -n 1"])["stdout"]
        return done | {"head": json.loads(found) if found else None}

    until("a record", lambda: json.loads(status()["stdout"] or "{}").get("records"))
    first = dump()
    again = started(*DEFAULT)
    results["recorder"] = {
        "status": status(),
        "first": first,
        "again": again,
        "second": dump(),
        "into": run(["zfstune", "record", "dump"]),
        "directory": sh("ls -ldn /run/zfstune-exporter; ls -ln /run/zfstune-exporter"),
        "nobody": run([*NOBODY, "ls", "/run/zfstune-exporter"]),
    }


def status() -> Json:
    return run(["zfstune", "record", "status", "--json"])


def module(results: Json) -> None:
    """It holds nothing of a module that nobody uses."""
    progress("the module, again")
    sh("zpool export -a")
    until("the module unloaded", unloaded)
    off = "zfstune_trace_off_info"
    waits = scraper.until("no ZFS", lambda found: total(found, off, why="no_zfs") == len(DEFAULT))
    sh("modprobe zfs; zpool import -a")
    scraper.until_up(DEFAULT)
    results["module"] = {
        "off": select(waits, off),
        "counted": counted(),
        "went_back": scraper.went_back,
        "restarts": shown("NRestarts")["NRestarts"],
    }


def less(results: Json) -> None:
    """With CAP_BPF and CAP_PERFMON, as the example says."""
    progress("less privilege")
    level = PARANOID.read_text()
    PARANOID.write_text("2")
    drop_in("kprobes", (EXAMPLES / "zfstune-exporter-kprobes.conf").read_text())
    begun = time.strftime("%Y-%m-%d %H:%M:%S")
    # where it is not possible it ends with one line, and is not ready
    facts: Json = {"start": run(["systemctl", "restart", UNIT])}
    if not facts["start"]["status"]:
        scraper.begin_anew()
        scraper.until_up(DEFAULT)
        facts["counted"] = counted()
        facts["probes"] = select(scraper.scrape(), "zfstune_trace_probes")
        text = Path(f"/proc/{main_pid()}/status").read_text()
        facts["capabilities"] = dict(re.findall(r"^(CapEff|CapBnd):\s*(\S+)", text, re.M))
    sh(f"systemctl stop {UNIT}")
    facts["journal"] = sh(f"journalctl --no-pager -o cat -u {UNIT} --since '{begun}'", check=False)
    drop_in("kprobes", None)
    PARANOID.write_text(level)
    results["less"] = facts


def main() -> None:
    results: Json = {"systemd": sh("systemctl --version").split()[1]}
    make_pool()
    sh("zfs create tank/db")
    sync_writes("/tank/db/warm", 3)
    install(results)
    progress("start")
    results["start"] = started(*DEFAULT)
    results["counted"] = counted()
    sandbox(results)
    recorder(results)
    module(results)
    ends(results)
    progress("stop")
    results["stop"] = run(["systemctl", "stop", UNIT]) | shown("ActiveState", "Result")
    results["stopped"] = {"programs": programs(), "events": EVENTS.read_text()}
    less(results)
    results["left"] = {"programs": programs(), "events": EVENTS.read_text()}
    memory = results["sandbox"]
    results["summary"] = (
        f"the unit has {memory['memory'] >> 20} MiB of {memory['memory_max'] >> 20}, was ready in "
        f"{results['start']['seconds']:.0f} s"
    )
    shutil.copy(INSTALLED, "/out")
    finish(results)


main()
