"""Module parameters of ZFS as a host has them: to read, to write, to watch, to keep over a
reboot. Names are those of Linux, values are integers in the kernel's own units."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

LOADED_ANEW = "the zfs module was loaded anew and the values went with the old one, begin again"


@dataclass(frozen=True)
class Change:
    """Somebody else wrote a parameter. pid and comm are None where that is not known."""

    name: str
    pid: int | None = None
    comm: str | None = None


class Watch(Protocol):
    """Tells of writes by others. Ends with close()."""

    def poll(self) -> list[Change]:
        """The writes since the last call, oldest first; never blocks."""
        ...

    def close(self) -> None:
        """Ends the watch; called once."""
        ...


class ComparingWatch:
    """Implements Watch by comparing values: it knows neither who wrote nor that somebody wrote
    what was there already. read gives the value of a parameter, gone is called at the end."""

    def __init__(
        self,
        read: Callable[[str], int | None],
        names: Sequence[str],
        gone: Callable[[ComparingWatch], None],
    ) -> None:
        self._read, self._gone = read, gone
        self._values = {name: read(name) for name in names}

    def known(self, name: str, value: int | None) -> None:
        """A write by this process is no change: value is what the parameter reads since, None when
        it is gone."""
        if name in self._values:
            self._values[name] = value

    def poll(self) -> list[Change]:
        """The parameters whose values have changed since the last call; who did it is not known."""
        changes = []
        for name, before in self._values.items():
            now = self._read(name)
            if now != before:
                self._values[name] = now
                changes.append(Change(name))
        return changes

    def close(self) -> None:
        """Ends it: gone() is called with the watch."""
        self._gone(self)


@dataclass(frozen=True)
class Kept:
    """What a change of the boot configuration did."""

    path: str
    lines: tuple[str, ...]  # the settings it has now
    backup: str | None = None  # where the file of before is, if there was one
    notes: tuple[str, ...] = ()  # what the person must know or do
    # what the module is given then, by others as well
    given: dict[str, int] = field(default_factory=dict)
    more: tuple[Kept, ...] = ()  # what it did to other files


class BootConfig(Protocol):
    """The values that parameters get when the module is loaded."""

    def values(self) -> dict[str, int]:
        """Those that this program has written there."""
        ...

    def preview(self, values: Mapping[str, int], drop: Collection[str] = ()) -> Kept:
        """What update() would write; nothing is changed."""
        ...

    def update(self, values: Mapping[str, int], drop: Collection[str] = ()) -> Kept:
        """Sets values and removes the names in drop, at once or not at all; what others
        have written stays. Raises ParameterError."""
        ...


class Parameters(Protocol):
    """The parameters of the loaded module."""

    def names(self) -> list[str]:
        """All that the module has, sorted; [] when it is not loaded."""
        ...

    def read(self, name: str) -> int | None:
        """None when there is none of this name, or when its value is no number."""
        ...

    def writable(self, name: str) -> bool:
        """Whether it can be set now, by this process."""
        ...

    def write(self, name: str, value: int, identity: str | None = None) -> None:
        """One write, without any check of the value. With an identity only to the module that
        has it, though another one be loaded in this very moment. Raises ParameterError."""
        ...

    def identity(self) -> str:
        """Another one when the module was loaded anew or the host booted, "" without the
        module: values live as long as their identity."""
        ...

    def watch(self, names: Sequence[str], ours: Collection[int] = ()) -> Watch:
        """Watches for writes by any process but this one and those in ours (their pids)."""
        ...

    def shell(self, name: str, value: int) -> str:
        """The command that sets it without this program, for a root shell."""
        ...

    def loading(self) -> str:
        """The command that loads the module, for a root shell."""
        ...

    def boot(self) -> BootConfig:
        """What sets values at the next boot, or when the module is loaded."""
        ...
