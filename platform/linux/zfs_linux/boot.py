"""Values for the next load of the module: /etc/modprobe.d/zfstune.conf.

modprobe(8) reads every *.conf in its directories and passes all their options to the module. If two
set the same parameter, the last one wins; the kernel command line comes after them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from zfs_linux import kstat
from zfstrace.errors import ParameterError
from zfstrace.files import replace_text
from zfstrace.params import Kept

_FILE = "etc/modprobe.d/zfstune.conf"
# in the order of modprobe.d(5); a file hides files of the same name in later directories
_DIRECTORIES = (
    "etc/modprobe.d",
    "run/modprobe.d",
    "usr/local/lib/modprobe.d",
    "usr/lib/modprobe.d",
    "lib/modprobe.d",
)
_HEAD = "# Written by `zfstune keep`; `zfstune keep --remove` takes its lines out again."
_OURS = re.compile(r"options\s+zfs\s+(\w+)=(\d+)\s*")
# Debian's zfs-initramfs, and dracut's module
_INITRAMFS = (
    ("usr/share/initramfs-tools/hooks/zfs", "update-initramfs -u -k all"),
    ("usr/lib/dracut/modules.d/90zfs", "dracut --force --regenerate-all"),
    ("usr/lib/dracut/modules.d/02zfs", "dracut --force --regenerate-all"),
)


class ModprobeConfig:
    """Implements zfstrace.params.BootConfig. /etc and the other directories are below root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / _FILE

    def values(self) -> dict[str, int]:
        found = {}
        for line in self._read():
            match = _OURS.fullmatch(line)
            if match:
                found[match[1]] = int(match[2])
        return found

    def preview(self, values: Mapping[str, int], drop: Collection[str] = ()) -> Kept:
        lines = self._merged(values, drop)
        ours = tuple(line for line in lines if line.startswith("options"))
        notes, given = tuple(self._notes(values)), self._given(lines)
        return Kept(str(self._path), ours, None, notes, given)

    def update(self, values: Mapping[str, int], drop: Collection[str] = ()) -> Kept:
        planned = self.preview(values, drop)
        lines, before = self._merged(values, drop), self._read()
        if lines == before:
            return planned
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            backup = self._back_up()
            if lines in ([], [_HEAD]):
                self._path.unlink(missing_ok=True)
            else:
                replace_text(self._path, "\n".join(lines) + "\n")
        except OSError as error:
            raise ParameterError(
                f"cannot write {self._path}: {error.strerror}; nothing was changed",
                "run as root" if isinstance(error, PermissionError) else "make room",
            ) from None
        return replace(planned, backup=backup)

    def _read(self) -> list[str]:
        """Raises ParameterError: a file that cannot be read must not be replaced."""
        try:
            text = _text(self._path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ParameterError(
                f"cannot read {self._path}: {error.strerror}", f"run `ls -l {self._path}`"
            ) from None
        return text.removesuffix("\n").split("\n") if text else []

    def _merged(self, values: Mapping[str, int], drop: Collection[str]) -> list[str]:
        """The file's lines with these values in place of older ones; other lines stay."""
        before = self._read()
        lines = [kept for line in before if (kept := _without(line, {*values, *drop})) is not None]
        if len(lines) < len(before) and lines[-1:] == [""] and _goes_on(lines[:-1]):
            lines.pop()
        if values and _HEAD not in lines:
            lines.insert(0, _HEAD)
        if values and _goes_on(lines):
            # a trailing backslash would swallow the first of our lines
            lines.append("")
        return [*lines, *(f"options zfs {name}={value}" for name, value in sorted(values.items()))]

    def _back_up(self) -> str | None:
        """Saves the previous file under a name that modprobe does not read."""
        if not self._path.exists():
            return None
        backup = self._path.with_name(self._path.name + ".bak")
        replace_text(backup, _text(self._path))
        return str(backup)

    def _notes(self, names: Collection[str]) -> list[str]:
        notes = []
        for path, text in self._others():
            for name, value in _settings(text):
                if name in names:
                    last = path.name > self._path.name
                    which = "it is read later and wins" if last else "this file wins"
                    notes.append(f"{path} also sets {name}={value}; {which}")
        for name, value in self._command_line():
            if name in names:
                notes.append(f"the kernel command line sets {name}={value}, which wins")
        for mark, command in _INITRAMFS:
            if (self._root / mark).exists():
                notes.append(
                    "ZFS is loaded in the initramfs, which has its own copy of the file: run "
                    f"`{command}`"
                )
                break
        return notes

    def _given(self, lines: list[str]) -> dict[str, int]:
        """The numbers that the module gets with these lines in the file: the last one wins."""
        files = [*self._others(), (self._path, "\n".join(lines))]
        files.sort(key=lambda file: file[0].name)
        settings = [pair for _path, text in files for pair in _settings(text)]
        found = {}
        for name, value in [*settings, *self._command_line()]:
            number = _number(value)
            if number is not None:
                found[name] = number
        return found

    def _command_line(self) -> Iterator[tuple[str, str]]:
        for word in kstat.read(self._root / "proc/cmdline").split():
            if word.startswith("zfs."):
                name, _, value = word.removeprefix("zfs.").partition("=")
                yield name, value

    def _others(self) -> list[tuple[Path, str]]:
        """The other files and their contents, in the order in which they are read."""
        files: dict[str, Path] = {}
        for directory in _DIRECTORIES:
            for path in sorted((self._root / directory).glob("*.conf")):
                files.setdefault(path.name, path)
        files.pop(self._path.name, None)
        return [(path, kstat.read(path)) for _name, path in sorted(files.items())]


def _text(path: Path) -> str:
    """Raises OSError."""
    # not read_text(), to which \r is the end of a line
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of each option for zfs in a file."""
    # not splitlines(), to which a form feed in a comment ends it
    for line in text.replace("\\\n", " ").split("\n"):
        words = line.split()
        if words[:2] == ["options", "zfs"]:
            for word in words[2:]:
                name, _, value = word.strip("\"'").partition("=")
                yield name, value.strip("\"'")


def _goes_on(lines: list[str]) -> bool:
    """Whether the last line is joined with the next one."""
    return bool(lines) and lines[-1].endswith("\\")


def _number(text: str) -> int | None:
    """As the kernel reads it: decimal, 0x, or octal with a leading 0."""
    try:
        return int(text, 8 if text.startswith("0") and text.isdigit() else 0)
    except ValueError:
        return None


def _without(line: str, names: Collection[str]) -> str | None:
    """A line without the settings of these; None if nothing is left."""
    words = line.split()
    if words[:2] != ["options", "zfs"]:
        return line
    try:
        settings = shlex.split(line)[2:]
    except ValueError:
        return line
    kept = [word for word in settings if word.partition("=")[0] not in names]
    # what is quoted would lose its quotes; the line may stay, since ours come later and win
    if kept == settings or "'" in line or '"' in line:
        return line
    return f"options zfs {' '.join(kept)}" if kept else None
