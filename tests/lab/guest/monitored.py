"""Scenario: a real Prometheus watches a host by the rules that users get, first while it is well,
then with the cause of each alert. Only time goes faster for the rules (support.prometheus.faster).

Disks: vdb plain, vdc with slow flushes, vdd to be made slow, vde with limited bandwidth, vdf to
fail and to stall, vdg plain, whose log is vdh, to fail.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from diagnosing import bulk, crowd, loaded, python, writer
from exporting import VIEWS, Exporter, total
from monitored_causes import (
    CAUSES,
    EMPTY,
    FACTOR,
    INTERVAL_S,
    LASTING,
    PORTS,
    TARGETS,
    Alert,
    alert,
)

from labkit import (
    KSTAT,
    SESSION,
    Json,
    finish,
    kstat,
    make_pool,
    programs,
    progress,
    set_parameter,
    sh,
    sync_writes,
    turn,
    txg_rows,
)

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests"))
from support.monitoring import Prometheus, check, filled, queries  # noqa: E402
from support.prometheus import aim, prometheus  # noqa: E402

DASHBOARD = json.loads((ROOT / "platform/monitoring/dashboard.json").read_text())
RULES = sorted((ROOT / "platform/monitoring").glob("*.yml"))
DIRECTORY = Path("/tmp/prometheus")
POOLS = {
    "well": "/dev/vdb",
    "slow": "/dev/mapper/vdc-delay",
    "long": "/dev/mapper/long",
    "held": "/dev/vde",
    "frail": "/dev/mapper/frail",
    "apart": "/dev/vdg",
}
MIB = 1 << 20
# So little that a sync of the pool whose disk is the bottleneck takes a few seconds
DIRTY = 24 * MIB
# More than ZFS keeps of it outside of the ARC, so that reads ask the ARC
READ_BYTES = 48 * MIB
READER = """
import os, random, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
while True:
    os.pread(fd, 4096, random.randrange(int(sys.argv[2]) >> 17) << 17)
    time.sleep(0.05)
