#!/usr/bin/env python3
#
# zilslower  Trace slow ZIL commits (fsync, O_SYNC writes, ...) on OpenZFS, with their parts.
#            For Linux, uses BCC, eBPF.
#
# USAGE: zilslower.py [-h] [-T] [-p PID] [MIN_MS]
#
# One line for each commit of MIN_MS or more, as it ends. The parts do not overlap and add up to
# TOTAL. At the end come the commits, and what was lost. No BTF of the zfs module is needed. See
# zilslower(8).
#
# COST: 6 BPF programs per commit, slow or not, some more when it waits more than once.
# Measured: docs/measurements/tools.md.
#
# SPDX-License-Identifier: BSD-2-Clause

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

EXAMPLES = """examples:
    ./zilslower.py             # commits of 10 ms or more (default)
    ./zilslower.py 1           # commits of 1 ms or more
    ./zilslower.py 0           # all commits
    ./zilslower.py -p 181 5    # commits of process 181
    ./zilslower.py -T 50       # with the seconds since the start
"""

STAGES = ("ASYNC", "TX", "LOCK", "ISSUE", "BATCH", "DEVICE", "TXG")
NEEDED = ("zil_commit_impl", "zil_async_to_sync", "zil_lwb_write_issue", "__cv_wait")
# Threads in a commit at once: the kernel's maximum. The default is a dozen or two.
MAXACTIVE = 4096
TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))

TEXT = r"""
#include <uapi/linux/ptrace.h>
#include <linux/sched.h>

enum { ASYNC, TX, LOCK, ISSUE, BATCH, DEVICE, TXG, STAGES };

struct op {
    u64 zilog, object, start, since;
    u64 part[STAGES];
    u32 stage;
};

struct event {
    u64 total, object, pool;
    u64 part[STAGES];
    u32 pid, tid;
    char comm[TASK_COMM_LEN];
    char name[32];
};

BPF_HASH(ops, u32, struct op);
BPF_ARRAY(counts, u64, 3);              // commits; missed returns; no room
BPF_ARRAY(layout, u64, 1);              // where zl_dmu_pool is in a zilog_t
BPF_PERCPU_ARRAY(events_buf, struct event, 1);
BPF_PERF_OUTPUT(events);

static void count(int what)
{
    u64 *n = counts.lookup(&what);
    if (n)
        __sync_fetch_and_add(n, 1);
}

static struct op *running(void)
{
    u32 tid = bpf_get_current_pid_tgid();
    return ops.lookup(&tid);
}

static void enter(struct op *op, u32 stage)
{
    u64 now = bpf_ktime_get_ns();
    u32 last = op->stage;
    if (last < STAGES)
        op->part[last] += now - op->since;
    op->since = now;
    op->stage = stage;
}

// The same in OpenZFS 2.1 to 2.4; its caller is zil_commit, from 2.4 on zil_commit_flags.
int on_commit(struct pt_regs *ctx)
{
    u64 id = bpf_get_current_pid_tgid();
    u32 tid = id;
    struct op op = {};
    if (FILTER)
        return 0;
    if (ops.lookup(&tid))
        count(1);
    op.zilog = PT_REGS_PARM1(ctx);
    op.object = PT_REGS_PARM2(ctx);
    op.start = op.since = bpf_ktime_get_ns();
    if (ops.update(&tid, &op))
        count(2);
    return 0;
}

int on_issue(struct pt_regs *ctx)
{
    struct op *op = running();
    if (op)
        enter(op, ISSUE);
    return 0;
}

int on_tx_wait(struct pt_regs *ctx)
{
    struct op *op = running();
    if (op)
        enter(op, TX);
    return 0;
}

// A commit waiter's mutex follows its condition variable; elsewhere it precedes it.
static int is_waiter(struct pt_regs *ctx)
{
    u64 cv = PT_REGS_PARM1(ctx), mutex = PT_REGS_PARM2(ctx);
    return mutex > cv && mutex < cv + 256;
}

int on_batch(struct pt_regs *ctx)
{
    struct op *op = running();
    if (op && is_waiter(ctx))
        enter(op, BATCH);
    return 0;
}

int on_device(struct pt_regs *ctx)
{
    struct op *op = running();
    if (op && is_waiter(ctx))
        enter(op, DEVICE);
    return 0;
}

// No return probe on the waits: it would be armed for every sleeper on the host.
int on_write_issue(struct pt_regs *ctx)
{
    struct op *op = running();
    if (op && op->stage == BATCH)
        enter(op, ISSUE);
    return 0;
}

int on_txg(struct pt_regs *ctx)
{
    struct op *op = running();
    if (op)
        enter(op, TXG);
    return 0;
}

// The pool: zl_dmu_pool and zl_spa are adjacent in a zilog_t, at an offset that depends on the
// version. A dsl_pool_t begins with a pointer to its spa_t, and that with the pool's name.
static u64 spa_at(u64 zilog, u64 at)
{
    u64 dp = 0, spa = 0, dp_spa = 0;
    bpf_probe_read_kernel(&dp, sizeof(dp), (void *)(zilog + at));
    bpf_probe_read_kernel(&spa, sizeof(spa), (void *)(zilog + at + 8));
    bpf_probe_read_kernel(&dp_spa, sizeof(dp_spa), (void *)dp);
    return spa && dp_spa == spa ? spa : 0;
}

static u64 spa_of(u64 zilog)
{
    int zero = 0;
    u64 *at = layout.lookup(&zero);
    if (!at)
        return 0;
    if (*at)
        return spa_at(zilog, *at);
#pragma unroll
    for (u64 i = 32; i < 160; i += 8) {
        u64 spa = spa_at(zilog, i);
        if (spa) {
            *at = i;
            return spa;
        }
    }
    return 0;
}

int on_return(struct pt_regs *ctx)
{
    int zero = 0;
    u64 id = bpf_get_current_pid_tgid();
    u32 tid = id;
    struct op *op = ops.lookup(&tid);
    struct event *event = events_buf.lookup(&zero);
    if (!op || !event)
        return 0;
    enter(op, ISSUE);
    count(0);
    event->total = op->since - op->start;
    if (event->total >= MIN_NS) {
        event->pid = id >> 32;
        event->tid = tid;
        event->object = op->object;
#pragma unroll
        for (int i = 0; i < STAGES; i++)
            event->part[i] = op->part[i];
        event->name[0] = 0;
        event->pool = spa_of(op->zilog);
        if (event->pool)
            bpf_probe_read_kernel_str(event->name, sizeof(event->name), (void *)event->pool);
        bpf_get_current_comm(&event->comm, sizeof(event->comm));
        events.perf_submit(ctx, event, sizeof(*event));
    }
    ops.delete(&tid);
    return 0;
}
"""

