"""sysctl(3) by ctypes: typed values, their formats, and a walk through the tree.

The calls of libc return -1 and set errno: ENOENT if there is no such OID, EPERM if it is read-only
or the process lacks privilege, EINVAL if a value has the wrong length or the handler refuses it,
ENOMEM if a buffer is too short. The length returned with ENOMEM is not the one needed
(sysctl_old_user() and userland_sysctl() in sys/kern/kern_sysctl.c), so the size is queried again.

The queries about OIDs are the ones of sysctl(8) (sysctl_sysctl_*() there): {0,1,...} gives the
name, {0,2,...} the next leaf, {0,4,...} kind and format, {0,7,...} the next OID, hidden ones
(CTLFLAG_SKIP) included.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import functools
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Union

Mib = tuple[int, ...]
Value = Union[int, str, bytes]

# sys/sysctl.h
_NAME, _NEXT, _OIDFMT, _NEXTNOSKIP = 1, 2, 4, 7
_CTL_MAXNAME = 24
_LAST_NUMBER = 0x7FFFFFFF
_CTLTYPE = 0xF
_NODE, _STRING = 1, 3
_TUN, _WR = 0x00080000, 0x40000000

# CTLTYPE_* of the integers: their names in C and in struct. long has the machine's size.
_INTEGERS = {
    2: ("int", "i"),
    4: ("int64_t", "q"),
    6: ("unsigned int", "I"),
    7: ("long", "l"),
    8: ("unsigned long", "L"),
    9: ("uint64_t", "Q"),
    10: ("uint8_t", "B"),
    11: ("uint16_t", "H"),
    12: ("int8_t", "b"),
    13: ("int16_t", "h"),
    14: ("int32_t", "i"),
    15: ("uint32_t", "I"),
}

# Room for an integer, and for nearly every name, format or list of numbers.
_INTEGER, _SHORT = 8, 256
# A text may grow between the two calls (txgs does): extra room, and the number of attempts.
_SPARE = 1024
_ATTEMPTS = 8


class SysctlError(OSError):
    """A call failed; filename is the sysctl's name."""


@dataclass(frozen=True)
class Format:
    """Kind and format of an OID, as {0,4,...} gives them: "I", "LU", "QU", "A", "N" ..."""

    kind: int
    text: str

    @property
    def integer(self) -> tuple[str, str] | None:
        """Its type in C and in struct; None if it is not an integer."""
        return _INTEGERS.get(self.kind & _CTLTYPE)

    @property
    def node(self) -> bool:
        """Whether it has no value, but OIDs below it."""
        return self.kind & _CTLTYPE == _NODE

    @property
    def writable(self) -> bool:
        """RW or RWTUN: at run time, with privilege."""
        return bool(self.kind & _WR)

    @property
    def tunable(self) -> bool:
        """RWTUN or RDTUN: loader.conf sets it."""
        return bool(self.kind & _TUN)


