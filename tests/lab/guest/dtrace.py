"""Scenario: the D scripts in their Linux variant beside known numbers of fsyncs, ZFS's own kstats
and libzfstrace, all at the same time."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import dtrace_stacks
from dscripts import Script

from labkit import (
    Json,
    Tracer,
    finish,
    fio,
    kstat,
    make_pool,
    progress,
    run,
    sh,
    sync_writes,
)

FREEBSD = Path("/zfstune/tracers/dtrace/freebsd")
FREEBSD_TYPES = Path(__file__).with_name("dtrace_freebsd.h")
DIRTY_MAX = Path("/sys/module/zfs/parameters/zfs_dirty_data_max")
TXGS = Path("/proc/spl/kstat/zfs/slow/txgs")
ASSIGN = Path("/proc/spl/kstat/zfs/tank/dmu_tx_assign")
ARC_MAX = Path("/sys/module/zfs/parameters/zfs_arc_max")
BIG = Path("/tank/db/big")
_FUTEX = 202  # on x86-64
_CMP_REQUEUE, _FUTEX_PRIVATE = 4, 128


class Pair:
    """A script and `zfstune trace VIEW` for the same time."""

    def __init__(self, view: str, name: str, *args: str) -> None:
        self.tracer = Tracer(*view.split())
        self.script = Script(name, *args)

    def stop(self) -> Json:
        found = self.script.stop()
        return found | {"rows": self.tracer.rows(), "tracer_stderr": self.tracer.stderr.read_text()}


def two_pools(results: Json, name: str, *args: str) -> None:
    """211 fsyncs on one pool and 13 on the other, at once."""
    pair = Pair("fsync", name, *args)
    script = "import labkit; labkit.sync_writes('/slow/other', 13)"
    other = subprocess.Popen(["python3", "-c", script], cwd=Path(__file__).parent)
    sync_writes("/tank/db/mine", 211)
    other.wait()
    results[name] = pair.stop()


def slow(results: Json, view: str, name: str, *args: str) -> None:
    """23 fsyncs on the pool whose disk takes 40 ms for each flush."""
    pair = Pair(view, name, *args)
    sync_writes("/slow/file", 23)
    results[name] = pair.stop()


def threads(results: Json, name: str, *args: str) -> None:
    """Eight jobs of 31 writes in one dataset, with an fsync between each two."""
    pair = Pair("fsync", name, *args)
    fio("/tank/db", "--fsync=1", "--numjobs=8", "--thread", "--number_ios=31")
    results[f"threads {name}"] = pair.stop()


def txgs(results: Json, name: str) -> None:
    pair = Pair("txg slow", name, "slow")
    for i in range(13):
        Path(f"/slow/txg{i}").write_bytes(bytes(1 << 20))
        sh("zpool sync tank slow")
    rows = [line.split() for line in TXGS.read_text().splitlines()[1:]]
    results[name] = pair.stop() | {"kstat": rows}


def throttled(results: Json, name: str) -> None:
    before = DIRTY_MAX.read_text()
    pair = Pair("throttle tank", name, "tank")
    ASSIGN.write_text("0")
    DIRTY_MAX.write_text(str(16 << 20))
    sh("dd if=/dev/zero of=/tank/db/bulk bs=1M count=100 conv=fsync")
    # names contain a space ("1024 ns")
    lines = [line.split() for line in ASSIGN.read_text().splitlines()[2:]]
    DIRTY_MAX.write_text(before)
    results[name] = pair.stop() | {"kstat_waits": sum(int(fields[-1]) for fields in lines)}


def pressure(results: Json, name: str) -> None:
    """Reads more than the ARC may have; its limit falls while it is full; the kernel wants its
    memory back."""
    if not BIG.exists():
        with BIG.open("wb") as file:
            for _ in range(700):
                file.write(os.urandom(1 << 20))
        sh("zpool sync tank")
    script = Script(name)
    before = kstat("arcstats")
    ARC_MAX.write_text(str(400 << 20))
    sh(f"cat {BIG} > /dev/null")
    reader = subprocess.Popen(["cat", str(BIG)], stdout=subprocess.DEVNULL)
    time.sleep(0.2)
    ARC_MAX.write_text(str(160 << 20))
    reader.wait()
    ARC_MAX.write_text(str(400 << 20))
    sh(f"cat {BIG} > /dev/null")
    sh("echo 3 > /proc/sys/vm/drop_caches")
    time.sleep(2.5)  # the rows of all that
    after = kstat("arcstats")
    results[name] = script.stop() | {"before": before, "after": after}
    ARC_MAX.write_text(str(before["c_max"]))


def idle(results: Json, name: str) -> None:
    """Nothing happens while it runs."""
    script = Script(name, "nosuchpool")
    results[f"idle {name}"] = script.stop()


def compiled(results: Json) -> None:
    """The FreeBSD variants, as far as their syntax and types go: no probe of theirs exists."""
    types = FREEBSD_TYPES.read_text()
    results["compiled"] = {}
    for script in sorted(FREEBSD.iterdir()):
        text = script.read_text().partition("\n")[2]
        text = text.replace("struct bio ", "struct standin_bio ")
        text = text.replace("args[0]->td_", "((struct standin_thread *)arg0)->td_")
        text = text.replace("curthread->td_", "((struct standin_thread *)curthread)->td_")
        text = text.replace("`arc_stats.arcstat_c.value.ui64", "timestamp")
        copy = Path("/tmp") / script.name
        copy.write_text(types + text)
        results["compiled"][script.name] = run(["dtrace", "-e", "-Z", "-s", str(copy)])
    bad = Path("/tmp/bad.d")
    bad.write_text("fbt::no_such_function:entry { trace(no_such_thing(1)); }\n")
    results["compiled"]["bad"] = run(["dtrace", "-e", "-Z", "-s", str(bad)])


def zilcommit(results: Json) -> None:
    two_pools(results, "zilcommit.d", "tank")
    idle(results, "zilcommit.d")


def zilslower(results: Json) -> None:
    slow(results, "fsync", "zilslower.d", "30", "slow")


def zilevent(results: Json) -> None:
    two_pools(results, "zilevent-json.d")
    threads(results, "zilevent-json.d", "0", "tank")


def zfsflush(results: Json) -> None:
    slow(results, "device slow", "zfsflush.d")


def fsyncstack(results: Json) -> None:
    slow(results, "fsync", "fsyncstack.d")
    dtrace_stacks.convert(results, results["fsyncstack.d"]["stdout"])
    dtrace_stacks.session(results, "off-cpu", "off-cpu", None, dtrace_stacks.slow)
    dtrace_stacks.session(results, "on-cpu", "on-cpu", None, dtrace_stacks.slow)
    dtrace_stacks.session(results, "wakeup", "wakeup", None, dtrace_stacks.slow)
    dtrace_stacks.session(results, "pool", "off-cpu", "tank", dtrace_stacks.both_pools)
    dtrace_stacks.refused(results)


def txgstate(results: Json) -> None:
    txgs(results, "txgstate.d")
    txgs(results, "txgstate-json.d")


def zfsthrottle(results: Json) -> None:
    throttled(results, "zfsthrottle.d")
    throttled(results, "zfsthrottle-json.d")


def arcstate(results: Json) -> None:
    pressure(results, "arcstate.d")
    pressure(results, "arcstate-json.d")


def sysctlwrite(results: Json) -> None:
    """The script for FreeBSD on a system call of Linux with arguments alike: futex(2), of which the
    first is an address, the second (the operation) taken for a length, the fifth an address."""
    libc = ctypes.CDLL(None, use_errno=True)
    other = ctypes.c_int(0)

    def call(data: bytes, operation: int, expected: int) -> int:
        """FUTEX_CMP_REQUEUE: 0 when the memory has the expected number, else EAGAIN."""
        arguments = (_FUTEX, ctypes.create_string_buffer(data), operation, 0, 0)
        longs = [a if isinstance(a, ctypes.Array) else ctypes.c_long(a) for a in arguments]
        found: int = libc.syscall(*longs, ctypes.byref(other), ctypes.c_long(expected))
        return found

    text = (FREEBSD / "sysctlwrite-json.d").read_text()
    asked = {
        "__sysctl": (struct.pack("4i", 3, 277, 1, 5), _CMP_REQUEUE),
        "__sysctlbyname": (b"vfs.zfs.txg.timeout", _CMP_REQUEUE | _FUTEX_PRIVATE),
    }
    results["sysctlwrite"] = {}
    for name, (data, operation) in asked.items():
        copy = Path(f"/tmp/{name}.d")
        copy.write_text(text.replace(f"syscall::{name}:", "syscall::futex:"))
        copy.chmod(0o755)
        reader = subprocess.Popen(["sleep", "1000"])
        script = Script(str(copy), str(reader.pid))
        (first,) = struct.unpack_from("i", data)
        statuses = [call(data, operation, first), call(data, operation, first + 1)]
        statuses.append(call(bytes([data[0] + 1]) + data[1:], operation, first + 1))  # another node
        time.sleep(1)
        reader.kill()
        reader.wait()
        script.process.wait(60)  # it ends with its reader
        results["sysctlwrite"][name] = script.stop() | {"statuses": statuses}


STEPS = (
    compiled,
    sysctlwrite,
    zilcommit,
    zilslower,
    zilevent,
    zfsflush,
    fsyncstack,
    txgstate,
    zfsthrottle,
    arcstate,
)


def in_order() -> None:
    """Loads dm-delay before ZFS. To DTrace 2.0.7 a module is one range of addresses: where ZFS lies
    between two parts of dm-delay, it names ZFS's functions after that."""
    table = sh("dmsetup table vdc-delay").strip()
    sh("dmsetup remove vdc-delay; modprobe -r zfs dm_delay; modprobe dm_delay; modprobe zfs")
    sh(f"dmsetup create vdc-delay --table '{table}'; udevadm settle")


def main(only: list[str]) -> None:
    results: Json = {"dtrace": sh("dtrace -V").strip(), "pid": os.getpid()}
    results["hour"] = time.strftime("%Y-%m-%dT%H", time.gmtime())
    in_order()
    make_pool()
    sh("zfs create tank/db")
    make_pool("slow", "/dev/mapper/vdc-delay")
    for directory in ("/tank/db", "/slow"):
        fio(directory, "--fsync=1", "--number_ios=3", name="warm")  # creates the log
    for step in STEPS:
        if only and step.__name__ not in only:
            continue
        try:
            step(results)
        except RuntimeError as error:  # the others are reported nevertheless
            results.setdefault("failed", {})[step.__name__] = str(error)
            progress(str(error))
        finish(results)  # also the results so far when time runs out


main(sys.argv[1:])