"""
TRICKLE = ("sh", "-c", "while :; do date >>/long/file; sleep 1; done")
# Syncs that take longer than 10 s count as of 20 s, and there must be one in 20 s.
TRY_MS, SYNC_MS = 400, 14_000
# Of rates of the dashboard and of a first measurement of costs
HEALTHY_S = 70
LONGEST_S = 720
CROWDED, AGAIN = "more datasets than places", "a pool imported again and again"
# Series for the datasets of all pools, and more datasets than the kernel has places for: SERIES and
# 16 (exporter/command.py).
SERIES, DATASETS = 10, 32


class Watch:
    """The Prometheus, and of each cause when it began and when its alerts had all fired."""

    def __init__(self, url: str) -> None:
        self.url, self.server = url, Prometheus(url)
        self.began = time.time()
        self.moments: dict[str, tuple[float, float]] = {}
        self.told: dict[str, Json] = {}

    def firing(self) -> set[Alert]:
        alerts = self.server.alerts()
        self.told |= {one["labels"]["alertname"]: one["annotations"] for one in alerts}
        return {alert(one["labels"]) for one in alerts}

    def until(self, what: str, true: Callable[[], object]) -> None:
        """Waits for it. Raises RuntimeError."""
        end = time.monotonic() + LONGEST_S
        while not true():
            if time.monotonic() > end:
                pending = {alert(one["labels"]) for one in self.server.alerts("pending")}
                took = self.shown("scrape_duration_seconds")
                raise RuntimeError(
                    f"too long: {what}; {self.firing()} fire, {pending} may; scrapes took {took} s"
                )
            time.sleep(INTERVAL_S)

    def shown(self, expr: str) -> list[float]:
        """The values of a query now."""
        return self.server.values(expr, True)

    @contextmanager
    def cause(self, name: str) -> Iterator[None]:
        """The body is the cause; afterwards waits for its alerts."""
        progress(name)
        begin = time.time()
        yield
        self.until(name, lambda: self.firing() >= CAUSES[name])
        self.moments[name] = begin, time.time()
        progress(f"{name}: its alerts fire after {time.time() - begin:.0f} s")

    def facts(self) -> Json:
        """All that has fired, and what the empty queries have had."""
        now = time.time()
        fired = self.server.range('ALERTS{alertstate="firing"}', self.began, now, INTERVAL_S)
        groups = self.server.get("rules")["groups"]
        return {
            "moments": self.moments,
            "told": self.told,
            "fired": [
                {"labels": one["metric"], "times": [at for at, _ in one["values"]]} for one in fired
            ],
            "filled": {
                one.where: len(
                    self.server.range(filled(one.expr, DASHBOARD), self.began, now, INTERVAL_S)
                )
                for one in queries(DASHBOARD)
                if one.where in EMPTY
            },
            "rules": {
                rule["name"]: [rule["health"], rule.get("lastError", "")]
                for group in groups
                for rule in group["rules"]
            },
            "log": (DIRECTORY / "prometheus.log").read_text(),
        }


def linear(disk: str) -> str:
    return f"0 {sectors(disk)} linear {disk} 0"


def error(disk: str) -> str:
    return f"0 {sectors(disk)} error"


def delayed(disk: str, write_ms: int) -> str:
    return f"0 {sectors(disk)} delay {disk} 0 0 {disk} 0 {write_ms} {disk} 0 0"


def sectors(disk: str) -> int:
    return int(sh(f"blockdev --getsz {disk}"))


def make_pools() -> None:
    progress("pools")
    sh("modprobe dm-delay")
    tables = {
        "long": delayed("/dev/vdd", 0),
        "frail": linear("/dev/vdf"),
        "log": linear("/dev/vdh"),
    }
    for name, table in tables.items():
        sh(f"dmsetup create {name} --table '{table}'")
    sh("udevadm settle")
    for name, disk in POOLS.items():
        make_pool(name, disk)
    sh("zpool add -f apart log /dev/mapper/log")
    sh("zfs create well/db; zfs create -o sync=disabled well/unsafe")
    sh("zfs create -o recordsize=1M held/bulk")
    # the first commit creates a log, which takes a txg
    for path in ("/well/db/a", "/slow/a", "/frail/a", "/apart/a"):
        sync_writes(path, 3)
    Path("/well/db/read").write_bytes(bytes(READ_BYTES))
    # before anybody looks: it is no write of another program
    set_parameter("zfs_dirty_data_max", str(DIRTY))
    sh("zpool sync")


def healthy(results: Json, watch: Watch) -> None:
    """Until there are two windows of the light view: the bounds of its shares need them."""
    progress("a healthy host")
    bounds = 'zfstune_fsync_stage_share_ratio{pool="well",bound="low"}'
    ready = time.time() + HEALTHY_S
    watch.until("two windows", lambda: time.time() > ready and watch.shown(bounds))
    progress("all queries")
    results["problems"] = check(watch.url, DASHBOARD, RULES, empty=EMPTY)
    for one in results["problems"]:
        progress(one)
    took = max(watch.shown("max_over_time(scrape_duration_seconds[1h])"))
    progress(f"{len(results['problems'])} problems; the slowest scrape took {took:.1f} s")


def slow_syncs() -> None:
    """Delays writes so long that a sync takes SYNC_MS: how many of its writes wait for each other
    is seen with a shorter delay."""
    turn("long", delayed("/dev/vdd", TRY_MS))
    for _ in range(2):
        sh("date >>/long/file; zpool sync long")
    # an empty txg in between writes nothing
    took_ms = max(row["stime"] for row in txg_rows("long")[-3:]) / 1e6
    ms = round(TRY_MS * SYNC_MS / took_ms)
    turn("long", delayed("/dev/vdd", ms))
    progress(f"a sync took {took_ms:.0f} ms with {TRY_MS} ms for each write; now these take {ms}")


def failing_log() -> None:
    """Ends with the first commit that could not be written to the log."""
    name = "zil_commit_error_count"
    before = kstat("zil")[name]
    turn("log", error("/dev/vdh"))
    # ten more, and they would count for the objective of the pool
    for _ in range(10):
        sync_writes("/apart/a", 1)
        if kstat("zil")[name] > before:
            return
    raise RuntimeError("no commit has failed")


def session(watch: Watch) -> None:
    """A session of zfstune changes a parameter and is killed: the value comes back. No alert is to
    fire because of these writes."""
    progress("a session")
    process = subprocess.Popen(["python3", "-c", SESSION], stdout=subprocess.PIPE, text=True)
    watch.until("a session", lambda: watch.shown("zfstune_session_active == 1"))
    process.kill()
    process.wait()
    watch.until("its end", lambda: not watch.shown("zfstune_session_active == 1"))


def causes(watch: Watch) -> None:
    """All that may be there at once: each on a pool, a dataset or a parameter of its own."""
    slow = (crowd("/slow", 2), writer("/well/unsafe/a", between=0.2), TRICKLE)
    held = [bulk(f"/held/bulk/{n}") for n in range(3)]
    with (
        loaded(*slow, *held),
        watch.cause("slow flushes"),
        watch.cause("sync=disabled"),
        watch.cause("more than a disk takes"),
        watch.cause("slow writes"),
    ):
        slow_syncs()
        with watch.cause("another program"):
            set_parameter("zfs_txg_timeout", "6")
        session(watch)
        with watch.cause("a log device that fails"):
            failing_log()
        failing_disk(watch)
    turn("long", delayed("/dev/vdd", 0))


def failing_disk(watch: Watch) -> None:
    try:
        with watch.cause("a disk that fails"):
            turn("frail", error("/dev/vdf"))
            waiting = something_written()
    finally:
        turn("frail", linear("/dev/vdf"))
        sh("zpool clear frail")
    waiting.wait()
    state = KSTAT / "frail/state"
    watch.until("the pool is back", lambda: state.read_text().strip() == "ONLINE")


def something_written() -> subprocess.Popen[bytes]:
    """What the pool's next txg has to write, by a process that may have to wait for the pool."""
    return subprocess.Popen(["sh", "-c", "date >>/frail/b"])


