"""Scenario: known numbers of synchronous operations of every kind, counted by the tracer,
by fio, by ZFS's own kstat and by bpftrace; counts.py few: fewer of each, without their percentiles,
a timeline and what tracing costs.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from labkit import (
    Json,
    commits,
    end_bpftrace,
    finish,
    fio,
    make_pool,
    programs,
    progress,
    sh,
    sync_writes,
    traced,
    whole,
)

# For comparisons with fio. Ten of a thousand make a p99, and between fio's clock and the call a
# busy host may hold up as many: the median of the tries is judged.
TRIES = 3

ONE_LINER = """
kprobe:%(f)s { @start[tid] = nsecs; }
kretprobe:%(f)s /@start[tid]/ {
    @n = count(); @sum = sum(nsecs - @start[tid]); delete(@start[tid]);
}
BEGIN { printf("ready\\n"); }
END { clear(@start); }
"""


def fio_facts(result: Json) -> Json:
    """Number of syncs and their latency percentiles over all jobs of one group."""
    job = result["jobs"][0]
    return {"syncs": job["sync"]["lat_ns"]["N"], "lat": job["sync"]["lat_ns"]}


def fsyncs(results: Json) -> None:
    """fio's last write of a file has no fsync after it, hence one more write."""
    jobs = {
        "fsync": ("--fsync=1", "--number_ios=1010"),
        "fdatasync": ("--fdatasync=1", "--number_ios=998"),
        "threads": ("--fsync=1", "--number_ios=252", "--numjobs=8", "--group_reporting"),
    }
    tries = TRIES if whole(results, "comparable") else 1
    results["comparable"] = tries
    for key, options in jobs.items():
        for i in range(tries):
            progress(f"{key} {i + 1}")
            found: Json = {}
            with traced(found, "traced", "fsync", "tank"):
                theirs = fio_facts(fio("/tank/db", *options, name=key))
            sh(f"rm -f /tank/db/{key}*")
            results.setdefault(key, []).append(found["traced"] | {"fio": theirs})


