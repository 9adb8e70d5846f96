"""Records what the D scripts print on FreeBSD, for the unit tests of their readers:
  scripts/lab run --flavour freebsd-15 --disk size=1G --out tests/data/dtrace \
    -- python3 /zfstune/tests/data/record_freebsd.py
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, "/zfstune/tests/lab/guest")

from reading import preads, pwrites

from labkit import OUT, make_pool, parameters, sh, sync_writes

SCRIPTS = Path("/zfstune/tracers/dtrace/freebsd")
LIST = "dtrace -xnolibs -l -P sched -P profile -n fbt:zfs:zil_commit:entry "
LIST += "-n fbt:zfs:zil_commit:return -n fbt:zfs:nosuch_function:entry -n nosuch:::probe"


def record(script: str, load: Callable[[], object]) -> None:
    file = OUT / f"{script}.out"
    with file.open("w") as out:
        process = subprocess.Popen(["dtrace", "-xnolibs", "-Zs", SCRIPTS / script], stdout=out)
    while not file.stat().st_size:
        time.sleep(0.1)
    load()
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    process.wait()


def commits() -> None:
    """40 through the log, 17 past it."""
    sync_writes("/tank/db/file", 40)
    sync_writes("/tank/quick/file", 17)


def throttled() -> None:
    with parameters(zfs_dirty_data_max=4 << 20):
        sh("dd if=/dev/zero of=/tank/bulk bs=1m count=12")


def reads() -> None:
    """30, of which one does not find its record in memory, after 7 writes."""
    pwrites("/tank/db/read", 7)
    preads("/tank/db/read", 23, blocks=7)
    sh("zpool export tank; zpool import tank")
    preads("/tank/db/read", 7)


def txgs() -> None:
    """Three that somebody waits for, and one by the timer."""
    for i in range(3):
        Path(f"/tank/db/txg{i}").write_bytes(bytes(1 << 20))
        sh("zpool sync tank")
    time.sleep(6)


def main() -> None:
    make_pool()
    sh("zfs create tank/db; zfs create -o sync=disabled tank/quick; kldload -n dtraceall")
    sync_writes("/tank/db/file", 3)  # creates the log
    record("zilevent-json.d", commits)
    record("zilcommit.d", commits)
    record("txgstate-json.d", txgs)
    record("zfsthrottle-json.d", throttled)
    record("zfsdevice-json.d", lambda: sync_writes("/tank/db/file", 7))
    record("zfsread-json.d", reads)
    record("arcstate-json.d", lambda: sh("zinject -a; cat /tank/bulk >/dev/null"))
    listed = subprocess.run(LIST.split(), capture_output=True, text=True, check=True)
    (OUT / "list.out").write_text(listed.stdout)
    (OUT / "list.err").write_text(listed.stderr)


main()
