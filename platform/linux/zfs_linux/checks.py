"""What tracing needs on Linux, and whether this host has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from zfs_linux import kstat, obstacles
from zfstrace.errors import LibraryMissing
from zfstrace.types import WRITES_BLOCKED, Check

# linux/capability.h
_BITS = {"CAP_DAC_OVERRIDE": 1, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
# Enough for kprobes (Linux 5.8); BTF of modules, and so fentry, is for CAP_SYS_ADMIN only
_KPROBES = {"CAP_BPF", "CAP_PERFMON"}

# Two profiles. In both, CAP_DAC_OVERRIDE is for writing to tracefs, which root owns.
NEEDED = "CAP_SYS_ADMIN and CAP_DAC_OVERRIDE"
LEAST = "CAP_BPF, CAP_PERFMON and CAP_DAC_OVERRIDE"


def of_host(proc: Path, sys: Path, pools: Sequence[str]) -> list[Check]:
    """Most basic first. proc and sys stand for /proc and /sys; pools are the imported ones. Never
    raises."""
    root, kstats = sys.parent, proc / "spl/kstat/zfs"
    loaded, module_btf = (sys / "module/zfs").is_dir(), (sys / "kernel/btf/zfs").exists()
    found = [
        obstacles.zfs(root),
        *_pools(kstats, pools),
        Check("kernel", "kernel", os.uname().release),
        *obstacles.of_kernel(root),
        obstacles.kernel_btf(root),
        *([obstacles.module_btf(module_btf)] if loaded else []),
        _tracefs(sys, module_btf),
        privileges(
            kstat.read(proc / "self/status"),
            module_btf,
            kstat.read_number(proc / "sys/kernel/perf_event_paranoid") or 0,
        ),
        _library(),
        *(_kstats(kstats, pools) if loaded else []),
    ]
    return obstacles.contained(root, found)


def _pools(kstats: Path, pools: Sequence[str]) -> list[Check]:
    """Those in which writes block."""
    states = {name: kstat.read(kstats / name / "state").strip() for name in pools}
    return [obstacles.pool(name, s) for name, s in states.items() if s in WRITES_BLOCKED]


def _tracefs(sys: Path, module_btf: bool) -> Check:
    for path in ("kernel/tracing", "kernel/debug/tracing"):
        try:
            if any((sys / path).iterdir()):
                return Check("tracefs", "kernel", "mounted")
        except PermissionError:
            return Check("tracefs", "kernel", "not readable without privilege")
        except OSError:
            continue
    if module_btf:
        return Check("tracefs", "kernel", "not mounted, not needed with module BTF")
    cost = "return probes without fentry get few instances: more operations are lost"
    fix = "run `mount -t tracefs tracefs /sys/kernel/tracing`"
    return Check("tracefs", "kernel", "not mounted", "missing", cost, fix)


def _library() -> Check:
    from zfstrace.bpf import binding, embedded  # ctypes is slow to load

    try:
        path = binding.find_library()
        binding.load(path)
    except LibraryMissing as error:
        return Check("libzfstrace", "library", "absent", "blocking", str(error), error.hint)
    inside = embedded.loaded()
    shown = inside.shown if inside and inside.path == path else path
    return Check("libzfstrace", "library", shown)


def _kstats(root: Path, pools: Sequence[str]) -> list[Check]:
    wanted = {"zil": "counts of ZIL commits cannot be compared"}
    wanted |= {f"{pool}/txgs": "txg_state of slow fsyncs is null" for pool in pools}
    return [
        Check(f"kstat {name}", "kstat", "present")
        if (root / name).exists()
        else Check(f"kstat {name}", "kstat", "absent", "missing", cost)
        for name, cost in wanted.items()
    ]


def capabilities(status: str) -> set[str]:
    """Which of _BITS are in the effective set, from the text of /proc/self/status."""
    for line in status.split("\n"):
        name, _, value = line.partition(":")
        if name == "CapEff":
            try:
                mask = int(value, 16)
            except ValueError:
                return set()
            return {cap for cap, bit in _BITS.items() if mask >> bit & 1}
    return set()


def privileges(status: str, module_btf: bool, paranoid: int = 0) -> Check:
    """Blocking without CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON. paranoid is
    kernel.perf_event_paranoid. What makes return probes in tracefs is not needed where fentry is
    possible."""
    have = capabilities(status)
    if "CAP_SYS_ADMIN" in have:
        have -= _KPROBES  # which it contains
    held = ", ".join(sorted(have)) or "none of those needed"
    if "CAP_SYS_ADMIN" not in have and not have >= _KPROBES:
        return Check(
            "privileges",
            "privilege",
            f"insufficient (has {held})",
            "blocking",
            "BPF programs cannot be loaded and attached",
            f"run as root or with {NEEDED}; {LEAST} do for kprobes",
        )
    if "CAP_SYS_ADMIN" not in have and paranoid >= obstacles.PARANOID:
        return obstacles.perf_events(held, paranoid)
    if not (
        "CAP_DAC_OVERRIDE" in have
        or (module_btf and "CAP_SYS_ADMIN" in have)
        or (have >= _KPROBES and _is_root(status))
    ):
        return Check(
            "privileges",
            "privilege",
            held,
            "missing",
            "return probes get few instances: with many threads operations are lost",
            f"run as root or with {NEEDED if 'CAP_SYS_ADMIN' in have else LEAST}",
        )
    if "CAP_SYS_ADMIN" not in have:
        held += ": kprobes, no fentry"
    return Check("privileges", "privilege", held)


def _is_root(status: str) -> bool:
    """Whether the process may write to files of root's without any capability."""
    for line in status.split("\n"):
        if line.startswith("Uid:"):
            return line.split()[2:3] == ["0"]
    return False