# Linux 5.19. The mutexes of the ZIL are in the first KiB of a zilog_t.
LOCKS = r"""
TRACEPOINT_PROBE(lock, contention_begin)
{
    struct op *op = running();
    u64 lock = (u64)args->lock_addr;
    if (op && lock >= op->zilog && lock < op->zilog + 1024 && op->stage != ASYNC &&
        op->stage != LOCK)
        enter(op, LOCK);
    return 0;
}

TRACEPOINT_PROBE(lock, contention_end)
{
    struct op *op = running();
    if (op && op->stage == LOCK)
        enter(op, ISSUE);
    return 0;
}
"""


def fail(message: str, hint: str = "", status: int = 1) -> NoReturn:
    print(f"zilslower: error: {message}" + (f"\nhint: {hint}" if hint else ""), file=sys.stderr)
    sys.exit(status)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        fail(message, "see `zilslower.py -h`", 2)


def load_bcc() -> Any:
    """The module bcc, after checks for other problems of the host."""
    if os.geteuid() != 0:
        fail("cannot load BPF programs: not root", "use sudo")
    if not Path("/sys/module/zfs").is_dir():
        fail("ZFS is not loaded", "run `modprobe zfs`")
    try:
        return importlib.import_module("bcc")
    except ImportError:
        fail("no Python module bcc", "install python3-bpfcc (Debian) or python3-bcc")


