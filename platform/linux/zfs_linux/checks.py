"""The capabilities that tracing needs, and which of them this process has."""

from __future__ import annotations

from zfstrace.types import Check

# linux/capability.h
_BITS = {"CAP_DAC_OVERRIDE": 1, "CAP_SYS_ADMIN": 21}

# CAP_BPF and CAP_PERFMON, made for this, are not enough: the kernel hands out the BTF of
# modules (BPF_BTF_GET_FD_BY_ID) and system-wide kprobes to CAP_SYS_ADMIN only.
NEEDED = "CAP_SYS_ADMIN and CAP_DAC_OVERRIDE"


def capabilities(status: str) -> set[str]:
    """Those of the effective set, by the text of /proc/self/status."""
    for line in status.split("\n"):
        name, _, value = line.partition(":")
        if name == "CapEff":
            try:
                mask = int(value, 16)
            except ValueError:
                return set()
            return {cap for cap, bit in _BITS.items() if mask >> bit & 1}
    return set()


def check(status: str, module_btf: bool) -> Check:
    """Blocking without CAP_SYS_ADMIN. CAP_DAC_OVERRIDE lets return probes be made in
    tracefs, which module BTF makes unnecessary."""
    have = capabilities(status)
    held = ", ".join(sorted(have)) or "none of those needed"
    if "CAP_SYS_ADMIN" not in have:
        return Check(
            "privileges",
            "privilege",
            f"insufficient (has {held})",
            "blocking",
            "BPF programs cannot be loaded and attached",
            f"run as root or with {NEEDED}",
        )
    if "CAP_DAC_OVERRIDE" not in have and not module_btf:
        return Check(
            "privileges",
            "privilege",
            held,
            "missing",
            "return probes get few instances: with many threads operations are lost",
            f"run as root or with {NEEDED}",
        )
    return Check("privileges", "privilege", held)
