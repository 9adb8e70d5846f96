"""Which one-file tools of tracers/bpftrace, tracers/bcc and tracers/dtrace would work here."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from zfstrace.types import Tool

# What a commit passes. zil_commit_impl is in every version; __traceiter_contention_begin stands
# for the tracepoint lock:contention_begin (Linux 5.19), so that tracefs need not be readable.
_COMMIT = (
    "zil_commit_impl",
    "zil_async_to_sync",
    "zil_lwb_write_issue",
    "spa_tx_assign_add_nsecs",
    "dmu_tx_wait",
    "cv_timedwait_hires",
    "__cv_wait",
    "txg_wait_synced",
)
_LOCKS = ("__traceiter_contention_begin", "__traceiter_contention_end")

# bpftrace exits if a symbol is missing. The bcc tools need only the first few.
NEEDS: dict[str, tuple[str, ...]] = {
    "fsyncoffcpu.bt": ("zpl_fsync",),
    "txgstate.bt": (
        "trace_zfs_txg__opened",
        "trace_zfs_txg__quiescing",
        "trace_zfs_txg__quiesced",
        "trace_zfs_txg__syncing",
        "trace_zfs_txg__synced",
    ),
    "zfsflush.bt": (
        "zil_lwb_add_block",
        "zil_lwb_write_done",
        "zil_lwb_flush_vdevs_done",
        "zio_flush",
        "vdev_disk_io_start",
        "vdev_disk_io_flush_completion",
    ),
    "zfsthrottle.bt": ("spa_tx_assign_add_nsecs", "trace_zfs_delay__mintime"),
    "zilcommit.bt": (*_COMMIT, *_LOCKS),
    "zilslower.bt": (*_COMMIT, *_LOCKS),
    "zildist.py": ("zil_commit_impl", "zil_async_to_sync", "zil_lwb_write_issue", "__cv_wait"),
    "zilslower.py": ("zil_commit_impl", "zil_async_to_sync", "zil_lwb_write_issue", "__cv_wait"),
}

# dtrace(1) goes on without probes that are missing (-Z): here are those without which a script
# shows nothing in any version. Types come from the module's BTF.
_D_COMMIT = (
    "__cv_wait",
    "zil_lwb_write_issue",
    "zil_lwb_write_done",
    "zil_lwb_flush_vdevs_done",
)
D_NEEDS: dict[str, tuple[str, ...]] = {
    "arcstate.d": ("trace_zfs_arc__wait__for__eviction",),
    "fsyncstack.d": ("zpl_fsync", *_D_COMMIT),
    "txgstate.d": NEEDS["txgstate.bt"],
    "zfsflush.d": tuple(name for name in NEEDS["zfsflush.bt"] if name != "zio_flush"),
    "zfsthrottle.d": NEEDS["zfsthrottle.bt"],
    "zilcommit.d": _D_COMMIT,
    "zilslower.d": _D_COMMIT,
}
_RUNNERS = {".bt": "bpftrace", ".py": "bcc", ".d": "dtrace"}


def of_host(root: Path) -> list[Tool]:
    """Every tool, and what it lacks on the host whose files are below root; D scripts only where
    DTrace is installed, which few hosts have."""
    lacks = {"bpftrace": _bpftrace_lacks(), "bcc": _bcc_lacks(root), "dtrace": _dtrace_lacks(root)}
    symbols = _symbols(root / "proc/kallsyms")
    tools = []
    for name, needs in (NEEDS | (D_NEEDS if _dtrace(root) else {})).items():
        runner = _RUNNERS[Path(name).suffix]
        missing = [symbol for symbol in needs if symbol not in symbols]
        if not (root / "sys/module/zfs").is_dir():
            why = "ZFS is not loaded"
        elif missing:
            why = f"the kernel has no {', '.join(missing)}"
        else:
            why = lacks[runner]
        tools.append(Tool(name, runner, why))
    return tools


def _bpftrace_lacks() -> str:
    return "" if shutil.which("bpftrace") else "bpftrace is not installed"


def _bcc_lacks(root: Path) -> str:
    # not imported, which takes half a second
    if importlib.util.find_spec("bcc") is None:
        return "Python's module bcc is not installed"
    # bcc compiles at start
    headers = root / "lib/modules" / os.uname().release / "build"
    if headers.exists() or (root / "sys/kernel/kheaders.tar.xz").exists():
        return ""
    return "the headers of this kernel are not installed"


def _dtrace(root: Path) -> bool:
    """Whether DTrace for Linux is installed: SystemTap has a script of that name."""
    try:
        with (root / "usr/sbin/dtrace").open("rb") as program:
            return program.read(4) == b"\x7fELF"
    except OSError:
        return False


def _dtrace_lacks(root: Path) -> str:
    return "" if (root / "sys/kernel/btf/zfs").exists() else "the zfs module has no BTF"


def _symbols(kallsyms: Path) -> set[str]:
    wanted = {symbol for needs in (*NEEDS.values(), *D_NEEDS.values()) for symbol in needs}
    try:
        with kallsyms.open(encoding="utf-8") as lines:
            return {name for line in lines for name in line.split()[2:3] if name in wanted}
    except OSError:
        return set()
