"""Scenario: an exporter with a recorder at load, with a second one beside it, while everything
happens to it that does in months: the module is loaded again, pools are exported, clocks jump, /run
is full, CPUs go, scrapers are hostile, it is stopped, and killed.

lasting.py SECONDS
"""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from exporting import PATIENT_S, Exporter, hostile, run, select, total, unloaded, until

from labkit import (
    Json,
    busy,
    commits,
    finish,
    make_pool,
    programs,
    progress,
    sh,
    sync_writes,
)

SECONDS = float(sys.argv[1])
VIEWS = ("light", "txg", "throttle", "arc")
SCRAPE_S, PAUSE_S, HOUR_S = 5, 10, 3600
CPU = Path("/sys/devices/system/cpu/cpu1/online")
DIRECTORY = Path("/mnt/dumps")
FILLER = DIRECTORY / "filler"
COMMITS = "zfstune_zil_commit_duration_seconds_count"
LOST = "zfstune_trace_lost_total"
# Datasets that live at the same time, beside the first
ALIVE = 8


class Lasting:
    """The exporter, and what has happened to it."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.exporter = Exporter(
            *("--record", "--dump-dir", str(DIRECTORY), "--budget", "100%"),
            *("--trigger", "commit.p99>10s for 1m"),
        )
        self.exporter.until_up(VIEWS)
        self.done: Counter[str] = Counter()
        self.number = itertools.count()
        self.samples: list[Json] = []
        # logs that were closed, each by a commit of ZFS itself
        self.closed = 0
        self.turns: Iterator[Callable[[], None]] = itertools.cycle(
            (
                *(self.datasets, self.hostile_scrapers, self.clock_ahead, self.export),
                *(self.full_directory, self.datasets, self.clock_back, self.stopped),
                *(self.cpu, self.export, self.dump),
            )
        )
        # of processes that have ended; and since when the present one counts
        self.past: list[Json] = []
        self.before, self.kstat = self.exporter.fresh(), -commits()

    # --- what may happen

    def datasets(self) -> None:
        i = next(self.number)
        sh(f"zfs create tank/{i}")
        sync_writes(f"/tank/{i}/file", 23)
        if i >= ALIVE:
            sh(f"zfs destroy tank/{i - ALIVE}")
            self.closed += 1

    def export(self) -> None:
        sync_writes("/side/file", 23)
        self.closed += 1
        sh("zpool export side; zpool import side")
        sync_writes("/side/file", 23)

    def clock_ahead(self) -> None:
        self._step(HOUR_S)

    def clock_back(self) -> None:
        self._step(-HOUR_S)

    def _step(self, seconds: int) -> None:
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
        time.sleep(PAUSE_S)

    def full_directory(self) -> None:
        sh(f"dd if=/dev/zero of={FILLER} bs=64k 2>/dev/null", check=False)
        self.exporter.process.send_signal(signal.SIGUSR1)
        time.sleep(PAUSE_S)
        FILLER.unlink()
        self.exporter.process.send_signal(signal.SIGUSR1)

    def stopped(self) -> None:
        self.exporter.process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        self.exporter.process.send_signal(signal.SIGCONT)

    def cpu(self) -> None:
        if CPU.exists():
            CPU.write_text("0")
            time.sleep(3)
            CPU.write_text("1")

    def hostile_scrapers(self) -> None:
        with hostile(self.exporter.port):
            time.sleep(2)

    def dump(self) -> None:
        file = "/tmp/dump.jsonl.gz"
        done = run(["zfstune", "record", "dump", "--dump-dir", str(DIRECTORY), "-o", file])
        if done["status"]:
            raise RuntimeError(f"no dump: {done}")

    # --- between times at load

    def reload(self) -> None:
        """Loads the module again."""
        self.closed += sh("zfs list -H -o mounted").split().count("yes")
        sh("zpool export -a")
        self.kstat += commits()
        until("the module unloaded", unloaded)
        sh("modprobe zfs; zpool import -a")
        self.exporter.until_up(VIEWS)

    def killed(self) -> None:
        """kill -9, and another process; nothing commits meanwhile."""
        self.settle()
        self.exporter.stop(signal.SIGKILL)
        self.exporter.start()
        self.exporter.until_up(VIEWS)
        self.before, self.kstat = self.exporter.fresh(), -commits()
        self.closed = 0

    def settle(self) -> None:
        """Notes what this process has counted in its life."""
        after = self.exporter.fresh()
        self.kstat += commits()
        lost = {
            series: value - self.before.get(series, 0.0)
            for series, value in select(after, LOST).items()
        }
        self.past.append(
            {
                "kstat_commits": self.kstat,
                "commits": total(after, COMMITS) - total(self.before, COMMITS),
                "lost": {series: value for series, value in lost.items() if value},
                "errors": select(after, "zfstune_exporter_errors_total"),
                "closed": self.closed,
            }
        )

    # --- time

    def load(self, seconds: float) -> None:
        """Writes for so long, and lets something happen now and then."""
        with busy("/tank/db"), self.exporter.watching(SCRAPE_S):
            # it loads what all later ones need: memory is judged from then on
            until("the first diagnosis", self.diagnosed)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                turn = next(self.turns)
                turn()
                self.done[turn.__name__] += 1
                time.sleep(PAUSE_S)
                self.samples.append(self.sample())

    def clock_right(self) -> None:
        """Sets the clock back if it is ahead."""
        if self.done["clock_ahead"] > self.done["clock_back"]:
            self.clock_back()
            self.done["clock_back"] += 1

    def diagnosed(self) -> bool:
        """Whether the recorder of this process has made a diagnosis; without another Python."""
        with socket.socket(socket.AF_UNIX) as recorder:
            recorder.settimeout(PATIENT_S)
            recorder.connect(str(DIRECTORY / "record.sock"))
            recorder.sendall(b'{"do": "status"}\n')
            with recorder.makefile() as answer:
                diagnoses = json.loads(answer.readline())["diagnoses"]
        return bool(diagnoses["done"] + diagnoses["failed"])

    def sample(self) -> Json:
        proc = Path(f"/proc/{self.exporter.process.pid}")
        status = (proc / "status").read_text()
        return {
            "pid": self.exporter.process.pid,
            "seconds": time.monotonic() - self.began,
            "rss_kib": int(status.split("VmRSS:")[1].split()[0]),
            "files": sum(1 for _ in (proc / "fd").iterdir()),
            "maps": sum(one["bytes_memlock"] for one in json.loads(sh("bpftool -j map show"))),
        }


def beside() -> subprocess.Popen[bytes]:
    """A second exporter, on another port."""
    with Path("/tmp/beside.err").open("w") as err:
        return subprocess.Popen(
            ["zfstune", "exporter", "--listen", "127.0.0.1:9811", "--no-record"], stderr=err
        )


def main() -> None:
    # the module again 20 times in two hours, at least twice; killed once in the middle
    rounds = max(2, round(20 * SECONDS / 7200))
    make_pool()
    sh("zfs create tank/db")
    make_pool("side", "/dev/vdc")
    DIRECTORY.mkdir()
    sh(f"mount -t tmpfs -o size=16m,mode=700 dumps {DIRECTORY}")
    sync_writes("/tank/db/warm", 3)
    sync_writes("/side/warm", 3)
    other = beside()
    lasting = Lasting()
    for number in range(rounds):
        progress(f"{number + 1} of {rounds}: {dict(lasting.done)}")
        if number == rounds // 2:
            lasting.killed()
            lasting.done["killed"] += 1
        lasting.load(SECONDS / rounds)
        lasting.reload()
        lasting.done["reload"] += 1
    lasting.clock_right()
    sync_writes("/tank/db/end", 23)
    lasting.settle()
    other.terminate()
    status = run(["zfstune", "record", "status", "--json", "--dump-dir", str(DIRECTORY)])
    ended, other_ended = lasting.exporter.stop(), other.wait(PATIENT_S)
    facts = lasting.exporter.facts()
    finish(
        {
            "done": dict(lasting.done),
            "past": lasting.past,
            "samples": lasting.samples,
            "exporter": facts | {"status": ended},
            "record": status,
            "beside": {"status": other_ended, "stderr": Path("/tmp/beside.err").read_text()},
            "programs_left": programs(),
            "summary": f"{SECONDS:.0f} s: {dict(lasting.done)}; {facts['scrapes']} scrapes",
        }
    )


main()
