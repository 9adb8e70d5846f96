"""Properties of pools, vdevs and datasets, as `zpool get -Hp` and `zfs get -Hp` print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zfstrace.kstat.parse import is_number

# The columns that both commands are asked for.
COLUMNS = "name,property,value,source"


@dataclass(frozen=True)
class Property:
    """source is "local", "default", "inherited from tank", "received", "temporary" or "-"."""

    value: int | str
    source: str


Properties = dict[str, Property]


def parse(text: str) -> dict[str, Properties]:
    """The properties by name of the object, in the order of the output. Skips malformed lines, and
    user properties, whose values may have tabs and line breaks."""
    found: dict[str, Properties] = {}
    for line in text.split("\n"):
        words = line.split("\t")
        if len(words) != 4 or not words[0] or not words[1] or ":" in words[1]:
            continue
        name, key, value, source = words
        # the first wins: a line in the value of a user property may look like a property
        found.setdefault(name, {}).setdefault(key, Property(_value(value), source))
    return found


def _value(text: str) -> int | str:
    """Older versions print percents with a unit even with -p."""
    plain = text.removesuffix("%")
    return int(plain) if is_number(plain) else text


def origin(name: str, source: str) -> str:
    """The dataset that a value was inherited from, by its source; the dataset itself otherwise."""
    return source.removeprefix("inherited from ") if source.startswith("inherited") else name


def command(tool: str, *words: str) -> Sequence[str]:
    """The command line of `zpool get` or `zfs get`; words are properties and names."""
    return [tool, "get", "-H", "-p", "-o", COLUMNS, *words]
