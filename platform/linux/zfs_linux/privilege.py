"""The capabilities that tracing needs, and which of them this process has."""

from __future__ import annotations

from zfstrace.types import Check

# linux/capability.h
_BITS = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}

NEEDED = "CAP_BPF, CAP_PERFMON, CAP_SYSLOG and CAP_DAC_OVERRIDE"


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


def check(status: str) -> Check:
    """Blocking without CAP_BPF and CAP_PERFMON (CAP_SYS_ADMIN has both). CAP_SYSLOG
    makes kernel symbols readable, CAP_DAC_OVERRIDE lets return probes be made in
    tracefs (not needed with BTF of the module)."""
    have = capabilities(status)
    admin = "CAP_SYS_ADMIN" in have
    held = ", ".join(sorted(have)) or "none of those needed"
    if not admin and not {"CAP_BPF", "CAP_PERFMON"} <= have:
        return Check(
            "privileges",
            "privilege",
            f"insufficient (has {held})",
            "blocking",
            "BPF programs cannot be loaded",
            f"run as root or with {NEEDED}",
        )
    lacking = [cap for cap in ("CAP_SYSLOG", "CAP_DAC_OVERRIDE") if cap not in have]
    if admin and "CAP_SYSLOG" in lacking:
        lacking.remove("CAP_SYSLOG")
    if lacking:
        return Check(
            "privileges",
            "privilege",
            held,
            "missing",
            f"without {' and '.join(lacking)} some probes may not attach",
            f"run as root or with {NEEDED}",
        )
    return Check("privileges", "privilege", held)
