"""Reads my.cnf and the files it includes: options of the groups that MySQL or MariaDB servers read.

mysys/my_default.c (MariaDB), mysys/my_default.cc (MySQL): the last setting of a name wins, `-` and
`_` in names are the same, names of groups are case-insensitive (mysys/typelib.c), a comment begins
at any # outside of quotes, files of !includedir are those that end in .cnf. The server is not
known, so groups for single versions count.
"""

from __future__ import annotations

import re
from pathlib import Path

from zfstune.advise.config_text import entries, read
from zfstune.advise.postgresql_conf import Setting, Settings
from zfstune.errors import UsageError

_DEEPEST = 10
_GROUPS = re.compile(
    r"(?:mysqld|server|mariadb|mariadbd|galera)(?:-\d+\.\d+)?|client-server", re.IGNORECASE
)
_INCLUDE = re.compile(r"!\s*(include|includedir)\s+(\S.*)")
_SUFFIX = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}
_NUMBER = re.compile(r"(\d{1,18})([kmgtpe]?)", re.IGNORECASE)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "r": "\r", "s": " "}
_ESCAPES |= {same: same for same in "'\"\\"}
_ON, _OFF = ("1", "on", "true", "yes", ""), ("0", "off", "false", "no")


def load(path: Path) -> Settings:
    """Options by name with `_`; one without a value has "". Raises UsageError, NotPossible."""
    found: Settings = {}
    _read(path, found, 0, "")
    return found


def _read(path: Path, found: Settings, depth: int, included: str) -> None:
    if depth > _DEEPEST:
        raise UsageError(f"{included}: includes are more than {_DEEPEST} levels deep")
    group: str | None = None
    for number, line in enumerate(read(path, included).split("\n"), 1):
        text, place = line.strip(), f"{path} line {number}"
        if not text or text[0] in "#;":
            continue
        if text.startswith("!"):
            _include(text, path, place, found, depth)
        elif text.startswith("["):
            end = text.find("]")
            if end < 0:
                raise UsageError(f"{place}: the group has no ]", "write it like [mysqld]")
            group = text[1:end].strip()
        elif group is None:
            raise UsageError(
                f"{place}: an option before any group: {text[:40]!r}", "write [mysqld] above it"
            )
        elif _GROUPS.fullmatch(group):
            name, equals, value = _uncommented(text).partition("=")
            _set(found, name.strip(), Setting(_value(value) if equals else "", path, number))


def _include(text: str, path: Path, place: str, found: Settings, depth: int) -> None:
    match = _INCLUDE.fullmatch(text)
    if not match:
        raise UsageError(
            f"{place}: {text[:40]!r} is no include", "write !include FILE or !includedir DIR"
        )
    target = path.absolute().parent / match[2]
    if match[1] == "include":
        _read(target, found, depth + 1, place)
        return
    for one in entries(target, place):
        if one.name.endswith(".cnf"):
            _read(one, found, depth + 1, place)


def _uncommented(text: str) -> str:
    """A line up to its comment, as remove_end_comment() cuts it."""
    quote, escaped = "", False
    for place, letter in enumerate(text):
        if letter in "'\"" and not escaped and quote in ("", letter):
            quote = "" if quote else letter
        elif letter == "#" and not quote:
            return text[:place]
        escaped = bool(quote) and letter == "\\" and not escaped
    return text


def _value(text: str) -> str:
    """A value without quotes and escapes."""
    text = text.strip()
    if len(text) > 1 and text[0] in "'\"" and text[0] == text[-1]:
        text = text[1:-1]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)


def _set(found: Settings, given: str, setting: Setting) -> None:
    """skip_x and disable_x are x=0, enable_x is x=1, loose_x is x."""
    name = given.replace("-", "_").lower().removeprefix("loose_")
    for prefix, value in (("skip_", "0"), ("disable_", "0"), ("enable_", "1")):
        if name.startswith(f"{prefix}innodb"):
            name = name.removeprefix(prefix)
            setting = Setting(value, setting.path, setting.line)
            break
    found[name] = setting


def number(setting: Setting) -> int:
    """Bytes or a count. Raises UsageError."""
    match = _NUMBER.fullmatch(setting.value.strip())
    if not match:
        raise UsageError(
            f"{setting.place}: {setting.value[:40]!r} is no number", "write it like 128M"
        )
    return int(match[1]) << _SUFFIX.get(match[2].lower(), 0)


def flag(setting: Setting) -> bool:
    """ON or OFF as MySQL spells them. Raises UsageError."""
    text = setting.value.strip().lower()
    if text in _ON or text in _OFF:
        return text in _ON
    raise UsageError(f"{setting.place}: {setting.value[:40]!r} is neither ON nor OFF")
