"""The head of an incident file: the host, its pools, and the parameters that were changed."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from zfstrace.clock import iso_utc
from zfstrace.host import Host
from zfstrace.types import SCHEMA, Json
from zfstune import __version__
from zfstune.record.dumps import host_name
from zfstune.tunables import survey

_MOST = 256


def header(
    host: Host,
    begin: int,
    end: int,
    reason: str,
    *,
    interval_ns: int,
    layouts: Mapping[str, Sequence[str]],
    lost: Mapping[str, int],
) -> Json:
    """The first line. begin and end are ns since 1970; layouts are the lines of `zpool status` of
    pools as far as they are known. Runs no command, as a pool may hang."""
    return {
        "schema": SCHEMA,
        "type": "incident",
        "program": "zfstune",
        "version": __version__,
        "time_from": iso_utc(begin),
        "time_to": iso_utc(max(begin, end)),
        "reason": reason,
        "host": _host(host),
        "parameters": _parameters(host),
        "pools": _pools(host, layouts),
        "interval_ns": interval_ns,
        "lost": dict(lost),
    }


def _host(host: Host) -> Json:
    kernel = platform.uname()
    return {
        "name": host_name()[:_MOST],
        "system": kernel.system,
        "kernel": kernel.release,
        "zfs": host.version() or None,
        "cpus": os.cpu_count(),
        "memory_bytes": host.memory_bytes() or None,
    }


def _parameters(host: Host) -> dict[str, Any]:
    """Those that are not at their default."""
    if not host.loaded():
        return {}
    rows = survey.look(host).rows.values()
    return {row.name: row.value for row in rows if row.changed}


def _pools(host: Host, layouts: Mapping[str, Sequence[str]]) -> dict[str, Json]:
    """layouts may also know pools that were exported meanwhile, which come last."""
    imported = set(host.pools())
    names = sorted(imported | {*layouts}, key=lambda name: (name not in imported, name))[:_MOST]
    return {
        name: {
            "state": host.pool_state(name) or None,
            "layout": list(layouts.get(name, ())) or None,
        }
        for name in names
    }
