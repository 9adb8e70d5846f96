"""The items of check.py: each tries one part of zfstune on this FreeBSD host."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Union

# puts zfstune on the path
from freebsd.host import (
    COMMAND_S,
    FSYNCS,
    ROOT,
    Failed,
    Host,
    Skipped,
    fsyncs,
    rows,
    started,
    stop,
    tail,
    wait_for,
)
from zfs_freebsd import mounts
from zfs_freebsd.dtrace import probes, scripts
from zfs_freebsd.parameters import FreeBSDParameters
from zfs_freebsd.sysctl import SysctlError
from zfstrace import processes, version
from zfstrace.disk import dev_of
from zfstune.tunables import catalogue

SCRIPTS = "tracers/dtrace/freebsd"
SEEN = ROOT / "tests/data/dtrace_probes.json"
TXG_TIMEOUT = "vfs.zfs.txg.timeout"
_NEAR_S = 3600


# The text of a result, with or without lines of details.
Said = Union[str, tuple[str, Sequence[str]]]


def python(_host: Host) -> Said:
    return "{}.{}.{}".format(*sys.version_info[:3])


def system(host: Host) -> Said:
    jail = host.sysctl.get_int("security.jail.jailed")
    who = "root" if os.geteuid() == 0 else "not root"
    return f"{os.uname().release}, {who}{' in a jail' if jail else ''}"


def zfs(host: Host) -> Said:
    if not host.version():
        raise Failed("vfs.zfs.version.module does not exist; run `kldload zfs`")
    return host.version()


def parameters(host: Host) -> Said:
    """Each parameter of the catalogue that this version has is an integer, writable as the
    catalogue says, and reads as sysctl(8) reads it."""
    host.require_zfs()
    known = catalogue.load()
    names = {name: one.freebsd for name, one in known.items() if one.freebsd}
    there = FreeBSDParameters(host.sysctl, lambda: names).names()
    wrong, values = [], {}
    for name in there:
        oid = names[name]
        try:
            form = host.sysctl.format(host.sysctl.mib(oid), oid)
            value = host.sysctl.get(oid)
        except SysctlError as error:
            if error.strerror != os.strerror(2):  # under its older name
                wrong.append(f"{oid}: {error.strerror}")
            continue
        if not form.integer or not isinstance(value, int):
            wrong.append(f"{oid}: not an integer: type {form.kind & 0xF:#x}, format {form.text}")
            continue
        values[oid] = value
        if form.writable != (known[name].access != "load"):
            wrong.append(f"{oid}: {'can' if form.writable else 'cannot'} be set at run time")
    printed = by_sysctl(list(values))
    if not printed and values:
        wrong.append(f"`sysctl -e` prints none of {len(values)} readable sysctls")
    for oid, value in values.items() if printed else ():
        if printed.get(oid) != str(value):
            wrong.append(f"{oid}: read as {value}, sysctl(8) says {printed.get(oid, 'nothing')}")
    here = version.version_key(host.version())
    absent = [
        f"{one.freebsd}: absent"
        for name, one in known.items()
        if one.freebsd and name not in there and in_version(one, here)
    ]
    if wrong or not there:
        raise Failed(f"{len(wrong)} of {len(there)} are not as expected", [*wrong, *absent])
    return f"{len(there)} read as sysctl(8) does, {len(absent)} absent", absent


def in_version(one: catalogue.Parameter, here: tuple[int, ...]) -> bool:
    """Whether this version has it, according to the catalogue."""
    since = version.version_key(one.since or "")
    until = version.version_key(one.until or "")
    return since <= here and (not until or here[: len(until)] <= until)


def by_sysctl(names: Sequence[str]) -> dict[str, str]:
    """The values that sysctl(8) prints."""
    said = processes.output(["sysctl", "-e", *names], COMMAND_S)
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def kstats(host: Host) -> Said:
    pools = host.require_pool()
    lacks = [name for name in ("arcstats", "zil") if len(host.kstats.named(name)) < 5]
    if not isinstance(host.kstats.named("zil").get("zil_commit_count"), int):
        lacks.append("zil_commit_count")
    datasets = 0
    for number, pool in enumerate(pools, 1):
        if not host.kstats.text(pool, "misc", "state"):
            lacks.append(f"state of pool {number}")
        objsets = host.kstats.objsets(pool)
        named = [o for o in objsets.values() if host.kstats.objset_field(o, "dataset_name")]
        datasets += len(named)
        if len(named) != len(objsets):
            lacks.append(f"names of {len(objsets) - len(named)} datasets of pool {number}")
    if lacks:
        raise Failed(f"missing: {', '.join(lacks)}")
    return f"pools: {len(pools)}, datasets in use: {datasets}"


def txgs(host: Host) -> Said:
    """The txgs kstat of each pool has rising numbers and the clock of Python's monotonic_ns."""
    pools = host.require_pool()
    count = 0
    for number, pool in enumerate(pools, 1):
        found = host.kstats.txg_rows(pool)
        if not found:
            raise Failed(f"pool {number} has no rows: is vfs.zfs.txg.history 0?")
        count += len(found)
        txg = [row.txg for row in found]
        if txg != sorted(txg):
            raise Failed(f"the txg numbers of pool {number} do not rise", [str(txg[-20:])])
        age_s = (time.monotonic_ns() - found[-1].birth_ns) / 1e9
        if not 0 <= age_s < _NEAR_S:
            raise Failed(f"the open txg of pool {number} is {age_s:.0f} s old by CLOCK_MONOTONIC")
    return f"{count} rows"