def joined(results: Json) -> None:
    """Beside a writer, fsyncs of files that nobody writes: they wait for log blocks that it has
    issued."""
    progress("joined")

    def syncs(name: str, number: int, write: bool) -> None:
        fd = os.open(f"/tank/db/{name}", os.O_WRONLY | os.O_CREAT, 0o600)
        for _ in range(number):
            if write:
                os.pwrite(fd, b"x" * 8192, 0)
            os.fsync(fd)
        os.close(fd)

    for i in range(4):
        syncs(f"clean{i}", 1, False)
    threads = [threading.Thread(target=syncs, args=(f"clean{i}", 211, False)) for i in range(4)]
    threads.append(threading.Thread(target=syncs, args=("written", 307, True)))
    with traced(results, "joined", "fsync", "tank"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def o_dsync(results: Json) -> None:
    """Each write is one commit; bpftrace times the same function."""
    progress("o_dsync with bpftrace beside")
    symbol = "zil_commit_flags" if "zil_commit_flags" in sh("cat /proc/kallsyms") else "zil_commit"
    with Path("/tmp/bpftrace.out").open("w") as out:
        peer = subprocess.Popen(["bpftrace", "-e", ONE_LINER % {"f": symbol}], stdout=out)
    until = time.monotonic() + 120
    while "ready" not in Path("/tmp/bpftrace.out").read_text():
        if peer.poll() is not None or time.monotonic() > until:
            raise RuntimeError("bpftrace did not attach")
        time.sleep(0.2)
    time.sleep(2)  # BEGIN may run before the probes are attached
    with traced(results, "o_dsync", "fsync", "tank"):
        fd = os.open("/tank/db/odsync", os.O_WRONLY | os.O_CREAT | os.O_DSYNC, 0o600)
        for i in range(499):
            os.pwrite(fd, b"x" * 8192, i * 8192)
        os.close(fd)
    end_bpftrace(peer)
    text = Path("/tmp/bpftrace.out").read_text()
    results["bpftrace"] = {
        name: int(re.search(rf"@{name}: (\d+)", text)[1])  # type: ignore[index]
        for name in ("n", "sum")
    }


def other_kinds(results: Json) -> None:
    progress("msync")
    Path("/tank/db/mapped").write_bytes(bytes(1 << 20))
    with (
        Path("/tank/db/mapped").open("r+b") as f,
        mmap.mmap(f.fileno(), 0) as m,
        traced(results, "msync", "fsync", "tank"),
    ):
        for i in range(53):
            m[i * 4096] = i
            m.flush(i * 4096, 4096)
    progress("sync=always")
    with traced(results, "always", "fsync", "--dataset", "tank/always"):
        fd = os.open("/tank/always/file", os.O_WRONLY | os.O_CREAT, 0o600)
        for i in range(101):
            os.pwrite(fd, b"x" * 4096, i * 4096)
        os.close(fd)
    progress("zvol")
    for _ in range(100):
        if Path("/dev/zvol/tank/vol").exists():
            break
        time.sleep(0.1)
    with traced(results, "zvol", "fsync", "tank"):
        fd = os.open("/dev/zvol/tank/vol", os.O_WRONLY)
        for i in range(97):
            os.pwrite(fd, b"x" * 4096, i * 4096)
            os.fsync(fd)  # a flush request to the volume
    os.close(fd)  # up to 2.1 commits once more, past zil_commit (zil_close)
    progress("sync=disabled")
    with traced(results, "disabled", "fsync", "--dataset", "tank/off"):
        fd = os.open("/tank/off/file", os.O_WRONLY | os.O_CREAT, 0o600)
        for i in range(211):
            os.pwrite(fd, b"x" * 4096, i * 4096)
            os.fsync(fd)
        os.close(fd)


def filters(results: Json) -> None:
    """Two writers on two datasets; each filter sees only its own."""
    progress("filters")
    script = (
        "import os,sys\nfd=os.open(sys.argv[1],os.O_WRONLY|os.O_CREAT)\ninput()\n"
        "for i in range(int(sys.argv[2])):\n os.pwrite(fd,b'x'*4096,0)\n os.fsync(fd)\n"
    )

    def writer(path: str, n: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["python3", "-c", script, path, str(n)], stdin=subprocess.PIPE)

    def go(*writers: subprocess.Popen[bytes]) -> None:
        for w in writers:
            w.communicate(b"\n")

    a, b = writer("/tank/db/a", 31), writer("/tank/other/b", 37)
    with traced(results, "by_dataset", "fsync", "--dataset", "tank/other"):
        go(a, b)
    a, b = writer("/tank/db/a", 31), writer("/tank/db/b", 37)
    with traced(results, "by_pid", "fsync", "--pid", str(b.pid)):
        go(a, b)
    a, b = writer("/tank/db/a", 31), writer("/tank/db/b", 37)
    with traced(results, "kprobes", "fsync", "tank", "--no-fentry"):
        go(a, b)


def timeline(results: Json) -> None:
    progress("timeline")
    path = "/tmp/timeline.json"
    with traced(results, "timeline", "slow", "tank", "--over", "1us", "--timeline", path):
        for _ in range(2):
            sync_writes("/tank/db/timeline", 53)
            sh("zpool sync tank")
    results["timeline"]["file"] = json.loads(Path(path).read_text())


def cost(results: Json) -> None:
    """`doctor --cost` while a known number of fsyncs goes by, and while none does."""
    for key, syncs in (("cost", 307), ("cost_idle", 0)):
        progress(key)
        command = ["zfstune", "doctor", "--cost", "--json", "--duration", "2m"]
        with Path("/tmp/cost.err").open("w") as err:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
        until = time.monotonic() + 300
        while "counting" not in Path("/tmp/cost.err").read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no cost: {Path('/tmp/cost.err').read_text()}")
            time.sleep(0.05)
        before = commits()
        sync_writes("/tank/db/cost", syncs)
        time.sleep(2)
        kstat_commits = commits() - before
        process.send_signal(signal.SIGINT)
        found = json.loads(process.communicate(timeout=120)[0])
        results[key] = found | {"kstat_commits": kstat_commits, "status": process.returncode}
    results["cost_text"] = sh("zfstune doctor --cost --duration 2s")


def main() -> None:
    results: Json = {}
    make_pool()
    sh("zfs create tank/db; zfs create tank/other; zfs create -o sync=always tank/always")
    sh("zfs create -o sync=disabled tank/off; zfs create -V 64M tank/vol")
    fio("/tank/db", "--fsync=1", "--number_ios=3", name="warm")  # creates the log
    results["before"] = commits()
    fsyncs(results)
    joined(results)
    o_dsync(results)
    other_kinds(results)
    filters(results)
    if whole(results, "timeline"):
        timeline(results)
    if whole(results, "cost", "cost_idle", "cost_text"):
        cost(results)
    results["programs_left"] = programs()
    finish(results)


main()
