"""Faults of a guest that no test causes, rare and only under emulation (docs/lab.md).

One that hangs at boot is booted again by scripts/lab; one whose kernel crashes runs again because
of what is here. Both are reported at the end.
"""

from __future__ import annotations

import re
import sys

ATTEMPTS = 3

# Scenarios of promises that must hold each time: whatever ends one of them is a failure.
NEVER = frozenset({"faults", "tune", "bench_matrix"})

# What calls the functions that have a kprobe (tracers/libzfstrace/tables.c and the one-file tools),
# by the machine code of 2.3.9, or through a pointer: the kernel names these at a fall at the entry
# of the former. What a bio's completion calls, which has interrupts off anyway, is not among them.
CALLERS = {
    "zil_commit_impl": {"zil_commit"},
    "zil_async_to_sync": {"zil_commit_impl"},
    "cv_timedwait_hires": {"zil_commit_impl", "txg_delay"},
    "__cv_wait": {
        *("zil_commit_impl", "dmu_tx_wait", "arc_wait_for_eviction", "zil_sync"),
        *("dmu_buf_hold_array_by_dnode", "dbuf_read"),
    },
    "__cv_timedwait_io": {"zio_wait"},
    "zpl_iter_read": {"vfs_read", "new_sync_read", "do_iter_readv_writev", "aio_read", "io_read"},
    "zpl_iter_write": {"vfs_write", "new_sync_write", "do_iter_readv_writev", "aio_write"},
    "zil_lwb_write_issue": {"zil_commit_impl"},
    "zil_lwb_add_block": {"zil_lwb_write_issue"},
    "zil_lwb_write_done": {"zio_done"},
    "zil_lwb_flush_vdevs_done": {"zio_done"},
    "zio_vdev_io_assess": {"zio_execute"},
    "vdev_disk_io_start": {"zio_vdev_io_start"},
    "dmu_tx_wait": {"dmu_tx_assign"},
    "spa_tx_assign_add_nsecs": {"dmu_tx_wait"},
    "zpl_fsync": {"__x64_sys_fsync", "__x64_sys_fdatasync", "do_fsync"},
    "zil_commit": {"zfs_fsync", "zfs_write", "zfs_putpage"},
    "txg_wait_synced_flags": {"txg_wait_synced"},
    "zil_sync": {"sync_meta_dnode_task"},
    "dsl_pool_sync": {"spa_sync"},
}

_CONSOLE = re.compile(r"^  \| (?:\[ *[\d.]+\](?:\[ *[TC]\d+\])? ?)?", re.M)
_FRAME = re.compile(r"^ +([a-zA-Z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+", re.M)
_FLAGS = re.compile(r"EFLAGS: ([0-9a-f]{8})")
_IF = 0x200


# Messages for the end of pytest's run.
REPEATED: list[str] = []


def again(attempt: int, scenario: str, flavour: str, log: str) -> bool:
    """Whether a run, the attempt-th from 1, is to be repeated; if so, it is counted and
    reported."""
    fault = fault_of(scenario, log) if attempt < ATTEMPTS else None
    if fault:
        REPEATED.append(f"{scenario} on {flavour}: {fault}")
        print(
            f"{REPEATED[-1]}, see docs/lab.md; again:\n{log[-4000:]}", file=sys.stderr, flush=True
        )
    return fault is not None


def count_boots(scenario: str, flavour: str, log: str) -> None:
    """Reports the boots that scripts/lab repeated in a run."""
    hung = re.findall(r"^lab: .* booted again$", log, re.M)
    REPEATED.extend(f"{scenario} on {flavour}: the guest was booted again" for _ in hung)


def fault_of(scenario: str, log: str) -> str | None:
    """Why a run that ended so is repeated; log is what `scripts/lab run --verbose` said."""
    if scenario in NEVER or not emulated(log):
        return None
    probed = fell_at(log)
    return f"the guest's kernel fell at the probe of {probed}" if probed else None


def emulated(log: str) -> bool:
    """Whether the guest was emulated, as scripts/lab reports; False if it does not."""
    return re.search(r"^lab: \S+ \S+, QEMU \S+, tcg\b", log, re.M) is not None


def fell_at(log: str) -> str | None:
    """The probed functions, one of which was being entered when the kernel continued at address 0;
    None for any other call of a null pointer.

    A kprobe's copy of the instruction is resumed with interrupts off (setup_singlestep(),
    arch/x86/kernel/kprobes/core.c, Linux 5.13 and later), while a call by the code itself in a
    thread has them on. The top of the stack is what the function returns to: its caller, which is
    the first of the trace.
    """
    lines = "\n".join(_CONSOLE.sub("", line) for line in log.splitlines() if _CONSOLE.match(line))
    head, found, trace = lines.partition("\nCall Trace:\n")
    flags = _FLAGS.search(head)
    marks = (
        "BUG: kernel NULL pointer dereference, address: 0000000000000000\n",
        "#PF: supervisor instruction fetch in kernel mode\n",
        "RIP: 0010:0x0\n",
    )
    if not found or not flags or not all(mark in head for mark in marks):
        return None
    first = _FRAME.search(trace)
    if int(flags[1], 16) & _IF or not first:
        return None
    names = [name for name, callers in CALLERS.items() if first[1] in callers]
    return " or ".join(names) or None
