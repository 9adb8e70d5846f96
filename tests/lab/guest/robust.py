"""Scenario: bad input, every way out, datasets that come and go, and rounds of attaching and
detaching under load.

robust.py ROUNDS
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from labkit import (
    Json,
    Tracer,
    commits,
    finish,
    fio,
    make_pool,
    programs,
    progress,
    run,
    sh,
    sync_writes,
    traced,
)
from zfstrace.bpf.fsync import FsyncTrace

ROUNDS = int(sys.argv[1])
EVENTS = Path("/sys/kernel/tracing/kprobe_events")


def load() -> subprocess.Popen[bytes]:
    """Three writers that fsync until they are killed."""
    return subprocess.Popen(
        "exec fio --name=load --directory=/tank/db --rw=write --bs=8k --size=16M --fsync=1 "
        "--numjobs=3 --thread --time_based --runtime=3600 --output=/dev/null",
        shell=True,
    )


def bad_input(results: Json) -> None:
    progress("bad input")

    def hidden(directory: str) -> list[str]:
        """The command that follows sees this directory empty."""
        return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs x {directory} && exec "$@"', "sh"]

    def with_library(options: str, copy: str) -> list[str]:
        """The command that follows has its library from a file system of its own."""
        library = "/zfstune/tracers/libzfstrace/libzfstrace.so"
        script = f"mount -t tmpfs {options} x /mnt && {copy} {library} > /mnt/libzfstrace.so"
        script += ' && ZFSTUNE_LIB=/mnt/libzfstrace.so exec "$@"'
        return ["unshare", "-m", "sh", "-c", script, "sh"]

    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    noexec, cut_short = with_library("-o noexec", "cat"), with_library("", "head -c 300000")
    cases = {
        "unknown pool": ["zfstune", "trace", "fsync", "tnak", "--duration", "1s"],
        "unknown dataset": ["zfstune", "trace", "fsync", "--dataset", "tank/bd"],
        "pid that is not": ["zfstune", "trace", "fsync", "--pid", "4194300"],
        "not root": [*nobody, "zfstune", "trace", "fsync", "--duration", "1s"],
        "no BTF": [*hidden("/sys/kernel/btf"), "zfstune", "trace", "fsync", "--duration", "1s"],
        "no sysfs": [*hidden("/sys"), "zfstune", "trace", "fsync", "--duration", "1s"],
        "container": ["unshare", "-r", "zfstune", "trace", "fsync", "--duration", "1s"],
        "noexec": [*noexec, "zfstune", "trace", "fsync", "--duration", "1s"],
        "cut short": [*cut_short, "zfstune", "trace", "fsync", "--duration", "1s"],
    }
    results["bad"] = {name: run(command) for name, command in cases.items()}
    results["doctor"] = run(["zfstune", "doctor"])
    results["doctor_json"] = run(["zfstune", "doctor", "--json"])
    results["doctor_nobody"] = run([*nobody, "zfstune", "doctor"])


def ways_out(results: Json) -> None:
    progress("ways out")
    results["idle"] = run(["zfstune", "trace", "fsync", "tank", "--duration", "2s"])
    out: Json = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        tracer = Tracer("fsync", "tank", json_lines=False)
        sync_writes("/tank/db/signal", 11)
        text = tracer.stop(signal.Signals[name])
        out[name] = {
            "stdout": text,
            "stderr": tracer.stderr.read_text(),
            "status": tracer.process.returncode,
            "programs": programs(),
        }
    results["signals"] = out
    # fsyncs that it has not yet read when a signal ends it
    tracer = Tracer("slow", "--over", "1us", "tank")
    tracer.process.send_signal(signal.SIGSTOP)
    sync_writes("/tank/db/behind", 37)
    tracer.process.send_signal(signal.SIGINT)
    results["behind"] = {"rows": tracer.rows(signal.SIGCONT), "stderr": tracer.stderr.read_text()}
    writers = load()
    results["head"] = run(
        ["sh", "-c", "zfstune trace fsync tank --interval 300ms --duration 60s | head -1"]
    )
    results["head"]["programs"] = programs()
    results["slow_count"] = run(
        ["zfstune", "trace", "slow", "--over", "1us", "tank", "--count", "5", "--duration", "60s"]
    )
    writers.kill()
    writers.wait()


def kill_nine(results: Json) -> None:
    """A killed kprobe trace leaves an idle event, which the next start removes."""
    progress("kill -9")
    results["killed"] = {}
    for option in ("--no-fentry", None):
        tracer = Tracer("fsync", "tank", *([option] if option else []))
        tracer.stop(signal.SIGKILL)
        results["killed"][option or "default"] = programs()
    with traced(results, "after_kill", "fsync", "tank", "--no-fentry"):
        sync_writes("/tank/db/kill", 13)
    results["events_left"] = EVENTS.read_text()
    progress("no tracefs")  # then kretprobes come from perf, with their small pool
    sh("umount /sys/kernel/tracing; umount -l /sys/kernel/debug")
    with traced(results, "no_tracefs", "fsync", "tank", "--no-fentry"):
        sync_writes("/tank/db/perf", 7)
    sh("mount -t debugfs debugfs /sys/kernel/debug; mount -t tracefs tracefs /sys/kernel/tracing")


def comings_and_goings(results: Json) -> None:
    """One trace over unmounting, exporting and a pool that was not there before."""
    progress("unmount, export, import")
    sh("zpool create -f side /dev/vdc; zfs create side/late; zpool export side")
    with traced(results, "moving", "fsync"):
        sync_writes("/tank/db/moving", 11)
        sh("zfs unmount tank/db; zfs mount tank/db")
        sync_writes("/tank/db/moving", 13)
        sh("zpool export tank; zpool import tank")
        sync_writes("/tank/db/moving", 17)
        sh("zpool import side")
        sync_writes("/side/late/file", 19)
        time.sleep(4)  # names are read once a second
        sh("zpool export side")
    sh("zpool import side; zpool destroy side")


def rounds(results: Json) -> None:
    """By fentry and kprobes in turn, where there is fentry."""
    progress(f"{ROUNDS} rounds")
    sh("dmesg -C")
    writers = load()
    counted, lost = 0, 0
    for i in range(ROUNDS):
        with FsyncTrace(pool="tank", no_fentry=bool(i % 2)) as trace:
            time.sleep(0.3)
            trace.refresh()
            counted += sum(d.total.count for d in trace.datasets())
            lost += trace.losses().lost
        if i % 10 == 9:
            progress(f"{i + 1} rounds, {counted} fsyncs")
    alive = writers.poll() is None
    writers.kill()
    writers.wait()
    results["rounds"] = {
        "rounds": ROUNDS,
        "counted": counted,
        "lost": lost,
        "writers_alive": alive,
        "dmesg": sh("dmesg"),
        "programs": programs(),
    }
    before = commits()
    syncs = fio("/tank/db", "--fsync=1", "--number_ios=102", name="after")
    results["rounds"]["after"] = syncs["jobs"][0]["sync"]["lat_ns"]["N"]
    results["rounds"]["after_commits"] = commits() - before


def main() -> None:
    results: Json = {}
    make_pool()
    sh("zfs create tank/db")
    sync_writes("/tank/db/warm", 3)
    bad_input(results)
    ways_out(results)
    kill_nine(results)
    comings_and_goings(results)
    rounds(results)
    finish(results)


main()
