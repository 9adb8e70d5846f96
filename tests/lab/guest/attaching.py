"""How probes attach, by what a host can do (docs/stages.md, "Attaching"), for scenarios and their
tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Json = dict[str, Any]
_PREEMPTION = Path("/sys/kernel/debug/sched/preempt")


def abilities() -> Json:
    """What decides it on this host: BTF of the module, and the kernel's preemption, whose mode is
    in parentheses."""
    return {
        "btf": Path("/sys/kernel/btf/zfs").exists(),
        "preemption": _PREEMPTION.read_text().strip() if _PREEMPTION.exists() else "",
    }


def may_skip(host: Json) -> bool:
    """Whether the kernel may skip an fentry program now and then, which counts as lost."""
    return bool(host["btf"]) and "(lazy)" in host["preemption"]


def seen(host: Json, row: Json, number: int, expected: int) -> bool:
    """Whether that is the number of a row; those that are lost may be missing where the kernel may
    skip programs."""
    lost: int = row["lost"]
    return expected - lost <= number <= expected and (not lost or may_skip(host))


def ways(host: Json) -> tuple[set[str], ...]:
    """The ways of a trace that has the host to itself, tracepoints aside; two where kprobes take
    over once a program was skipped."""
    if may_skip(host):
        return {"fentry"}, {"kprobe"}
    if "(full)" in host["preemption"]:
        return ({"kprobe"},)
    if host["btf"]:
        return ({"fentry"},)
    # the kernel's own functions stand in for some, but not beside what might have to give way
    return ({"kprobe"},) if "(lazy)" in host["preemption"] else ({"fentry", "kprobe"},)