def no_answer(watch: Watch) -> None:
    """A disk that does not answer; at last an fsync waits for it. No other commit of the host may
    end meanwhile, or ZfsFsyncHung would not fire (alerts.yml says why)."""
    with ThreadPoolExecutor(1) as other:
        sh("dmsetup suspend --nolockfs --noflush frail")
        try:
            with watch.cause("a disk that does not answer"):
                waiting = something_written()
            with watch.cause("an fsync there"):
                fsync = other.submit(sync_writes, "/frail/a", 1)
        finally:
            sh("dmsetup resume frail")
        waiting.wait()
        fsync.result()
    progress("all alerts end but those of the objective")
    watch.until("their end", lambda: all(name in LASTING for name, _, _ in watch.firing()))


def itself(watch: Watch, exporters: dict[str, Exporter]) -> None:
    """What the exporter says about itself: two are scraped from now on that have already measured
    what they cost."""
    for pool in POOLS:
        if pool != "well":
            sh(f"zpool destroy -f {pool}")
    for i in range(DATASETS):
        sh(f"zfs create well/{i}")
    # commits that cost something, each time that is measured
    with loaded(writer("/well/db/a", between=0.05)), watch.cause("a small budget"):
        aim(DIRECTORY, list(TARGETS.values()))
        watch.until("three hosts", lambda: len(watch.shown("up == 1")) == len(TARGETS))
        with watch.cause(CROWDED):
            watch.until(CROWDED, lambda: crowded(watch))
        watch.until("its end", lambda: not watch.firing() & CAUSES[CROWDED])
    with watch.cause("kill -9"):
        exporters["all"].stop(signal.SIGKILL)
    with watch.cause(AGAIN):
        watch.until(AGAIN, lambda: imported(watch, exporters["light"]))


def crowded(watch: Watch) -> bool:
    """Calls fsync on each dataset; returns whether the alert fires."""
    for i in range(DATASETS):
        # There is nothing to commit: a first log takes a txg, too long for the objective.
        fd = os.open(f"/well/{i}", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return watch.firing() >= CAUSES[CROWDED]


def imported(watch: Watch, light: Exporter) -> bool:
    """Imports the only pool again; returns whether the alert fires."""
    sh("zpool export well")
    light.until("no pool", lambda found: not total(found, "zfstune_light_attached"))
    # what commits before it is attached again is lost
    sh("zpool import well")
    sync_writes("/well/db/a", 7)
    light.until_up(["light"])
    return watch.firing() >= CAUSES[AGAIN]


def started() -> dict[str, Exporter]:
    """The exporters; the one that is scraped first is the last, so that it counts nothing while
    others attach."""
    progress("exporters")
    options = {
        "light": ("--views", "light", "--budget", "0.001%"),
        "fsync": ("--views", "fsync", "--budget", "0.001%"),
        "all": ("--views", ",".join(VIEWS), "--budget", "100%", "--max-datasets", str(SERIES)),
    }
    found = {
        name: Exporter(*words, "--no-record", port=PORTS[name]) for name, words in options.items()
    }
    found["all"].until_up(VIEWS)
    return found


def main() -> None:
    results: Json = {}
    make_pools()
    load = ExitStack()
    reader = python(READER, "/well/db/read", READ_BYTES)
    load.enter_context(loaded(writer("/well/db/a", between=0.01), reader))
    exporters = started()
    DIRECTORY.mkdir()
    progress("Prometheus")
    with prometheus(
        Path("/share/prometheus"),
        DIRECTORY,
        [TARGETS["all"]],
        RULES,
        factor=FACTOR,
        interval=f"{INTERVAL_S}s",
    ) as url:
        watch = Watch(url)
        healthy(results, watch)
        causes(watch)
        load.close()
        no_answer(watch)
        itself(watch, exporters)
        results |= watch.facts()
    for name in ("light", "fsync"):
        exporters[name].stop()
    results["exporters"] = {name: one.facts() for name, one in exporters.items()}
    results["programs_left"] = programs()
    results["summary"] = (
        f"{len(results['fired'])} alerts by {len(CAUSES)} causes; "
        f"a scrape has {results['exporters']['all']['largest']:,} bytes"
    )
    finish(results)


main()
