"""Stacks recorded by fsyncstack.d: threads inside an fsync, off CPU or on it, and their wakers."""

from __future__ import annotations

import os

from zfs_freebsd.dtrace import probes, scripts
from zfs_freebsd.dtrace.process import Dtrace
from zfstrace.errors import NotSupported, TraceError
from zfstrace.flame import raw_dtrace
from zfstrace.recording import NO_STACK, Recording, StackLosses, StackOptions
from zfstrace.stacks import Stacks
from zfstrace.types import Probe

_SCRIPT = "fsyncstack.d"
_OTHER_TARGETS = {
    "txg-sync": ("threads that sync a txg", "leave --txg-sync out"),
    "zfs": ("all threads in ZFS", "leave --all-zfs out"),
    # The script sees a process only inside an fsync, which would make a wrong graph of the process.
    "pid": (
        "a whole process",
        f"run `{_SCRIPT} 0 PID > FILE` for its fsyncs, then `zfstune flame convert FILE`",
    ),
}


class ScriptedStacks:
    """Implements zfstrace.host.StackSession. Runs from the constructor, which raises TraceError
    for what the script cannot record.

    Stacks begin with pool, stage and comm. The pool is ``[unknown]`` until the fsync commits, and
    with options.pool the time before that is in losses.lost_ns. Those of wakers have no stack of
    the sleeper, and the time until it was woken.
    """

    def __init__(self, options: StackOptions) -> None:
        check(options)
        self._kind = options.kind
        # the script exits with this process
        args = ["0", str(options.pid or 0), options.pool or "", str(os.getpid())]
        path = scripts.script(_SCRIPT)
        self._probes = probes.survey(("stacks",))
        self._dtrace = Dtrace(path, *args)

    def probes(self) -> tuple[Probe, ...]:
        return self._probes

    def finish(self) -> Recording:
        lines = self._dtrace.finish()
        return build(lines, self._kind, self._dtrace.drops)

    def close(self) -> None:
        self._dtrace.close()


def check(options: StackOptions) -> None:
    """Raises NotSupported for what the script cannot record."""
    if options.target in _OTHER_TARGETS:
        who, instead = _OTHER_TARGETS[options.target]
        raise NotSupported(f"cannot record {who} on FreeBSD, only threads in an fsync", instead)


def build(lines: list[str], kind: str, drops: int) -> Recording:
    """The recording that the script has printed; drops is the number of events that dtrace dropped.

    Raises TraceError if the output is incomplete.
    """
    found = raw_dtrace.read_fsyncstack(lines, _SCRIPT)
    totals = found.totals
    if totals is None:
        raise TraceError(f"{_SCRIPT} exited before it had printed everything", "try again")
    counts, on_cpu = found.counts[kind], kind == "on-cpu"
    off_ns = totals.off_ns - sum(found.counts["off-cpu"].values())
    losses = StackLosses(
        no_stack=sum(NO_STACK in stack for stack in counts),
        # an aggregation or a variable had no room; dtrace does not say which
        sums_full=drops,
        lost_ns=0 if on_cpu else totals.before_ns + off_ns,
        # clauses cut short by a fault
        skipped=totals.errors,
        fsyncs=totals.lost,
        asleep=0 if on_cpu else max(0, totals.asleep),
    )
    return Recording(Stacks(kind, "samples" if on_cpu else "ns", "", counts), losses)