class Sysctl:
    """The sysctls of this host. library is another one than libc, for tests."""

    def __init__(self, library: str | None = None) -> None:
        self._libc = _load(library)

    # --- by name

    def get(self, name: str) -> Value:
        """A value by its name, of the type given by its format. Raises SysctlError."""
        return self.get_mib(self.mib(name), name)

    def get_text(self, name: str) -> str:
        """A string; "" if there is none."""
        try:
            value = self.get(name)
        except SysctlError:
            return ""
        return value if isinstance(value, str) else ""

    def get_int(self, name: str) -> int | None:
        """An integer; None if there is none."""
        try:
            value = self.get(name)
        except SysctlError:
            return None
        return value if isinstance(value, int) else None

    def set(self, name: str, value: int) -> None:
        """Sets an integer. Raises SysctlError, and OverflowError if the sysctl's type cannot hold
        the value."""
        integer = self.format(self.mib(name), name).integer
        if integer is None:
            raise SysctlError(errno.EINVAL, "it is not a number", name)
        try:
            data = struct.pack(integer[1], value)
        except struct.error:
            raise OverflowError(f"out of range for its type {integer[0]}") from None
        self._check(self._libc.sysctlbyname(name.encode(), None, None, data, len(data)), name)

    def mib(self, name: str) -> Mib:
        """The numbers of an OID, which change when its module is reloaded. Raises SysctlError."""
        found = (ctypes.c_int * _CTL_MAXNAME)()
        size = ctypes.c_size_t(_CTL_MAXNAME)
        self._check(self._libc.sysctlnametomib(name.encode(), found, ctypes.byref(size)), name)
        return tuple(found[: size.value])

    # --- by number

    def get_mib(self, mib: Mib, name: str) -> Value:
        """The name is for the error. Raises SysctlError."""
        return self.get_as(self.format(mib, name), mib, name)

    def get_as(self, form: Format, mib: Mib, name: str) -> Value:
        """The same for a known format. Raises SysctlError."""
        integer = form.integer
        data = self._read(mib, name, _INTEGER if integer else 0)
        if integer:
            # kstats return eight bytes whatever their type (kstat_sysctl() in spl_kstat.c)
            if len(data) < struct.calcsize(integer[1]):
                raise SysctlError(errno.EINVAL, f"{len(data)} bytes are not {integer[0]}", name)
            value: int = struct.unpack_from(integer[1], data)[0]
            return value
        if form.kind & _CTLTYPE == _STRING:
            return data.partition(b"\0")[0].decode("utf-8", "replace")
        return data

    def format(self, mib: Mib, name: str) -> Format:
        """Kind and format of an OID; the name is for the error. Raises SysctlError."""
        data = self._read((0, _OIDFMT, *mib), name, _SHORT)
        text = data[4:].partition(b"\0")[0].decode("ascii", "replace")
        return Format(struct.unpack_from("I", data)[0], text)

    def name(self, mib: Mib) -> str:
        """Its parts joined by dots; parts may contain dots themselves. Raises SysctlError."""
        data = self._read((0, _NAME, *mib), _dotted(mib), _SHORT)
        return data.partition(b"\0")[0].decode("utf-8", "replace")

    def children(self, parent: Mib, *, hidden: bool = False) -> Iterator[tuple[Mib, str]]:
        """The nodes and leaves directly below a node, with their own part of the name; hidden: also
        those with CTLFLAG_SKIP, and nodes with nothing else below. Raises SysctlError."""
        query = _NEXTNOSKIP if hidden else _NEXT
        prefix = self.name(parent) + "."
        after = parent
        while True:
            leaf = self._next(query, after)
            if leaf is None or leaf[: len(parent)] != parent or len(leaf) == len(parent):
                return
            child = leaf[: len(parent) + 1]
            if child <= after[: len(parent) + 1] and len(after) > len(parent):
                return  # numbers must rise, or the walk would not end
            # None if it is gone meanwhile, e.g. an exported pool
            name = self._name_or_none(child)
            if name is not None and name.startswith(prefix):
                yield child, name.removeprefix(prefix)
            # the last possible OID below the child, so the next leaf is its sibling's
            after = (*child, _LAST_NUMBER)

    def _name_or_none(self, mib: Mib) -> str | None:
        try:
            return self.name(mib)
        except SysctlError:
            return None

    def _next(self, query: int, mib: Mib) -> Mib | None:
        """The OID after this one; None at the end."""
        try:
            data = self._read((0, query, *mib), _dotted(mib), _SHORT)
        except SysctlError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return struct.unpack(f"{len(data) // 4}i", data)

    def _read(self, mib: Mib, name: str, room: int = 0) -> bytes:
        """The whole value: asks for its size, unless there is room for it, then reads, and repeats
        while it grows."""
        oid = (ctypes.c_int * len(mib))(*mib)
        least = room
        for attempt in range(_ATTEMPTS):
            size = ctypes.c_size_t(0)
            if attempt or not room:
                status = self._libc.sysctl(oid, len(mib), None, ctypes.byref(size), None, 0)
                self._check(status, name)
                least = max(size.value, 2 * least)
            buffer = ctypes.create_string_buffer(least or 1)
            size.value = least
            if not self._libc.sysctl(oid, len(mib), buffer, ctypes.byref(size), None, 0):
                return buffer.raw[: size.value]
            if ctypes.get_errno() != errno.ENOMEM:
                self._check(-1, name)
            least += _SPARE
        raise SysctlError(errno.ENOMEM, "it grows faster than it can be read", name)

    def _check(self, status: int, name: str) -> None:
        if status:
            number = ctypes.get_errno()
            raise SysctlError(number, os.strerror(number), name)


def _dotted(mib: Sequence[int]) -> str:
    return ".".join(map(str, mib))


@functools.cache
def _load(library: str | None) -> ctypes.CDLL:
    libc = ctypes.CDLL(library or ctypes.util.find_library("c") or "libc.so.7", use_errno=True)
    size = ctypes.POINTER(ctypes.c_size_t)
    for name, first in (
        ("sysctl", (ctypes.POINTER(ctypes.c_int), ctypes.c_uint)),
        ("sysctlbyname", (ctypes.c_char_p,)),
    ):
        call = getattr(libc, name)
        call.argtypes = (*first, ctypes.c_void_p, size, ctypes.c_char_p, ctypes.c_size_t)
        call.restype = ctypes.c_int
    libc.sysctlnametomib.argtypes = (ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), size)
    libc.sysctlnametomib.restype = ctypes.c_int
    return libc
