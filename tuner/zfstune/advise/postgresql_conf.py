"""Reads postgresql.conf and the files it includes, and postgresql.auto.conf after it.

src/backend/utils/misc/guc-file.l, PostgreSQL 12 to 18: the last setting of a name wins, names are
case-insensitive, files of include_dir are those that end in .conf, in the order of their names.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from zfstune.advise.config_text import entries, is_directory, read
from zfstune.errors import CommandError, UsageError

_DEEPEST = 10  # CONF_FILE_MAX_DEPTH

_LINE = re.compile(
    r"""\s*(?P<name>[A-Za-z_\u0080-\uffff][\w$]*(?:\.[A-Za-z_\u0080-\uffff][\w$]*)?)
    (?:\s*=\s*|\s+)
    (?:'(?P<quoted>(?:[^'\\]|\\.|'')*)'|(?P<plain>[^\s#'=]+))
    \s*(?:\#.*)?""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"''|\\([0-7]{1,3}|.)")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BYTES = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_NUMBER = re.compile(r"([+-]?(?:0[xX][0-9a-fA-F]{1,15}|\d{1,18}(?:\.\d{0,9})?))\s*([a-zA-Z]*)")
_FLAGS = ("on", "true", "yes", "1"), ("off", "false", "no", "0")


@dataclass(frozen=True)
class Setting:
    value: str
    path: Path
    line: int

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.path} line {self.line}"


Settings = dict[str, Setting]


def load(path: Path, notes: list[str]) -> Settings:
    """All settings by lower-case name; data_directory is absolute, and present even if not set.
    Adds to notes what could not be read. Raises UsageError, NotPossible."""
    if is_directory(path):
        path = path / "postgresql.conf"
    found: Settings = {}
    _read(path, found, 0, "")
    home = found.get("data_directory", Setting(".", path, 0))
    place = Path(os.path.realpath(path.absolute().parent / home.value))
    found["data_directory"] = Setting(str(place), home.path, home.line)
    # ALTER SYSTEM writes it into the data directory
    for directory in (place, path.absolute().parent):
        auto = directory / "postgresql.auto.conf"
        try:
            there = auto.is_file()
        except OSError as error:
            # only its owner can read the data directory
            notes.append(f"cannot read {auto}: {error.strerror}; its settings are ignored")
            break
        if there:
            _read(auto, found, 0, "")
            break
    return found


def _read(path: Path, found: Settings, depth: int, included: str) -> None:
    if depth > _DEEPEST:
        raise UsageError(f"{included}: includes are more than {_DEEPEST} levels deep")
    for number, line in enumerate(read(path, included).split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.rstrip("\r"))
        if not match:
            raise UsageError(
                f"{path} line {number} is no setting: {line.strip()[:40]!r}",
                "write it like name = 'value'",
            )
        quoted = match["quoted"]
        value = match["plain"] if quoted is None else _ESCAPE.sub(_unescape, quoted)
        if "\0" in value:
            raise UsageError(f"{path} line {number}: a value cannot have a zero byte")
        setting = Setting(value, path, number)
        name = match["name"].lower()
        if name.startswith("include"):
            _include(name, setting, found, depth)
        else:
            found[name] = setting


def _unescape(match: re.Match[str]) -> str:
    if match[0] == "''":
        return "'"
    code = match[1]
    return chr(int(code, 8) & 0xFF) if code.isdigit() else _ESCAPES.get(code, code)


def _include(name: str, setting: Setting, found: Settings, depth: int) -> None:
    target = setting.path.absolute().parent / setting.value
    if name == "include_dir":
        for path in entries(target, setting.place):
            if path.name.endswith(".conf") and not path.name.startswith("."):
                _read(path, found, depth + 1, setting.place)
    elif name == "include_if_exists":
        # a link to nothing is skipped, too
        if os.path.exists(target):  # noqa: PTH110
            _read(target, found, depth + 1, setting.place)
    elif name == "include":
        _read(target, found, depth + 1, setting.place)
    else:
        raise UsageError(f"{setting.place}: no setting {name!r}", "write include_if_exists")


def number(setting: Setting, unit: int = 1) -> int:
    """A size in bytes; a bare number counts units. Raises UsageError."""
    match = _NUMBER.fullmatch(setting.value.strip())
    if match and (not match[2] or match[2] in _BYTES):
        times = _BYTES.get(match[2], unit)
        if "." in match[1]:
            return int(float(match[1]) * times)
        return int(match[1], 0 if "x" in match[1].lower() else 10) * times
    raise _wrong(setting, "a size", "write it like 128MB (units: B, kB, MB, GB, TB)")


def flag(setting: Setting) -> bool:
    """A boolean; words may be shortened. Raises UsageError."""
    text = setting.value.strip().lower()
    for word in (*_FLAGS[0], *_FLAGS[1]):
        # "o" is ambiguous
        if text and word.startswith(text) and text != "o":
            return word in _FLAGS[0]
    raise _wrong(setting, "on or off")


def _wrong(setting: Setting, what: str, hint: str = "") -> CommandError:
    return UsageError(f"{setting.place}: {setting.value[:40]!r} is not {what}", hint)
