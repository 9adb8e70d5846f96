"""Records what the write path does under settings in turns, for tests/support/simulator.

scripts/lab run --flavour trixie --disk size=8G,write-bps=30M,write-iops=600 \
    --out tests/data/simulator -- python3 /zfstune/tests/data/record_write_path.py

One bulk writer and one log writer run all the time on a slow disk; a block is a span in which
the settings stand still. Writes /out/write_path.json. Takes 20 minutes.
"""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

PARAMETERS = Path("/sys/module/zfs/parameters")
KSTAT = Path("/proc/spl/kstat/zfs")
ROUNDS, SETTLE, SECONDS, ALONE = 4, 18.0, 36.0, 15.0
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
MIB = 1 << 20
BULK_BYTES, WAL_BYTES, WAL_WRITE = 1500 * MIB, 64 * MIB, 8192

NAMES = (
    "zfs_dirty_data_max",
    "zfs_wrlog_data_max",
    "zfs_vdev_async_write_min_active",
    "zfs_vdev_async_write_max_active",
)
SETTINGS: dict[str, tuple[int, int, int] | None] = {
    "default": None,
    "dirty 32M": (32 * MIB, 2, 10),
    "depth 1": (0, 1, 1),
    "both": (32 * MIB, 1, 1),
    "between": (128 * MIB, 1, 4),
}

Json = dict[str, object]


def read(name: str) -> int:
    return int((PARAMETERS / name).read_text())


def write(name: str, value: int) -> None:
    (PARAMETERS / name).write_text(str(value))


def apply(dirty: int, low: int, high: int, default: int) -> None:
    """In an order in which no state between is hazardous."""
    dirty = dirty or default
    delay = read("zfs_delay_min_dirty_percent")
    write("zfs_delay_min_dirty_percent", 100)
    if dirty > read("zfs_dirty_data_max"):
        write("zfs_wrlog_data_max", 2 * dirty)
        write("zfs_dirty_data_max", dirty)
    else:
        write("zfs_dirty_data_max", dirty)
        write("zfs_wrlog_data_max", 2 * dirty)
    write("zfs_delay_min_dirty_percent", delay)
    write("zfs_vdev_async_write_min_active", 1)
    write("zfs_vdev_async_write_max_active", high)
    write("zfs_vdev_async_write_min_active", low)


class Wal(threading.Thread):
    """Writes 8 KiB and calls fsync, again and again; notes (end, duration) of each fsync."""

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True)
        self._file = os.open(path, os.O_RDWR)
        self._data = os.urandom(WAL_WRITE)
        self.done: list[tuple[float, float]] = []

    def run(self) -> None:
        offset = 0
        while True:
            os.pwrite(self._file, self._data, offset)
            offset = (offset + WAL_WRITE) % WAL_BYTES
            start = time.monotonic()
            os.fsync(self._file)
            end = time.monotonic()
            self.done.append((end, end - start))


def named(path: Path) -> dict[str, str]:
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    return {row[0]: row[2] for row in rows if len(row) == 3}


def written(dataset: str) -> int:
    """Bytes that programs wrote there."""
    for path in (KSTAT / "tank").glob("objset-0x*"):
        values = named(path)
        if values.get("dataset_name") == dataset:
            return int(values["nwritten"])
    raise SystemExit(f"record: {dataset} has no kstat")


def txgs() -> list[dict[str, int]]:
    """Committed ones that the history holds, oldest first; times in ns."""
    lines = (KSTAT / "tank/txgs").read_text().splitlines()
    names = lines[0].split()
    rows = [dict(zip(names, line.split(), strict=True)) for line in lines[1:]]
    wanted = ("txg", "ndirty", "otime", "qtime", "wtime", "stime")
    return [{key: int(row[key]) for key in wanted} for row in rows if row["state"] == "C"]


def latency(spans: list[float]) -> dict[str, float]:
    """ns, by quantile."""
    ordered = sorted(spans)
    last = len(ordered) - 1
    out = {f"p{q * 100:g}": round(ordered[round(q * last)] * 1e9) for q in QUANTILES}
    return {"count": len(ordered), "mean": round(sum(spans) / len(spans) * 1e9), **out}