def boot(host: Host) -> Said:
    now = host.boot()
    if not now:
        raise Failed("cannot read kern.boot_id or kern.boottime")
    if host.earlier_boot == now:
        raise Failed(f"still {now}: has the host been rebooted?")
    after = "" if host.earlier_boot else f"; after a reboot, run with --earlier-boot {now}"
    return f"{now}{after}"


def doctor(host: Host) -> Said:
    found = json.loads(host.zfstune("doctor", "--json", ok=(0, 1, 3)))
    # without dtrace, which another item reports, all probes are missing
    usable = not scripts.why_not(host.root)[0]
    lacks = [
        f"{row['name']}: {row.get('value') or row.get('why')}; {row['cost']}"
        for row in [*found["checks"], *(found["probes"] if usable else ())]
        if row["status"] != "ok"
    ]
    if found["status"] == "impossible" and usable:
        raise Failed("it reports that nothing can be traced here", lacks)
    return f"{found['status']}, {len(found['probes'])} probes", lacks


def params(host: Host) -> Said:
    host.require_zfs()
    found = json.loads(host.zfstune("params", "list", "--all", "--json"))["parameters"]
    if not found:
        raise Failed("`zfstune params list` lists no parameter")
    host.zfstune("params", "list")
    return f"{len(found)} listed"


def status(host: Host) -> Said:
    host.require_zfs()
    return tail(host.zfstune("status"), 1)[0].strip()


def keep(host: Host) -> Said:
    host.require_zfs()
    # 1: nothing is set, so nothing to keep
    host.zfstune("keep", "--print", ok=(0, 1))
    return "`zfstune keep --print` works"


def kstat_traces(host: Host) -> Said:
    host.require_pool()
    options = ("--source", "kstat", "--json", "--duration")
    seen = rows(host.zfstune("trace", "txg", *options, f"{host.window_s}s"))
    for view in ("arc", "read"):
        rows(host.zfstune("trace", view, *options, "2s"))
    if not seen:
        return f"no txg ended within {host.window_s} s"
    return f"{len(seen)} txgs in {host.window_s} s"


