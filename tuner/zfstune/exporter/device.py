"""The view `device`: the time of I/Os in queue and device, by vdev and class."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from zfstrace.device import ClassCounts, DeviceCounts
from zfstrace.host import DeviceSession
from zfstrace.types import OTHERS
from zfstune.exporter.bounded import UNKNOWN
from zfstune.exporter.families import Histograms
from zfstune.exporter.views import Setup
from zfstune.record.sources import Device

_NOTHING = ClassCounts()


class DeviceView(Device):
    """Implements View."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._names, self._wall = setup.names, setup.wall
        self._device = Histograms("zfstune_device_io_duration_seconds")
        self._queue = Histograms("zfstune_device_queue_duration_seconds")
        self._before: dict[tuple[str, int, str], ClassCounts] = {}

    def _begin(self, session: DeviceSession) -> None:
        self._before = {}

    def _count(self, session: DeviceSession) -> None:
        for one in session.devices():
            for name, now in one.classes.items():
                key = one.pool, one.guid, name
                before = self._before.get(key, _NOTHING)
                if now.count == before.count:
                    continue
                if now.count < before.count:
                    # another vdev has its entry
                    before = _NOTHING
                self._before[key] = now
                where = self._names.vdev(one.pool, self._name(one))
                self._device.at(*where, name).add(now.device, before.device)
                if name != "flush":
                    self._queue.at(*where, name).add(now.queue, before.queue)

    def _name(self, one: DeviceCounts) -> str:
        """Not the guid where there is no name yet: it would be a second series of the vdev."""
        return OTHERS if one.rest else self._vdevs.of(one.pool, one.guid) or UNKNOWN

    def families(self) -> Iterator[Metric]:
        now = self._wall()
        yield self._device.family(now)
        yield self._queue.family(now)