def block(setting: str, wal: Wal, seconds: float) -> Json:
    first_txg = max(row["txg"] for row in txgs())
    tx, bytes_before, first = named(KSTAT / "dmu_tx"), written("tank/bulk"), len(wal.done)
    start = time.monotonic()
    time.sleep(seconds)
    span = time.monotonic() - start
    tx_after, spans = named(KSTAT / "dmu_tx"), [d for _, d in wal.done[first:]]
    counters = ("dmu_tx_dirty_delay", "dmu_tx_dirty_over_max")
    return {
        "setting": setting,
        "parameters": {name: read(name) for name in NAMES},
        "seconds": round(span, 3),
        "fsync": latency(spans) if spans else None,
        "bulk_bytes_per_s": round((written("tank/bulk") - bytes_before) / span),
        "delays": {name: int(tx_after[name]) - int(tx[name]) for name in counters},
        "txgs": [row for row in txgs() if row["txg"] > first_txg],
    }


def prepare() -> None:
    subprocess.run(
        "zpool create -o ashift=12 -O compression=off -O atime=off tank /dev/vdb &&"
        " zfs create tank/bulk && zfs create tank/wal &&"
        f" dd if=/dev/zero of=/tank/wal/log bs=1M count={WAL_BYTES // MIB} 2>/dev/null &&"
        f" dd if=/dev/zero of=/tank/bulk/file bs=1M count={BULK_BYTES // MIB} 2>/dev/null &&"
        " zpool sync tank",
        shell=True,
        check=True,
    )


def bulk() -> "subprocess.Popen[bytes]":
    command = "fio --name=bulk --filename=/tank/bulk/file --rw=write --bs=1M --ioengine=psync"
    command += f" --size={BULK_BYTES} --time_based --runtime=3600 --output=/dev/null"
    return subprocess.Popen(command.split(), stdout=subprocess.DEVNULL)


def main() -> None:
    defaults = {path.name: path.read_text().strip() for path in PARAMETERS.glob("zfs_*")}
    prepare()
    dirty = read("zfs_dirty_data_max")
    wal = Wal("/tank/wal/log")
    wal.start()
    blocks = [block("log alone", wal, ALONE)]
    writer = bulk()
    # the first block would have the limit still to be filled
    time.sleep(20)
    order = list(SETTINGS)
    for turn in range(ROUNDS):
        # forward and backward, so that a drift meets all alike; a lowered limit takes as long
        # to settle as the disk takes to write what is above it
        for name in order if turn % 2 == 0 else reversed(order):
            apply(*(SETTINGS[name] or (0, 2, 10)), default=dirty)
            time.sleep(SETTLE)
            blocks.append(block(name, wal, SECONDS))
            print(name, blocks[-1]["fsync"], blocks[-1]["bulk_bytes_per_s"], flush=True)
    writer.kill()
    kept = ("zfs_dirty", "zfs_delay", "zfs_txg", "zfs_vdev_async_w", "zfs_vdev_agg", "zfs_commit")
    recording = {
        "what": "1 bulk writer (1 MiB) and 1 log writer (8 KiB, fsync) on a disk of 30 MiB/s",
        "zfs": Path("/sys/module/zfs/version").read_text().strip(),
        "kernel": os.uname().release,
        "rotational": Path("/sys/block/vdb/queue/rotational").read_text().strip(),
        "write_bps": 30 * MIB,
        "write_iops": 600,
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "defaults": {k: v for k, v in sorted(defaults.items()) if k.startswith(kept)},
        "blocks": blocks,
    }
    # one block a line: a recording is read and compared by people as well
    head = json.dumps(recording | {"blocks": []}, indent=1).removesuffix("[]\n}")
    lines = ",\n".join("  " + json.dumps(each, separators=(",", ":")) for each in blocks)
    Path("/out/write_path.json").write_text(f"{head}[\n{lines}\n ]\n}}\n")


if __name__ == "__main__":
    main()
