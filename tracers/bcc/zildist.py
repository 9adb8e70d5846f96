#!/usr/bin/env python3
#
# zildist  Histograms of the time of ZIL commits (fsync, O_SYNC writes, ...) on OpenZFS and of
#          their stages. For Linux, uses BCC, eBPF.
#
# USAGE: zildist.py [-h] [-T] [-m] [-p PID] [interval] [count]
#
# The stages do not overlap and their sums add up to that of the commits. No BTF of the zfs module
# is needed. See zildist(8).
#
# COST: 6 BPF programs per commit, some more when it waits more than once.
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
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

EXAMPLES = """examples:
    ./zildist.py              # until Ctrl-C, in us
    ./zildist.py 1 10         # ten times, one second each
    ./zildist.py -m 5         # in ms, every 5 seconds
    ./zildist.py -T 10        # with the time of day
    ./zildist.py -p 181       # only the commits of process 181
"""

STAGES = (
    "async_to_sync",
    "tx_assign",
    "issuer_lock",
    "issue",
    "batch_wait",
    "device_wait",
    "txg_fallback",
    "commit",
)
NEEDED = ("zil_commit_impl", "zil_async_to_sync", "zil_lwb_write_issue", "__cv_wait")
# Threads in a commit at once: the kernel's maximum. The default is a dozen or two.
MAXACTIVE = 4096
TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))

TEXT = r"""
#include <uapi/linux/ptrace.h>
#include <linux/sched.h>

enum { ASYNC, TX, LOCK, ISSUE, BATCH, DEVICE, TXG, COMMIT, STAGES };

struct op {
    u64 zilog, start, since;
    u32 stage;
};

struct slot {
    u32 stage;
    u32 slot;
};

BPF_HASH(ops, u32, struct op);
BPF_ARRAY(counts, u64, 3);      // commits; missed returns; no room
BPF_ARRAY(sums, u64, STAGES);   // ns
BPF_HISTOGRAM(dist, struct slot, 512);  // 64 for each stage; by default 64 in all

static void count(int what)
{
    u64 *n = counts.lookup(&what);
    if (n)
        __sync_fetch_and_add(n, 1);
}

static void add(int stage, u64 ns)
{
    struct slot key = { .stage = stage, .slot = bpf_log2l(ns / FACTOR) };
    u64 *sum = sums.lookup(&stage);
    if (sum)
        __sync_fetch_and_add(sum, ns);
    dist.atomic_increment(key);
}

static struct op *running(void)
{
    u32 tid = bpf_get_current_pid_tgid();
    return ops.lookup(&tid);
}

static void enter(struct op *op, u32 stage)
{
    u64 now = bpf_ktime_get_ns();
    add(op->stage, now - op->since);
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

// ..._flags came with 2.3.3; one calls the other.
int on_txg(struct pt_regs *ctx)
{
    struct op *op = running();
    if (op && op->stage != TXG)
        enter(op, TXG);
    return 0;
}

int on_return(struct pt_regs *ctx)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct op *op = ops.lookup(&tid);
    if (!op)
        return 0;
    enter(op, COMMIT);
    add(COMMIT, op->since - op->start);
    count(0);
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
    print(f"zildist: error: {message}" + (f"\nhint: {hint}" if hint else ""), file=sys.stderr)
    sys.exit(status)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        fail(message, "see `zildist.py -h`", 2)


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


def counted(bpf: Any) -> Counter[tuple[str, int, int]]:
    """All counts since the start. Nothing is cleared: clearing would lose concurrent updates."""
    now = Counter({("slot", k.stage, k.slot): v.value for k, v in bpf["dist"].items()})
    now.update({("ns", i, 0): bpf["sums"][i].value for i in range(len(STAGES))})
    now["commits", 0, 0] = bpf["counts"][0].value
    now["lost", 0, 0] = lost_commits(bpf)
    return now


def show(new: Counter[tuple[str, int, int]], unit: str) -> None:
    for stage, name in enumerate(STAGES):
        slots = {slot: n for (what, i, slot), n in new.items() if (what, i) == ("slot", stage)}
        if not slots:
            continue
        print(f"{name}\n{unit:>14}{'':<11}: count     distribution")
        for slot in range(min(slots), max(slots) + 1):
            low, high = (1 << slot >> 1 if slot > 1 else 0), (1 << slot) - 1
            n = slots.get(slot, 0)
            print(f"{low:>10} -> {high:<10} : {n:<9}|{'*' * (40 * n // max(slots.values())):<40}|")
        print()
    total = new["ns", len(STAGES) - 1, 0]
    for stage, name in enumerate(STAGES):
        ns = new["ns", stage, 0]
        print(f"{name:<14} {ns / 1e6:>12.3f} ms {100 * ns / max(total, 1):>6.1f} %")
    print(f"{new['commits', 0, 0]} commits, lost: {new['lost', 0, 0]} commits", flush=True)


def main() -> None:
    parser = Parser(
        description="Histograms of the time of ZIL commits on OpenZFS and of their stages",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    parser.add_argument("-T", "--timestamp", action="store_true", help="print the time of day")
    parser.add_argument("-m", "--milliseconds", action="store_true", help="histograms in ms")
    parser.add_argument("-p", "--pid", type=positive, help="only this process")
    parser.add_argument("interval", nargs="?", type=positive, default=99999999, help="seconds")
    parser.add_argument("count", nargs="?", type=positive, default=99999999, help="outputs")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    text = TEXT.replace("FACTOR", "1000000" if args.milliseconds else "1000")
    bpf = compiled(text.replace("FILTER", f"id >> 32 != {args.pid}" if args.pid else "0"))
    print("Tracing ZIL commits... Hit Ctrl-C to end.", flush=True)
    before: Counter[tuple[str, int, int]] = Counter()
    more = True
    while more and args.count:
        try:
            time.sleep(args.interval)
        except KeyboardInterrupt:
            more = False
        args.count -= 1
        print(time.strftime("\n%H:%M:%S") if args.timestamp else "")
        now = counted(bpf)
        show(now - before, "ms" if args.milliseconds else "us")
        before = now


if __name__ == "__main__":
    main()
