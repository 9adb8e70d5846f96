"""Records how fsync latencies vary when nothing is changed, in a guest:

P=/zfstune/tracers:/zfstune/tests/lab/guest
scripts/lab run --disk size=8G,write-bps=30M,write-iops=600 --out tests/data/noise --timeout 40m \
  -- env PYTHONPATH=$P python3 /zfstune/tests/data/record_noise.py bulk 1080
scripts/lab run --disk size=8G --out tests/data/noise \
  -- env PYTHONPATH=$P python3 /zfstune/tests/data/record_noise.py wal 480

`bulk` is 1 MiB buffered writes beside 8 KiB writes with an fsync after each, on a disk that they
fill; `wal` is the latter alone. What is measured is what a session measures: the histogram of
each second, from `zfstune trace fsync`. Of each second the file (gzip) has a line: the bytes
written to the pool's datasets meanwhile, then BUCKET:COUNT for each bucket of zfstrace.hist.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time

from labkit import KSTAT, make_pool, sh
from zfstrace import hist

WARM_UP = 45


def load(name: str, seconds: int, options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        f"exec fio --name={name} --directory=/tank/{name} --rw=write --fallocate=none "
        f"--time_based --runtime={seconds} --output=/dev/null {options}",
        shell=True,
    )


def written() -> int:
    """Bytes written by applications to all datasets of the pool."""
    total = 0
    for objset in (KSTAT / "tank").glob("objset-0x*"):
        fields = (line.split() for line in objset.read_text().splitlines())
        total += sum(int(f[2]) for f in fields if f and f[0] == "nwritten")
    return total


def line(row: dict[str, object], size: int) -> str:
    histogram = row["histogram"]
    assert isinstance(histogram, list)
    counts = " ".join(f"{hist.index(low)}:{count}" for low, _high, count in histogram)
    return f"{size} {counts}".rstrip()


def record(kind: str, seconds: int) -> list[str]:
    make_pool()
    sh("zfs create tank/bulk; zfs create tank/wal")
    whole = seconds + WARM_UP + 60
    loads = [load("wal", whole, "--bs=8k --size=64M --fsync=1")]
    if kind == "bulk":
        loads.append(load("bulk", whole, "--bs=1M --size=1500M"))
    time.sleep(WARM_UP)
    command = ["zfstune", "trace", "fsync", "tank", "--interval", "1s", "--json", "--histogram"]
    tracer = subprocess.Popen(
        [*command, "--duration", f"{seconds}s"], stdout=subprocess.PIPE, text=True
    )
    assert tracer.stdout
    lines: list[str] = []
    before = None
    for text in tracer.stdout:
        row = json.loads(text)
        if row["type"] == "fsync_summary" and row["dataset"] is None:
            now = written()
            if before is not None:  # the first second is also the time it took to attach
                lines.append(line(row, now - before))
            before = now
            if lines and len(lines) % 60 == 0:
                print(f"{len(lines)} s, {row['count']} fsyncs in the last one", flush=True)
    for job in loads:
        job.kill()
    if tracer.wait():
        raise RuntimeError("the trace failed")
    return lines


def main(kind: str, seconds: str) -> int:
    text = "\n".join(record(kind, int(seconds))) + "\n"
    with gzip.GzipFile(f"/out/{kind}.gz", "wb", 9, mtime=0) as out:
        out.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