def compiled(text: str) -> Any:
    """The attached programs; functions that only some versions of ZFS have are optional."""
    bcc = load_bcc()
    for name in NEEDED:
        if bcc.BPF.ksymname(name) == -1:
            fail(f"cannot trace: the zfs module has no function {name}")
    if any((path / "events/lock/contention_begin").exists() for path in TRACEFS):
        text += LOCKS
    try:
        bpf = bcc.BPF(text=text)
    except Exception:  # bcc raises nothing narrower, and has printed the compiler's messages
        fail("the BPF program does not compile", "install the headers of the running kernel")
    for name, function in (("zil_commit_impl", "on_return"), ("zil_async_to_sync", "on_issue")):
        bpf.attach_kretprobe(event=name, fn_name=function, maxactive=MAXACTIVE)
    for name, function in (
        ("spa_tx_assign_add_nsecs", "on_issue"),
        ("dmu_tx_wait", "on_tx_wait"),
        ("cv_timedwait_hires", "on_batch"),
        ("__cv_wait", "on_device"),
        ("zil_lwb_write_issue", "on_write_issue"),
        ("txg_wait_synced", "on_txg"),
        ("txg_wait_synced_flags", "on_txg"),
        ("zil_commit_impl", "on_commit"),  # last: no commit may begin before all are attached
    ):
        if bpf.ksymname(name) != -1:
            bpf.attach_kprobe(event=name, fn_name=function)
    return bpf


def lost_commits(bpf: Any) -> int:
    """Commits without room in a table, and those whose return was missed: as noticed at the
    thread's next commit or, sooner but not always, as counted by the kernel."""
    probe = ("zil_commit_impl", f"_bcc_{os.getpid()}")
    misses = 0
    for path in TRACEFS:
        try:
            lines = [line.split() for line in (path / "kprobe_profile").read_text().splitlines()]
        except OSError:
            continue
        misses = sum(int(f[2]) for f in lines if probe[0] in f[0] and f[0].endswith(probe[1]))
        break
    return int(bpf["counts"][2].value) + max(int(bpf["counts"][1].value), misses)


def positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def milliseconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError
    return value


def main() -> None:
    parser = Parser(
        description="Trace slow ZIL commits on OpenZFS, with their parts",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    parser.add_argument("-T", "--timestamp", action="store_true", help="seconds since the start")
    parser.add_argument("-p", "--pid", type=positive, help="only this process")
    parser.add_argument(
        "min_ms", metavar="MIN_MS", nargs="?", type=milliseconds, default=10.0, help="default: 10"
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    text = TEXT.replace("MIN_NS", str(int(args.min_ms * 1e6)))
    bpf = compiled(text.replace("FILTER", f"id >> 32 != {args.pid}" if args.pid else "0"))
    start = time.monotonic()
    lost = 0

    def show(_cpu: int, data: Any, _size: int) -> None:
        event = bpf["events"].event(data)
        now = f"{time.monotonic() - start:<8.3f} " if args.timestamp else time.strftime("%H:%M:%S ")
        parts = "".join(f" {part / 1e6:>6.2f}" for part in event.part)
        print(
            f"{now}{event.pid:<7} {event.name.decode(errors='replace') or '?':<8} "
            f"{event.object:<7} {event.total / 1e6:>7.2f}{parts} "
            f"{event.comm.decode(errors='replace')}"
        )

    def count_lost(n: int) -> None:
        nonlocal lost
        lost += n

    bpf["events"].open_perf_buffer(show, page_cnt=64, lost_cb=count_lost)
    print(f"Tracing ZIL commits of {args.min_ms:g} ms or more, times in ms... Hit Ctrl-C to end.")
    names = "".join(f" {name:>6}" for name in STAGES)
    print(f"{'TIME':<8} {'PID':<7} {'POOL':<8} {'OBJECT':<7} {'TOTAL':>7}{names} COMM")
    try:
        while True:
            bpf.perf_buffer_poll(timeout=1000)
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    bpf.perf_buffer_poll(timeout=0)
    commits = bpf["counts"][0].value
    print(f"{commits} commits, lost: {lost} lines, {lost_commits(bpf)} commits")


if __name__ == "__main__":
    main()
