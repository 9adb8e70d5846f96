"""The D scripts of tracers/dtrace: where they are, and whether dtrace(1) would run them here."""

from __future__ import annotations

import os
from pathlib import Path

from zfs_freebsd.dtrace import probes
from zfstrace.errors import TraceError
from zfstrace.types import Check, Tool

# The one-file tools, and whose probes in probes.NEEDS are theirs.
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
# made by dtrace.ko (sys/cddl/dev/dtrace/dtrace_load.c); dtraceall brings the providers
_DEVICE = "dev/dtrace/dtrace"

# this file is below platform/freebsd of a checkout, or below lib/zfstune/python
_HERE = Path(__file__).resolve()
_CHECKOUT = _HERE.parents[4] / "tracers/dtrace/freebsd"
_INSTALLED = _HERE.parents[3] / "dtrace"


def script(name: str) -> Path:
    """The path of a D script ("zilevent-json.d"): below $ZFSTUNE_DTRACE_DIR, else in the checkout
    or the installation. Raises TraceError when it is not there."""
    named = os.environ.get("ZFSTUNE_DTRACE_DIR")
    for directory in (Path(named),) if named else (_CHECKOUT, _INSTALLED):
        if (directory / name).is_file():
            return directory / name
    if named:
        raise TraceError(
            f"cannot trace, ZFSTUNE_DTRACE_DIR is {named}, which has no {name}, unset or correct it"
        )
    raise TraceError(f"cannot trace, {name} is not installed, run scripts/install.py again")


def why_not(root: Path) -> tuple[str, str]:
    """What dtrace(1) lacks here, and what to do; ("", "") when it is all there."""
    if not Path(probes.program()).exists():
        return "dtrace is not installed", "install it: base system, or the package FreeBSD-dtrace"
    if not (root / _DEVICE).exists():
        return "dtrace has no modules loaded", "run `kldload dtraceall`, outside of jails"
    if os.geteuid() != 0:
        return "dtrace needs root", "run as root"
    return "", ""


def check(root: Path) -> Check:
    """Whether dtrace(1) could run a script here: blocking when it could not. root is where /dev
    is."""
    why, fix = why_not(root)
    if not why:
        return Check("dtrace", "kernel", "present")
    value = why.removeprefix("dtrace ")
    return Check("dtrace", "kernel", value, "blocking", "traces are D scripts", fix)


def tools(root: Path, *, run: probes.Run = probes.run) -> list[Tool]:
    """Every tool, and why it would not work. dtrace(1) is not started when it is not loaded."""
    why, _fix = why_not(root)
    found = [] if why else probes.survey(tuple(TRACERS.values()), run=run)
    return [
        Tool(name, "dtrace", why or probes.lacks(found, tracer)) for name, tracer in TRACERS.items()
    ]
