"""Who sets a sysctl: values are compared, and dtrace(1), if it runs, names the process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Mapping

from zfstrace.errors import TraceError
from zfstrace.params import Change, ComparingWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zfs_freebsd.dtrace.process import Dtrace

SCRIPT = "sysctlwrite-json.d"
# How long a change waits for the event that names its writer: dtrace prints ten times a second, and
# callers that want a writer wait 0.2 s (zfstune.changes.apply).
LATE_S = 0.15


class TracedWatch:
    """Implements zfstrace.params.Watch: compares values and asks DTrace who wrote. If the script
    ends, is late or loses an event, the comparison still reports the change.

    known_as maps the names that writers use to parameters; ours are pids.
    """

    def __init__(
        self,
        compared: ComparingWatch,
        trace: Dtrace,
        known_as: Mapping[str, str],
        ours: Collection[int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compared, self._known_as, self._clock = compared, known_as, clock
        self._trace: Dtrace | None = trace
        self._ours = frozenset({os.getpid(), *ours})
        self._since: dict[str, float] = {}  # changes whose writer is not known yet

    def poll(self) -> list[Change]:
        changes = self._traced()
        now = self._clock()
        for change in self._compared.poll():
            self._since.setdefault(change.name, now)
        for change in changes:
            self._since.pop(change.name, None)
        wait_s = LATE_S if self._trace else 0.0
        late = [name for name, since in self._since.items() if now - since >= wait_s]
        for name in late:
            del self._since[name]
        return changes + [Change(name) for name in late]

    def _traced(self) -> list[Change]:
        if self._trace is None:
            return []
        try:
            lines = self._trace.lines(0)
        except TraceError:
            self._end_trace()
            return []
        return [change for line in lines if (change := self._change(line)) is not None]

    def _change(self, line: str) -> Change | None:
        try:
            # a program may have a tab in its name
            found = json.loads(line, strict=False)
        except ValueError:
            return None
        if found.get("type") != "sysctl_write" or found["pid"] in self._ours:
            return None
        name = self._known_as.get(found["name"])
        return Change(name, found["pid"], found["comm"]) if name else None

    def _end_trace(self) -> None:
        if self._trace:
            self._trace.close()
            self._trace = None

    def close(self) -> None:
        self._end_trace()
        self._compared.close()
