"""The part of the protocol buffers encoding that pprof's format needs."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1
_FIXED = {_FIXED64: 8, _FIXED32: 4}


def varint(value: int) -> bytes:
    """7 bits per byte, lowest first; a negative number as its 64-bit two's complement."""
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field that is a number."""
    return varint(field << 3 | _VARINT) + varint(value)


def block(field: int, content: bytes) -> bytes:
    """A field that is a message, a string, or packed numbers."""
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a message. Raises ValueError when it is truncated."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(message, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"unknown wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field exceeds the message")
        yield key >> 3, message[at : at + size]
        at += size


def numbers(value: int | bytes) -> list[int]:
    """The numbers of a repeated field, packed or not. Raises ValueError when it is truncated."""
    if isinstance(value, int):
        return [value]
    found = []
    number = shift = 0
    # Not with _read_varint(): a profile has millions of them.
    for byte in value:
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            found.append(number & _MASK)
            number = shift = 0
        else:
            shift += 7
            if shift > 63:
                break
    if shift:
        raise ValueError("a number exceeds the message")
    return found


def signed(value: int) -> int:
    """The int64 that an unsigned varint of 64 bits stands for."""
    return value - (1 << 64) if value >> 63 else value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7
    raise ValueError("a number exceeds the message")
