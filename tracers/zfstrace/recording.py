"""From the sums of the tracer "stacks" to stacks with names.

The kernel counts by address; a host resolves the names. Frames of tracers are removed; threads that
wait for work are left out and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from zfstrace.stacks import OUTSIDE, TXG_SYNC, UNKNOWN, WAKER, Stacks, fold
from zfstrace.stages import NAMES

STAGES = (*NAMES, TXG_SYNC, OUTSIDE)
TARGETS = ("fsync", "txg-sync", "pid", "zfs")

NO_POOL = "[no pool]"
NO_STACK = "[no stack]"
TRACER = "[tracer]"
NO_WAKER = "[no waker]"
PREEMPTED = "[preempted]"
IN_USER = "[user]"
IRQ = "[irq]"
# Stands for the functions of the scheduler, in which every sleep ends: the kernel leaves them out.
SCHEDULE = "schedule"

# The code of tracers in a stack: programs, trampolines and copied instructions.
_TRACERS = ("[bpf]", "[__builtin__ftrace]", "[__builtin__kprobes]")
_PROGRAM = "bpf_prog_"
_TRACEPOINT = re.compile(r"(__)?(bpf_|traceiter_)")
# What lies before a function: one that was interrupted at its first instruction seems to be there.
_BEFORE = "__pfx_"
_ZFS = ("[zfs]", "[spl]")
# The entry of an interrupt (x86, arm64).
_INTERRUPT = re.compile(r"asm_(common_interrupt|sysvec_)|el\d\w*_irq")
# A thread of ZFS whose main function waits; or the event daemon.
_IDLE = re.compile(
    r"(ret_from_fork\w*;)*kthread;(thread_generic_wrapper;)?\w+;"
    r"(txg_thread_wait;)?(_*cv_\w+;)*schedule"
    r"|.*;zfs_zevent_wait;.*"
)


@dataclass(frozen=True)
class StackOptions:
    """kind is one of stacks.KINDS except ``other``, target one of TARGETS."""

    kind: str
    target: str
    pid: int | None = None
    pool: str | None = None


@dataclass(frozen=True)
class StackSum:
    """As counted by the kernel; see struct zfstrace_stack. Addresses are leaf first."""

    pool: str
    dev: tuple[int, int]
    stage: str
    comm: str
    frames: tuple[int, ...]
    ns: int
    count: int
    preempted: bool = False
    in_user: bool = False
    woken: bool = False
    waker_comm: str = ""
    waker: tuple[int, ...] = ()


@dataclass(frozen=True)
class StackLosses:
    """What is missing or inexact; see struct zfstrace_stack_losses. The last two are no loss."""

    no_stack: int = 0
    stacks_full: int = 0
    sums_full: int = 0
    lost_ns: int = 0
    sleepers_full: int = 0
    skipped: int = 0
    fsyncs: int = 0
    asleep: int = 0
    asleep_ns: int = 0


@dataclass(frozen=True)
class Recording:
    """idle is the weight of threads that waited for work."""

    stacks: Stacks
    losses: StackLosses
    idle: int = 0


Namer = Callable[[int], str]


def build(
    sums: Iterable[StackSum],
    losses: StackLosses,
    options: StackOptions,
    name: Namer,
    pool_of: Callable[[tuple[int, int]], str | None],
) -> Recording:
    """A recording with names instead of addresses, and of device numbers where the pool is not
    known."""
    on_cpu = options.kind == "on-cpu"
    counts: Counter[str] = Counter()
    idle = 0
    for one in sums:
        weight = one.count if on_cpu else one.ns
        pool = one.pool or pool_of(one.dev) or ""
        frames = _named(one.frames, name, asleep=not on_cpu)
        if options.pool and pool and pool != options.pool:
            continue
        if options.target == "zfs" and one.stage == OUTSIDE:
            if not any(frame.endswith(_ZFS) for frame in frames):
                continue
            if _is_idle(frames) and not one.preempted:
                idle += weight
                continue
        where = pool or (NO_POOL if one.stage == OUTSIDE else UNKNOWN)
        stack = [where, one.stage, one.comm, *_sleeper(one, frames)]
        if options.kind == "wakeup":
            stack += _waker(one, name)
        counts[fold(stack)] += weight
    stacks = Stacks(options.kind, "samples" if on_cpu else "ns", "", dict(counts))
    return Recording(stacks, losses, idle)


def _named(addresses: Sequence[int], name: Namer, *, asleep: bool = False) -> list[str]:
    """Root first, without tracers and what they call. All but the leaf of a thread that runs are
    return addresses, which may be beyond the end of the calling function: the call is before
    them."""
    frames: list[str] = []
    passed = ""  # what called a tracer
    for i, address in reversed(list(enumerate(addresses))):
        frame = name(address - (asleep or i > 0)).removeprefix(_BEFORE)
        if frame.endswith(_TRACERS):
            if frame.startswith(_PROGRAM):
                break
            passed = passed or (frames[-1] if frames else "")
            continue
        if _TRACEPOINT.match(frame):
            break
        # with fentry the function appears a second time, called from within itself
        if frame != passed:
            frames.append(frame)
        passed = ""
    if frames and asleep:
        frames.append(SCHEDULE)
    return frames


def _sleeper(one: StackSum, frames: Sequence[str]) -> list[str]:
    if one.in_user:
        return [IN_USER]
    # a sample may hit one of our programs, whose stack ends there
    frames = frames or [TRACER if one.frames else NO_STACK]
    return [*frames, *([PREEMPTED] if one.preempted else [])]


def _waker(one: StackSum, name: Namer) -> list[str]:
    if one.preempted:
        return []
    if not one.woken:
        return [WAKER, NO_WAKER]
    frames = _named(one.waker, name) or [NO_STACK]
    entry = max((i for i, f in enumerate(frames) if _INTERRUPT.match(f)), default=None)
    if entry is None:
        return [WAKER, *reversed(frames), one.waker_comm]
    # the interrupted thread is not the waker
    return [WAKER, *reversed(frames[entry:]), IRQ]


def _is_idle(frames: Sequence[str]) -> bool:
    return bool(_IDLE.fullmatch(";".join(frame.partition(" ")[0] for frame in frames)))
