"""The D scripts of tracers/dtrace: where they are, and whether dtrace(1) would run them here."""

from __future__ import annotations

import os
from pathlib import Path

from zfs_freebsd.dtrace import probes
from zfstrace.errors import TraceError
from zfstrace.types import Check, Tool

# The one-file tools, and the tracer in probes.NEEDS whose probes they use.
TRACERS = {
    "arcstate.d": "arc",
    "fsyncstack.d": "stacks",
    "txgstate.d": "txg",
    "zfsflush.d": "flush",
    "zfsthrottle.d": "throttle",
    "zilcommit.d": "fsync",
    "zilslower.d": "fsync",
}
NAMES = tuple(TRACERS)
# made by dtrace.ko (sys/cddl/dev/dtrace/dtrace_load.c); dtraceall adds the providers
_DEVICE = "dev/dtrace/dtrace"

# this file is below platform/freebsd in a checkout, below lib/zfstune/python when installed
_HERE = Path(__file__).resolve()
_CHECKOUT = _HERE.parents[4] / "tracers/dtrace/freebsd"
_INSTALLED = _HERE.parents[3] / "dtrace"


def script(name: str) -> Path:
    """The path of a D script ("zilevent-json.d"): below $ZFSTUNE_DTRACE_DIR, else in the checkout
    or the installation. Raises TraceError if it does not exist."""
    named = os.environ.get("ZFSTUNE_DTRACE_DIR")
    for directory in (Path(named),) if named else (_CHECKOUT, _INSTALLED):
        if (directory / name).is_file():
            return directory / name
    if named:
        raise TraceError(
            f"cannot trace: {named} has no {name}", "correct or unset ZFSTUNE_DTRACE_DIR"
        )
    raise TraceError(f"cannot trace: {name} is not installed", "run scripts/install.py again")


def why_not(root: Path) -> tuple[str, str]:
    """What dtrace(1) lacks here, and what to do; ("", "") if nothing."""
    if not Path(probes.program()).exists():
        return "dtrace is not installed", "install the base system's, or the package FreeBSD-dtrace"
    if not (root / _DEVICE).exists():
        return "dtrace has no modules loaded", "run `kldload dtraceall`, outside jails"
    if os.geteuid() != 0:
        return "dtrace needs root", "run as root"
    return "", ""


def check(root: Path) -> Check:
    """Whether dtrace(1) could run a script here; blocking if not. /dev is below root."""
    why, fix = why_not(root)
    if not why:
        return Check("dtrace", "kernel", "present")
    value = why.removeprefix("dtrace ")
    return Check("dtrace", "kernel", value, "blocking", "traces are D scripts", fix)


def tools(root: Path, *, run: probes.Run = probes.run) -> list[Tool]:
    """Every tool, and why it would not work. Does not start dtrace(1) if it is not loaded."""
    why, _fix = why_not(root)
    found = [] if why else probes.survey(tuple(TRACERS.values()), run=run)
    return [
        Tool(name, "dtrace", why or probes.lacks(found, tracer)) for name, tracer in TRACERS.items()
    ]
