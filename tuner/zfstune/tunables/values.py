"""Values of parameters: parsed and formatted by the parameter's unit."""

from __future__ import annotations

import re

from zfstune.term import units

_FLAGS = {"0": 0, "off": 0, "no": 0, "1": 1, "on": 1, "yes": 1}
_TIME = {"ns": 1, "ms": units.MS, "s": units.SECOND}
_LIKE = {
    "bytes": "64M, 1.5G, 10% (of memory) or 67108864",
    "ns": "500us, 2ms or 500000 (ns)",
    "ms": "300ms, 30s or 30000 (ms)",
    "s": "5s, 1m or 5 (s)",
    "percent": "30 or 30%",
    "count": "10",
    "flag": "0 or 1",
}
_KIND = {"percent": "a percentage", "count": "a number", "flag": "on or off"}
# longer times are shown as bare numbers
_LONGEST = 366 * 24 * 3600 * units.SECOND

_PERCENT = re.compile(r"([0-9]{1,4})(?:\.([0-9]{1,6}))?%")
_SIZE = re.compile(r"([0-9]{1,15})\.([0-9]{1,6})([KMGT](?:i?B)?)", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,20}")


def parse(text: str, unit: str, memory: int = 0) -> int:
    """A value in the kernel's unit. memory, in bytes, is what 10% refers to; 0 if unknown. Raises
    ValueError; the second line of its message is the hint."""
    text = text.strip()
    if unit == "flag":
        if text.lower() in _FLAGS:
            return _FLAGS[text.lower()]
    elif _NUMBER.fullmatch(text):
        return int(text)
    elif unit == "bytes":
        return _bytes(text, memory)
    elif unit in _TIME:
        return _time(text, unit)
    elif unit == "percent" and _NUMBER.fullmatch(text.removesuffix("%").strip()):
        return int(text.removesuffix("%"))
    raise ValueError(f"{text!r} is not {_KIND[unit]}\nwrite it like {_LIKE[unit]}")


def _bytes(text: str, memory: int) -> int:
    part = _PERCENT.fullmatch(text.replace(" ", ""))
    if part:
        if not memory:
            raise ValueError(f"{text!r} is of memory, whose size is unknown\nwrite it like 64M")
        return _scaled(part[1], part[2] or "", memory) // 100
    size = _SIZE.fullmatch(text)
    try:
        if size:
            one = units.parse_size(f"1{size[3]}")
            return _scaled(size[1], size[2], one)
        return units.parse_size(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a size\nwrite it like {_LIKE['bytes']}") from None


def _scaled(whole: str, fraction: str, one: int) -> int:
    """whole.fraction times one, without rounding errors."""
    tenths: int = 10 ** len(fraction)
    return int(whole + fraction) * one // tenths


def _time(text: str, unit: str) -> int:
    try:
        ns = units.parse_time(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time\nwrite it like {_LIKE[unit]}") from None
    value, rest = divmod(ns, _TIME[unit])
    if rest:
        raise ValueError(f"{text!r} is not a whole number of {unit}\nwrite {value + 1}{unit}")
    return value


def short(value: int, unit: str) -> str:
    """The exact value, as parse() reads it: ``64M``, ``500us``, ``5s``, ``30``. A size that
    needs more than four digits before its suffix is in bytes, as in ``get`` and JSON."""
    if value < 0:
        return str(value)
    if unit == "bytes":
        for suffix, one in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
            if value and value % one == 0 and value // one < 10_000:
                return f"{value // one}{suffix}"
    elif unit in _TIME and 0 < value * _TIME[unit] <= _LONGEST:
        ns = value * _TIME[unit]
        for suffix, one in (("s", units.SECOND), ("ms", units.MS), ("us", units.US)):
            if ns % one == 0:
                return f"{ns // one}{suffix}"
        return f"{value}{unit}"
    return str(value)


def show(value: int, unit: str) -> str:
    """For people, rounded if long, with the unit: ``410M``, ``500 us``, ``30 %``, ``10``."""
    if unit == "bytes":
        exact = short(value, unit)
        return exact if len(exact) <= 6 else units.format_size(value)
    if unit in _TIME:
        ns = value * _TIME[unit]
        exact = short(value, unit) if value else f"0{unit}"
        return re.sub(r"^(\d+)", r"\1 ", exact) if len(exact) <= 7 else units.format_time(ns)
    return f"{value} %" if unit == "percent" else str(value)
