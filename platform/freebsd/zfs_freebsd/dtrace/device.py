"""I/O of vdevs, traced by zfsdevice-json.d."""

from __future__ import annotations

from zfs_freebsd.dtrace.scripted import Buckets, Sums, _pool
from zfstrace import device
from zfstrace.device import ClassCounts, DeviceCounts
from zfstrace.types import Json


class ScriptedDevices(Sums):
    """Implements zfstrace.host.DeviceSession."""

    _SUMS = ('"device_times"', '"device_active"')

    def __init__(self, pool: str | None) -> None:
        self._vdevs: dict[tuple[str, int], dict[str, _Class]] = {}
        super().__init__("device", "zfsdevice-json.d", *_pool(pool))

    def devices(self) -> list[DeviceCounts]:
        self._take_sums()
        return [
            DeviceCounts(
                pool, guid, False, {name: io.counts() for name, io in sorted(classes.items())}
            )
            for (pool, guid), classes in self._vdevs.items()
        ]

    def _on_row(self, row: Json) -> None:
        if not row["type"].startswith("device_"):
            return
        number = row["class"]
        name = device.CLASSES[number] if 0 <= number < len(device.CLASSES) else "unknown"
        classes = self._vdevs.setdefault((row["pool"], row["guid"]), {})
        classes.setdefault(name, _Class()).take(row)


class _Class:
    """I/Os of one class on one vdev so far."""

    def __init__(self) -> None:
        self._parts = {"queue": Buckets(), "device": Buckets()}
        self._sizes: dict[int, int] = {}
        self._active: tuple[int, int] | None = None

    def take(self, row: Json) -> None:
        if row["type"] == "device_active":
            self._active = row["sum"], row["max"]
            return
        self._parts[row["part"]].take(row)
        if row["part"] == "device":
            self._sizes[row["bucket"]] = row["bytes"]

    def counts(self) -> ClassCounts:
        hists = {part: buckets.hist() for part, buckets in self._parts.items()}
        return ClassCounts(
            count=hists["device"].count,
            size=sum(self._sizes.values()),
            queue=hists["queue"],
            device=hists["device"],
            active_sum=self._active and self._active[0],
            active_max=self._active and self._active[1],
        )
