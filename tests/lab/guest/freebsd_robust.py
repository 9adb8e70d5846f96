"""Scenario: a FreeBSD host that lacks something: a jail, no privilege, no DTrace, no ZFS, a pool
that is suspended; and pools with defects, of which `zfstune advise` speaks.

/dev/vtbd1 has physical sectors of 4 KiB.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from forked import zfstune
from labkit import Json, finish, make_pool, progress, run, sh, sync_writes

DISKS = ("/dev/vtbd1", "/dev/vtbd2", "/dev/vtbd3")
FORKED = "/zfstune/tests/lab/guest/forked.py"
COMMANDS = {
    "get": ["params", "get", "zfs_txg_timeout"],
    "set": ["params", "set", "zfs_txg_timeout=9s"],
    "status": ["status"],
    "trace": ["trace", "fsync", "--duration", "1s"],
    "kstat": ["trace", "txg", "--source", "kstat", "--duration", "1s"],
    "doctor": ["doctor", "--json"],
    "advise": ["advise", "--json"],
    "check": ["check", "tank", "--show", "zil.commits,txg.sync.p99"],
}
# A jail's own /dev, which hides that of DTrace (devfs.rules(5), devfsrules_jail), above the host's
# files.
JAIL = (
    "service devfs onestart; mkdir -p /tmp/jail/dev /tmp/jail/tmp; cd /tmp/jail; "
    "for part in bin sbin lib libexec usr etc var zfstune; do mkdir -p $part; "
    "mount -t nullfs /$part /tmp/jail/$part; done"
)


def commands_by(prefix: list[str], *, quoted: bool = False) -> Json:
    """What the commands say when another process runs them."""
    command = ["python3", FORKED, json.dumps(list(COMMANDS.values()))]
    if quoted:
        command = [f"{command[0]} {command[1]} '{command[2]}'"]
    done = run([*prefix, *command], timeout=600)
    if done["status"]:
        raise RuntimeError(f"{prefix}: {done}")
    return dict(zip(COMMANDS, json.loads(done["stdout"]), strict=True))


def value() -> int:
    return int(sh("sysctl -n vfs.zfs.txg.timeout"))


def without_privilege(results: Json) -> None:
    progress("nobody")
    # root's journal is there
    zfstune("params", "set", "zfs_txg_timeout=9s")
    zfstune("revert")
    results["nobody"] = commands_by(["su", "-m", "nobody", "-c"], quoted=True)
    progress("jail")
    sh(JAIL)
    jail = ["jail", "-c", "name=lab", "path=/tmp/jail", "mount.devfs", "devfs_ruleset=4"]
    environment = "command=/usr/bin/env"
    python_path = "PYTHONPATH=/zfstune/tracers:/zfstune/tuner:/zfstune/platform/freebsd"
    results["jail"] = commands_by([*jail, environment, python_path])
    results["value"] = value()


@contextmanager
def suspended_pool(disk: str) -> Iterator[str]:
    """A pool whose only disk fails, by name; its state. Afterwards the disk works again."""
    name, state = "frail", ""
    sh(f"kldload -n geom_nop; gnop create {disk}")
    sh(f"zpool create -f -o ashift=12 -o failmode=wait {name} {disk}.nop")
    sh(f"gnop configure -r 100 -w 100 -e 5 {disk}.nop")
    sh(f"(dd if=/dev/zero of=/{name}/x bs=1m count=64; sync) >/dev/null 2>&1 &")
    until = time.monotonic() + 60
    while state != "SUSPENDED" and time.monotonic() < until:
        time.sleep(0.5)
        state = sh(f"sysctl -n kstat.zfs.{name}.misc.state").strip()
    try:
        yield state
    finally:
        sh(f"gnop configure -r 0 -w 0 {disk}.nop; zpool clear {name}")


def suspended(results: Json) -> None:
    progress("suspended")
    with suspended_pool(DISKS[1]) as state:
        results["suspended"] = {
            "state": state,
            "advise one": zfstune("advise", "frail"),
            "advise all": zfstune("advise", "--json"),
            "txgs": zfstune("trace", "txg", "frail", "--source", "kstat", "--duration", "1s"),
            "fsyncs": zfstune("trace", "fsync", "frail", "--duration", "1s"),
            "set": zfstune("params", "set", "zfs_txg_timeout=9s"),
            "status": zfstune("status"),
            "revert": zfstune("revert"),
            "doctor": zfstune("doctor"),
        }
    sh("while pgrep -x dd sync; do sleep 0.2; done; zpool destroy frail; gnop destroy vtbd2.nop")


def advised(results: Json) -> None:
    """The defects of tests/lab/guest/advise.py that a pool of FreeBSD can have."""
    progress("advise")
    one, two, three = DISKS
    sh(
        "zpool create -f -o ashift=12 -O compression=lz4 -O atime=off -O xattr=sa "
        f"clean mirror {two} {three}"
    )
    results["clean"] = zfstune("advise", "clean", "--json")
    sh("zpool destroy clean")
    sh(f"zpool create -f -o ashift=9 -O compression=lz4 bad {one} log {two} cache {three}")
    sh("zfs create -o sync=disabled bad/nosync; zfs create bad/nosync/below")
    sh("zfs create -o logbias=throughput bad/throughput")
    sh("zfs create -o compression=off -o recordsize=128K bad/db; mkdir /bad/db/pg")
    sh("zfs create -o checksum=off -o primarycache=none bad/none")
    sh("zfs create -o dedup=on -o copies=2 -o redundant_metadata=none 'bad/a b'")
    sh("zfs create -V 64M -o volblocksize=4K bad/vol")
    history = sh("zpool history bad")
    results["bad"] = zfstune("advise", "bad", "--json")
    results["bad_text"] = zfstune("advise", "bad")
    sh("mkdir -p /tmp/conf")
    with open("/tmp/conf/postgresql.conf", "w") as file:  # noqa: PTH123
        file.write("data_directory = '/bad/db/pg'\nshared_buffers = 64MB\n")
    results["postgresql"] = zfstune("advise", "--config", "/tmp/conf/postgresql.conf", "--json")
    results["unknown"] = zfstune("advise", "bda")
    results["unchanged"] = sh("zpool history bad") == history
    sh("zpool destroy bad")


def parameters(results: Json) -> None:
    """A parameter changed by a person, one changed by zfstune, one that can lose data."""
    progress("parameters")
    sh("sysctl vfs.zfs.txg.timeout=9 vfs.zfs.zil.nocacheflush=1")
    zfstune("params", "set", "zfs_delay_scale=400us")
    results["parameters"] = zfstune("advise", "tank", "--json")
    sh("sysctl vfs.zfs.txg.timeout=5 vfs.zfs.zil.nocacheflush=0")
    zfstune("revert")


def without_modules(results: Json) -> None:
    progress("no DTrace")
    sh("kldunload dtraceall")
    results["no_dtrace"] = commands_by([])
    results["not_loaded"] = "dtrace" not in sh("kldstat")
    results["reset"] = zfstune("revert")
    progress("no ZFS")
    sh("zpool export tank; kldunload zfs")
    results["no_zfs"] = commands_by([])
    sh("kldload zfs; zpool import tank; kldload dtraceall")
    results["zfs_again"] = zfstune("params", "get", "zfs_txg_timeout")


def main() -> None:
    results: Json = {}
    make_pool()
    sync_writes("/tank/warm", 3)
    without_privilege(results)
    suspended(results)
    parameters(results)
    without_modules(results)
    sh("zpool destroy tank")
    advised(results)
    finish(results)


main()
