"""Scenario: a light trace while other traces begin and end beside it all the time: in a thread of
its own process, as the diagnoses of a recorder do, and in other processes. Then a trace with the
least capabilities."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from labkit import Json, commits, finish, make_pool, programs, progress, run, sh, sync_writes
from zfs_linux.host import LinuxHost
from zfstrace.bpf.fsync import FsyncTrace
from zfstrace.bpf.pools import ArcTrace, ThrottleTrace, TxgTrace
from zfstrace.bpf.read import ReadTrace
from zfstrace.bpf.session import Session
from zfstrace.types import LightOptions, Probe

SECOND = 1_000_000_000
LIGHT = LightOptions("tank", None, None, 0, 4 * SECOND, SECOND)
# Fsyncs, a prime, by so many threads
FSYNCS, THREADS = 2003, 4
WRITER = """
import os, sys, threading
total, threads = int(sys.argv[1]), int(sys.argv[2])
def write(i):
    fd = os.open(f"/tank/db/{i}", os.O_WRONLY | os.O_CREAT, 0o600)
    for n in range(total // threads + (i < total % threads)):
        os.pwrite(fd, b"x" * 8192, n % 64 * 8192)
        os.fsync(fd)
writers = [threading.Thread(target=write, args=(i,)) for i in range(threads)]
for one in writers: one.start()
for one in writers: one.join()
"""
OTHERS: tuple[Callable[[], Session], ...] = (
    FsyncTrace,
    TxgTrace,
    ThrottleTrace,
    ArcTrace,
    ReadTrace,
)
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
LEAST = "-all,+bpf,+perfmon"


def told(probes: tuple[Probe, ...]) -> list[Json]:
    return [{"name": p.name, "how": p.how, "why": p.why, "of": p.tracer} for p in probes]


class Thread(threading.Thread):
    """Begins and ends one trace after the other, two at a time, until the writer has ended."""

    def __init__(self, writer: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._writer = writer
        self.begun, self.errors = 0, list[str]()
        self.probes: dict[str, list[Json]] = {}

    def run(self) -> None:
        while self._writer.poll() is None:
            for i, open_one in enumerate(OTHERS):
                try:
                    with open_one() as one, OTHERS[i - 1]() as other:
                        self.begun += 2
                        one.refresh()
                        other.refresh()
                        self.probes[open_one.__name__] = told(one.probes())
                except Exception as error:
                    self.errors.append(repr(error))
                if self._writer.poll() is not None:
                    return


class Process(threading.Thread):
    """The same with `zfstune trace` in processes of their own."""

    def __init__(self, writer: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._writer = writer
        self.begun = 0
        self.failed: list[Json] = []

    def run(self) -> None:
        command = ["zfstune", "trace", "fsync", "tank", "--duration", "1s", "--json"]
        while self._writer.poll() is None:
            done = run(command, timeout=600)
            self.begun += 1
            if done["status"]:
                self.failed.append(done)


def beside(results: Json) -> None:
    progress("a light trace, and others beside it")
    host = LinuxHost()
    host.tick()
    light = host.open_light_trace(LIGHT)
    counted = commits()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(FSYNCS), str(THREADS)])
    thread, process = Thread(writer), Process(writer)
    began = time.monotonic()
    thread.start()
    process.start()
    while writer.poll() is None:
        time.sleep(1)
        host.tick()
        light.refresh()
    seconds = time.monotonic() - began
    thread.join()
    process.join()
    counted = commits() - counted
    light.refresh()
    results["beside"] = {
        "seconds": seconds,
        "status": writer.returncode,
        "kstat_commits": counted,
        "commits": sum(one.total.count for one in light.commits()),
        "losses": light.losses().to_json() | {"unfinished": light.losses().unfinished},
        "light": told(light.probes()),
        "windows": len(light.windows()),
        "unsampled": sum(one.lost for one in light.windows()),
        "others": thread.probes,
        "begun": [thread.begun, process.begun],
        "errors": thread.errors,
        "failed": process.failed,
    }
    light.close()
    progress(f"{FSYNCS} fsyncs in {seconds:.0f} s, {thread.begun} and {process.begun} traces")


def again(results: Json) -> None:
    """What has ended disturbs nobody: the next trace finds no programs, neither of this process
    nor of others."""
    progress("one after the other")
    alone = []
    for _ in range(2):
        with TxgTrace() as trace:
            alone.append(told(trace.probes()))
    results["together"] = together()
    with FsyncTrace() as fsyncs:
        alone.append(told(fsyncs.probes()))
    results["alone"] = alone


def together() -> list[Json]:
    """Two that begin in the same instant, as two units do when a machine boots."""
    progress("two at once")
    command = ["zfstune", "trace", "fsync", "tank", "--duration", "2s", "--json"]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    said = [one.communicate(timeout=600) for one in both]
    return [
        {"status": one.returncode, "stdout": out, "stderr": err}
        for one, (out, err) in zip(both, said, strict=True)
    ]


def traced_with(capabilities: str, name: str) -> Json:
    """23 fsyncs, as a trace with few capabilities sees them."""
    err, counted = Path(f"/tmp/least-{name}"), 0
    with err.open("w") as stderr:
        trace = subprocess.Popen(
            f"exec setpriv {capabilities} zfstune trace fsync tank --duration 3s --json",
            shell=True,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd="/",
        )
        while "tracing" not in err.read_text() and trace.poll() is None:
            time.sleep(0.05)
        if trace.poll() is None:
            counted = commits()
            sync_writes("/tank/db/least", 23)
            counted = commits() - counted
        out, _ = trace.communicate(timeout=600)
    return {
        "status": trace.returncode,
        "stdout": out,
        "stderr": err.read_text(),
        "kstat_commits": counted,
    }


def least(results: Json) -> None:
    """By root and by another user, with CAP_BPF and CAP_PERFMON alone, and both levels of
    kernel.perf_event_paranoid that matter."""
    before = PARANOID.read_text()
    root = f"--bounding-set {LEAST} --inh-caps {LEAST}"
    nobody = f"{root} --reuid 65534 --regid 65534 --clear-groups --ambient-caps {LEAST}"
    progress("the least capabilities")
    PARANOID.write_text("3")
    results["forbidden"] = traced_with(nobody, "forbidden")
    results["forbidden"]["doctor"] = run(
        ["sh", "-c", f"setpriv {nobody} zfstune doctor --json"], cwd="/"
    )
    PARANOID.write_text("2")
    results["root"] = traced_with(root, "root")
    results["nobody"] = traced_with(nobody, "nobody")
    PARANOID.write_text(before)


def main() -> None:
    results: Json = {}
    make_pool()
    sh("zfs create tank/db")
    os.sync()
    sync_writes("/tank/db/warm", 3)
    beside(results)
    again(results)
    least(results)
    results["programs_left"] = programs()
    results["events_left"] = sh("cat /sys/kernel/tracing/kprobe_events")
    finish(results)


main()
