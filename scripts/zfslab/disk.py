"""`--disk`: the size of a virtual disk, its sectors, and how slow it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import USAGE, LabError
from .units import parse_size, parse_time_s

# key on our command line -> name of QEMU's throttling option
_LIMITS = {
    "bps": "bps-total",
    "read-bps": "bps-read",
    "write-bps": "bps-write",
    "iops": "iops-total",
    "read-iops": "iops-read",
    "write-iops": "iops-write",
}
_DELAYS = ("read-delay", "write-delay", "flush-delay")
CACHES = ("writeback", "none", "directsync", "writethrough", "unsafe")
DEFAULT_CACHE = "none"
KEYS = ("size", "sector", *_LIMITS, "burst", *_DELAYS, "cache")


@dataclass(frozen=True)
class Disk:
    """One virtual disk. Limits by QEMU's names (bytes or requests per second), of which what was
    not used in burst_s may be used later (0: QEMU's tenth of a second); delays in ms; sector_bytes
    is the physical sector, the logical one is always 512."""

    size_bytes: int = 8 << 30
    limits: dict[str, int] = field(default_factory=dict)
    burst_s: float = 0
    delays_ms: dict[str, int] = field(default_factory=dict)
    cache: str = DEFAULT_CACHE
    sector_bytes: int = 512

    def throttling(self) -> str:
        """QEMU's `-drive` options for the limits, each with a leading comma."""
        found = dict(self.limits)
        if self.burst_s:
            # the bucket of util/throttle.c holds that much
            found |= {f"{name}-max": round(n * self.burst_s) for name, n in self.limits.items()}
        return "".join(f",throttling.{name}={value}" for name, value in found.items())

    def sectors(self) -> str:
        """QEMU's `-device` option for the sectors, with a leading comma; "" for the default."""
        plain = self.sector_bytes == Disk.sector_bytes
        return "" if plain else f",physical_block_size={self.sector_bytes}"

    def delay_legs(self) -> str:
        """`READ WRITE FLUSH` in milliseconds for dm-delay; "" without delays."""
        if not self.delays_ms:
            return ""
        return " ".join(str(self.delays_ms.get(key, 0)) for key in _DELAYS)


def parse_disk(text: str) -> Disk:
    """The disk described by `size=8G,write-bps=30M,flush-delay=20ms`.

    Raises LabError, which names the wrong key.
    """
    size = Disk.size_bytes
    cache = Disk.cache
    sector = Disk.sector_bytes
    burst_s = Disk.burst_s
    limits: dict[str, int] = {}
    delays: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        try:
            if not equals:
                raise ValueError("has no value\nwrite it as KEY=VALUE")
            if key == "size":
                size = _at_least(parse_size(value), 64 << 20, "64M")
            elif key == "sector":
                sector = _sector(parse_size(value))
            elif key in _LIMITS:
                limits[_LIMITS[key]] = _at_least(parse_size(value), 1, "1")
            elif key == "burst":
                burst_s = _burst(value)
            elif key in _DELAYS:
                delays[key] = _milliseconds(value)
            elif key == "cache":
                if value not in CACHES:
                    raise ValueError(f"unknown mode {value!r}\nuse {', '.join(CACHES)}")
                cache = value
            else:
                raise ValueError(f"unknown key\nuse {', '.join(KEYS)}")
        except ValueError as error:
            why, _, hint = str(error).partition("\n")
            raise LabError(f"--disk {text}: {key}: {why}", hint, status=USAGE) from None
    for what in ("bps", "iops"):
        if f"{what}-total" in limits and {f"{what}-read", f"{what}-write"} & limits.keys():
            raise LabError(
                f"--disk {text}: {what} limits both directions together",
                f"use it alone, or read-{what} and write-{what}",
                status=USAGE,
            )
    if burst_s and not limits:
        raise LabError(
            f"--disk {text}: burst: there is no limit", "add write-bps=30M", status=USAGE
        )
    return Disk(size, limits, burst_s, delays, cache, sector)


def _at_least(value: int, least: int, shown: str) -> int:
    if value < least:
        raise ValueError(f"must be at least {shown}")
    return value


def _sector(value: int) -> int:
    if not 512 <= value <= 32 << 10 or value & (value - 1):
        raise ValueError("must be a power of two from 512 to 32K")
    return value


def _burst(text: str) -> float:
    # QEMU allows no burst below the limit itself
    if (burst_s := parse_time_s(text)) < 1:
        raise ValueError("must be at least 1s")
    return burst_s


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"\d+(\.\d+)?", text) and float(text) != 0:
        raise ValueError(f"{text!r} has no unit\nwrite {text}ms")
    value_ms = parse_time_s(text) * 1000
    if abs(value_ms - round(value_ms)) > 1e-6:
        raise ValueError(f"{text}: dm-delay takes whole milliseconds, at least 1ms")
    return round(value_ms)
