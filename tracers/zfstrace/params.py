"""Module parameters of ZFS on a host: read, write, watch, keep across a reboot. Names are those of
Linux, values are integers in the kernel's units."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

LOADED_ANEW = "the zfs module was reloaded, which discarded its values"


@dataclass(frozen=True)
class Change:
    """A write of a parameter by another process; pid and comm are None when unknown."""

    name: str
    pid: int | None = None
    comm: str | None = None


class Watch(Protocol):
    """Reports writes by other processes until close()."""

    def poll(self) -> list[Change]:
        """The writes since the last call, oldest first; never blocks."""
        ...

    def close(self) -> None:
        """Ends the watch; called once."""
        ...


class ComparingWatch:
    """Implements Watch by comparing values: it does not know who wrote, and misses writes of the
    same value. read returns the value of a parameter; gone is called at the end."""

    def __init__(
        self,
        read: Callable[[str], int | None],
        names: Sequence[str],
        gone: Callable[[ComparingWatch], None],
    ) -> None:
        self._read, self._gone = read, gone
        self._values = {name: read(name) for name in names}

    def known(self, name: str, value: int | None) -> None:
        """Excludes a write by this process, after which the parameter reads as value; None when it
        is gone."""
        if name in self._values:
            self._values[name] = value

    def poll(self) -> list[Change]:
        """The parameters whose values have changed since the last call, without pid and comm."""
        changes = []
        for name, before in self._values.items():
            now = self._read(name)
            if now != before:
                self._values[name] = now
                changes.append(Change(name))
        return changes

    def close(self) -> None:
        """Ends the watch and calls gone() with it."""
        self._gone(self)


@dataclass(frozen=True)
class Kept:
    """What a change of the boot configuration did."""

    path: str
    lines: tuple[str, ...]  # the settings it has now
    backup: str | None = None  # the path of the previous file, if there was one
    notes: tuple[str, ...] = ()  # what the user must know or do
    # all values that the module will get, from all files
    given: dict[str, int] = field(default_factory=dict)
    more: tuple[Kept, ...] = ()  # changes of other files


class BootConfig(Protocol):
    """The values that parameters get when the module is loaded."""

    def values(self) -> dict[str, int]:
        """The values that this program has written there."""
        ...

    def preview(self, values: Mapping[str, int], drop: Collection[str] = ()) -> Kept:
        """What update() would write; nothing is changed."""
        ...

    def update(self, values: Mapping[str, int], drop: Collection[str] = ()) -> Kept:
        """Sets values and removes the names in drop, atomically; what others have written stays.
        Raises ParameterError."""
        ...


class Parameters(Protocol):
    """The parameters of the loaded module."""

    def names(self) -> list[str]:
        """The module's parameters, sorted; [] when it is not loaded."""
        ...

    def read(self, name: str) -> int | None:
        """The value; None when the parameter does not exist or is not a number."""
        ...

    def writable(self, name: str) -> bool:
        """Whether this process can set it now."""
        ...

    def write(self, name: str, value: int, identity: str | None = None) -> None:
        """Writes a value unchecked. With an identity, only to the module that has it, even if
        another one is loaded at this moment. Raises ParameterError."""
        ...

    def identity(self) -> str:
        """Changes when the module is reloaded or the host boots, and the values are lost with it;
        "" without the module."""
        ...

    def watch(self, names: Sequence[str], ours: Collection[int] = ()) -> Watch:
        """Watches for writes by any process but this one and those in ours (their pids)."""
        ...

    def shell(self, name: str, value: int) -> str:
        """The command that sets a parameter in a root shell."""
        ...

    def loading(self) -> str:
        """The command that loads the module in a root shell."""
        ...

    def who(self) -> str:
        """Who may set parameters, for hints: "root"."""
        ...

    def boot(self) -> BootConfig:
        """What sets values at the next boot, or when the module is loaded."""
        ...