def dtrace(host: Host) -> Said:
    """Whether dtrace(1) runs. It is not started if its modules are not loaded, as it would load
    them."""
    why, fix = scripts.why_not(host.root)
    if why:
        raise Failed(f"{why}; {fix}")
    said = processes.output([probes.program(), "-V"], COMMAND_S).strip()
    there, why = probes.look_up(("profile:::tick-1s",))
    if not there:
        raise Failed("dtrace lists no probe", [why or "without saying why"])
    return said.removeprefix("dtrace: ")


def probe_list(host: Host) -> Said:
    """Every probe of the scripts; for the verdict, one of several alternatives is enough."""
    host.require_dtrace()
    seen = {entry["name"] for entry in json.loads(SEEN.read_text())["probe"]}
    names = sorted(seen | {name for need in probes.NEEDS for name in need.any_of})
    there, why = probes.look_up(names)
    missing = [name for name in names if name not in there]
    if why:
        raise Failed(f"cannot look them up: {why}")
    lacks = [
        f"{probe.tracer} {probe.name}: {probe.why}; {probe.cost}"
        for probe in probes.survey((*probes.TRACERS, "flush"))
        if probe.missing
    ]
    if lacks:
        raise Failed(f"{len(missing)} of {len(names)} missing", [*lacks, *missing])
    return f"{len(there)} of {len(names)} found", missing


def one_script(host: Host, path: Path) -> Said:
    """It compiles, starts, and exits cleanly."""
    host.require_dtrace()
    began = time.monotonic()
    # sysctlwrite-json.d exits with the given process
    arguments = [str(os.getpid())] if path.name.startswith("sysctl") else []
    argv = [probes.program(), "-Zs", str(path), *arguments]
    with started(argv, errors_apart=True) as process:
        said = wait_for(process, "Tracing|trace_begin", errors=False)
        took_s = time.monotonic() - began
        time.sleep(host.run_s)
        out, err = stop(process)
    said += out
    if process.returncode != 0:
        raise Failed(f"ended with status {process.returncode}", tail(err or said))
    if path.name.endswith("-json.d"):
        last = rows(said)[-1]
        if last["type"] != "trace_end":
            raise Failed("its last line is not trace_end", tail(said))
        faults = last["errors"]
    else:
        found = re.search(r"errors: (\d+)", said)
        if not found:
            raise Failed("its last line is missing", tail(said))
        faults = int(found[1])
    if faults:
        raise Failed("it ran into faults", tail(err or said, 10))
    return f"started after {took_s:.1f} s", tail(err)


def dataset_of(host: Host) -> str:
    if host.directory is None:
        raise Skipped("use --dir DIR, a directory on ZFS that nothing else writes to")
    host.require_dtrace()
    name = mounts.datasets().get(dev_of(host.directory))
    if name is None:
        raise Failed("the directory given by --dir is not on ZFS")
    return name


def commits(host: Host) -> int:
    value = host.kstats.named("zil").get("zil_commit_count")
    return value if isinstance(value, int) else 0


def count_by_script(host: Host) -> Said:
    """zilevent-json.d counts the fsyncs that the kstat zil counts."""
    pool = dataset_of(host).split("/", 1)[0]
    assert host.directory
    argv = [probes.program(), "-Zs", str(ROOT / SCRIPTS / "zilevent-json.d"), "0", pool]
    with started(argv, errors_apart=True) as process:
        said = wait_for(process, "trace_begin", errors=False)
        before = commits(host)
        fsyncs(host.directory, host.run_s)
        kstat = commits(host) - before
        out, err = stop(process)
    # a busy pool fills more than the first read, which may end within a line
    end = rows(said + out)[-1]
    found = int(end["count"])
    numbers = f"{FSYNCS} fsyncs: {found} by zilevent-json.d, {kstat} by kstat zil"
    never = [name for name in end["never_fired"] if name]
    if found < FSYNCS or kstat < found or end["lost"]:
        why = "; is it a dataset with sync=disabled?" if not kstat else ""
        more = [f"lost {end['lost']}, bypassed the log {end['bypassed']}, never fired {never}"]
        raise Failed(f"{numbers}{why}", [*more, *tail(err)])
    return numbers, [f"never fired: {name}" for name in never]


