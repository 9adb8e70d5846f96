"""Which one-file tools of tracers/bpftrace and tracers/bcc would work here."""

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


def of_host(root: Path) -> list[Tool]:
    """Every tool, and what it lacks on the host whose files are below root."""
    lacks = {"bpftrace": _bpftrace_lacks(), "bcc": _bcc_lacks(root)}
    symbols = _symbols(root / "proc/kallsyms")
    tools = []
    for name, needs in NEEDS.items():
        runner = "bcc" if name.endswith(".py") else "bpftrace"
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


def _symbols(kallsyms: Path) -> set[str]:
    wanted = {symbol for needs in NEEDS.values() for symbol in needs}
    try:
        with kallsyms.open(encoding="utf-8") as lines:
            return {name for line in lines for name in line.split()[2:3] if name in wanted}
    except OSError:
        return set()
