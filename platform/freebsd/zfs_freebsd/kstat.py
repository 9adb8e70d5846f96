"""The kstats of ZFS on FreeBSD, below kstat.zfs (module/os/freebsd/spl/spl_kstat.c).

Global ones are kstat.zfs.misc.NAME.FIELD, those of a pool kstat.zfs.POOL.misc.NAME.FIELD, of a
dataset kstat.zfs.POOL.dataset.objset-0xID.FIELD; the history lists are one text each,
kstat.zfs.POOL.txgs without `misc`. A pool may have dots in its name: newer kernels write each as
%25 in the tree (sysctl_escape_name() in sys/kern/kern_sysctl.c); on older ones, no dotted name
leads to it. So a pool is found by walking the tree, and everything below it from there.
"""

from __future__ import annotations

import re

from zfs_freebsd.sysctl import Format, Mib, Sysctl, SysctlError
from zfstrace.kstat.parse import Value
from zfstrace.kstat.txgs import TxgRow, parse_txgs

ROOT = "kstat.zfs"
_GLOBAL = "misc"
# A pool's name has only letters, digits, -_.: and blanks, so this can only be a dot.
_DOT = "%25"
_OBJSET = re.compile(r"objset-0x([0-9a-f]{1,16})")


class Kstats:
    """Missing kstats are empty; never raises."""

    def __init__(self, sysctl: Sysctl) -> None:
        self._sysctl = sysctl
        self._leaves: dict[Mib, list[tuple[str, Mib, Format]]] = {}

    def pools(self) -> list[str]:
        """Names of the imported pools, sorted."""
        return sorted(self._pools())

    def _pools(self) -> dict[str, Mib]:
        found = {}
        for mib, name in self._children(self._mib(ROOT)):
            # the node of the global ones, unless a pool has that name
            if name != _GLOBAL or self._mib(f"{ROOT}.{_GLOBAL}.{_GLOBAL}"):
                found[name.replace(_DOT, ".")] = mib
        return found

    def named(self, name: str) -> dict[str, Value]:
        """The values of a named kstat: "arcstats", "tank/iostats", "tank/objset-0x36"."""
        return dict(self._fields(self._node(name)))

    def text(self, pool: str, *path: str) -> str:
        """A kstat with a single text value: ("txgs",), ("misc", "state"); "" if it is absent."""
        value = self._value(self._below(self._pools().get(pool, ()), *path))
        return value if isinstance(value, str) else ""

    def txg_rows(self, pool: str) -> list[TxgRow]:
        """The rows of the txgs kstat, oldest first."""
        return parse_txgs(self.text(pool, "txgs"))

    def objsets(self, pool: str) -> dict[int, Mib]:
        """Object set id -> its node, for the datasets of a pool that are in use."""
        found = {}
        for mib, name in self._children(self._below(self._pools().get(pool, ()), "dataset")):
            match = _OBJSET.fullmatch(name)
            if match:
                found[int(match[1], 16)] = mib
        return found

    def objset(self, pool: str, number: int) -> Mib:
        """The node of one dataset; () if it is not in use."""
        return self._node(f"{pool}/objset-0x{number:x}")

    def objset_field(self, objset: Mib, field: str) -> Value | None:
        """One value of a node from objsets() or objset(); None if it is absent."""
        return self._value(self._below(objset, field))

    # --- the tree; () stands for no node

    def _node(self, name: str) -> Mib:
        pool, _, own = name.rpartition("/")
        if not pool:
            return self._mib(f"{ROOT}.{_GLOBAL}.{name}")
        group = "dataset" if _OBJSET.fullmatch(own) else "misc"
        return self._below(self._pools().get(pool, ()), group, own)

    def _mib(self, name: str) -> Mib:
        try:
            return self._sysctl.mib(name)
        except SysctlError:
            return ()

    def _below(self, node: Mib, *path: str) -> Mib:
        """By its dotted name if that leads there, else by walking the tree."""
        if not node:
            return ()
        try:
            found = self._mib(".".join((self._sysctl.name(node), *path)))
        except SysctlError:
            return ()
        if found[: len(node)] == node:
            return found
        for part in path:
            there = {name: mib for mib, name in self._children(node, hidden=True)}
            node = there.get(part, ())
        return node

    def _children(self, node: Mib, *, hidden: bool = False) -> list[tuple[Mib, str]]:
        try:
            return list(self._sysctl.children(node, hidden=hidden)) if node else []
        except SysctlError:
            return []

    def _fields(self, node: Mib) -> list[tuple[str, Value]]:
        """The values below a node, which is walked only once: arcstats alone has more than a
        hundred, and numbers of OIDs are not reused."""
        leaves = self._leaves.get(node)
        if leaves is None:
            found = ((name, mib, self._format(mib)) for mib, name in self._children(node))
            leaves = [(name, mib, form) for name, mib, form in found if form]
        values = [(name, self._value(mib, form)) for name, mib, form in leaves]
        if all(value is None for _name, value in values):
            self._leaves.pop(node, None)  # it is gone
        else:
            self._leaves[node] = leaves
        return [(name, value) for name, value in values if value is not None]

    def _format(self, mib: Mib) -> Format | None:
        try:
            return self._sysctl.format(mib, "")
        except SysctlError:
            return None

    def _value(self, mib: Mib, form: Format | None = None) -> Value | None:
        if not mib:
            return None
        try:
            value = self._sysctl.get_as(form or self._sysctl.format(mib, ""), mib, "")
        except SysctlError:
            return None
        return None if isinstance(value, bytes) else value