def count_by_command(host: Host) -> Said:
    """`zfstune trace fsync` counts them for the dataset, and the stages add up."""
    dataset = dataset_of(host)
    assert host.directory
    words = ("trace", "fsync", "--dataset", dataset, "--json", "--duration", "10s")
    argv = [*host.command, *words]
    with started(argv, host.environment(journal=False), errors_apart=True) as process:
        wait_for(process, "Ctrl-C to end", errors=True)
        fsyncs(host.directory, host.run_s)
        out, err = stop(process)
    if process.returncode:
        raise Failed(f"ended with status {process.returncode}", tail(err))
    seen = [row for row in rows(out) if row.get("dataset") == dataset]
    found = seen[-1]["commits"] if seen else 0
    if found < FSYNCS:
        raise Failed(f"{FSYNCS} fsyncs: {found} by `zfstune trace fsync`", tail(err))
    stages = {stage["name"]: stage["total_ns"] for stage in seen[-1]["stages"]}
    total = sum(stages.values()) or 1
    shares = [f"{name} {100 * ns / total:.0f} %" for name, ns in stages.items() if ns]
    return f"{FSYNCS} fsyncs: {found} by `zfstune trace fsync`", [", ".join(shares)]


def write(host: Host) -> Said:
    """zfs_txg_timeout is increased by one second, as sysctl(8) confirms, and restored."""
    if not host.write:
        raise Skipped("use --write to increase zfs_txg_timeout by one second, and restore it")
    host.require_zfs()
    if os.geteuid() != 0 or host.sysctl.get_int("security.jail.jailed"):
        raise Skipped("run as root outside jails")
    before = json.loads(host.zfstune("status", "--json", journal=True))
    if before["state"] != "unchanged":
        raise Skipped("zfstune has set parameters here, which this item would also revert")
    old = host.sysctl.get_int(TXG_TIMEOUT)
    if old is None:
        raise Failed(f"cannot read {TXG_TIMEOUT}")
    try:
        host.zfstune("params", "set", f"zfs_txg_timeout={old + 1}", journal=True)
        seen = by_sysctl([TXG_TIMEOUT]).get(TXG_TIMEOUT)
        changed = json.loads(host.zfstune("status", "--json", journal=True))["state"]
        kept = host.zfstune("keep", "--print", journal=True)
    finally:
        host.zfstune("revert", journal=True)
    after = by_sysctl([TXG_TIMEOUT]).get(TXG_TIMEOUT)
    if seen != str(old + 1) or after != str(old):
        raise Failed(f"{TXG_TIMEOUT} was {old}, was set to {old + 1}, read {seen}, is now {after}")
    if changed == "unchanged" or f"{TXG_TIMEOUT}={old + 1}" not in kept:
        raise Failed("`zfstune status` or `zfstune keep --print` does not show it", tail(kept))
    return f"{TXG_TIMEOUT}: {old}, {seen}, {after}"


Item = Callable[[Host], Said]
ITEMS: tuple[tuple[str, Item], ...] = (
    ("python", python),
    ("system", system),
    ("zfs", zfs),
    ("parameters", parameters),
    ("kstats", kstats),
    ("txgs", txgs),
    ("boot id", boot),
    ("doctor", doctor),
    ("params list", params),
    ("status", status),
    ("keep --print", keep),
    ("trace, kstats", kstat_traces),
    ("dtrace", dtrace),
    ("probes", probe_list),
    *(
        (path.name, functools.partial(one_script, path=path))
        for path in sorted((ROOT / SCRIPTS).glob("*.d"))
    ),
    ("count, script", count_by_script),
    ("count, command", count_by_command),
    ("write", write),
)
