"""Takes the names out of an incident: the same name gets the same word everywhere.

Words are made with a key that nobody keeps, so that they cannot be guessed from lists of names.
What is a name is data (fields.py): a field that is not known is dropped, never let through.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable
from typing import Any

from zfstrace.types import Json
from zfstune.incident import fields
from zfstune.incident.kinds import Refused
from zfstune.incident.reader import taken

_DIGITS = 10
# Names that zfstune gives to what has none.
_OURS = re.compile(r"<others>|<unknown>|<objset 0x[0-9a-f]{1,16}>|<device [0-9]+:[0-9]+>|")
# What in the lines of `zpool status` is no name. A longer number is the guid of a missing disk.
_STRUCTURE = re.compile(
    r"(mirror|raidz[123]?|draid[0-9a-z:]*|spare|replacing|logs?|cache|special|dedup|spares)"
    r"(-[0-9]+)*"
    r"|NAME|STATE|READ|WRITE|CKSUM|ONLINE|DEGRADED|FAULTED|OFFLINE|UNAVAIL|REMOVED|AVAIL|INUSE"
    r"|SUSPENDED|[0-9]{1,12}(\.[0-9]+)?[KMGTPE]?"
)
# Parameters that tell hosts apart.
_IDENTIFYING = ("spl_hostid", "spl_hostid_path")
_MOST_KNOWN = 100_000

Judged = Callable[[Json], Json]


class Anonymiser:
    """The words of one file. A name in a text is found only if it is known by then: learn() of all
    records, before header() and record().

    judged, if given, makes the texts of a diagnosis again from its measurements. Without it the
    known names in them are replaced, and with them words that happen to be a name.
    """

    def __init__(self, key: bytes | None = None, judged: Judged | None = None) -> None:
        self._key = os.urandom(32) if key is None else key
        self._judged = judged
        self._known: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn(self, given: Json) -> None:
        """Remembers the names in a header or a record, as a reader gives them."""
        kind = fields.RECORDS[given["type"]] if "type" in given else fields.HEADER
        kind.renamed(given, self._named)

    def header(self, header: Json) -> Json:
        """The header without names. Raises Refused."""
        found = fields.HEADER.taken(header)
        values = found["parameters"] or {}
        found["parameters"] = {n: one for n, one in values.items() if n not in _IDENTIFYING}
        made: Json = self._renamed(fields.HEADER, found)
        return {**made, "anonymised": True}

    def record(self, record: Json) -> Json | None:
        """A record without names; None for one that the reader would refuse."""
        try:
            found = taken(record)
        except Refused:
            return None
        name = found["type"]
        if name == fields.END_TYPE:
            return found
        made: Json = {
            "schema": fields.SCHEMA,
            "type": name,
            **self._renamed(fields.RECORDS[name], found),
        }
        if name == "diagnosis" and self._judged:
            again = self._judged(made["measurements"])
            made |= {part: again[part] for part in ("summary", "causes", "not_judged")}
        return made

    def _renamed(self, kind: Any, value: Json) -> Json:
        # first the names, so that the texts can be searched for all of them
        kind.renamed(value, self._named)
        made: Json = kind.renamed(value, self._replaced)
        return made

    def _named(self, of: str, name: Any) -> Any:
        return name if of in (fields.WORDS, fields.LAYOUT) else self._word(of, name)

    def _replaced(self, of: str, name: Any) -> Any:
        if of == fields.WORDS:
            return self._text(name)
        if of == fields.LAYOUT:
            return self._layout(name)
        return self._word(of, name)

    def _word(self, of: str, name: Any) -> Any:
        if of == fields.GUID:
            return int(self._digest(of, str(name))[:16], 16) >> 1
        if _OURS.fullmatch(name):
            return name
        if of == fields.PROCESS:
            program, _, number = name.rpartition(" ")
            return f"{self._word(fields.PROGRAM, program)} {number}".strip()
        if of == fields.DATASET:
            pool, *below = re.split(r"([/@])", name)
            parts = [
                part if part in ("/", "@") else self._made(fields.DATASET, part) for part in below
            ]
            return self._keep(name, "".join([self._word(fields.POOL, pool), *parts]))
        return self._keep(name, self._made(of, name))

    def _made(self, of: str, name: str) -> str:
        return f"{of}-{self._digest(of, name)[:_DIGITS]}" if name else ""

    def _digest(self, of: str, name: str) -> str:
        text = f"{of}\0{name}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()

    def _keep(self, name: str, word: str) -> str:
        if name and name not in self._known and len(self._known) < _MOST_KNOWN:
            self._known[name] = word
            self._pattern = None
        return self._known.get(name, word)

    def _text(self, text: str) -> str:
        """A text with the names that are known so far replaced, the longest first."""
        if not self._known:
            return text
        if self._pattern is None:
            names = sorted(map(re.escape, self._known), key=len, reverse=True)
            self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)")
        return self._pattern.sub(lambda match: self._known[match[0]], text)

    def _layout(self, line: str) -> str:
        def word(match: re.Match[str]) -> str:
            name = match[0]
            if _STRUCTURE.fullmatch(name):
                return name
            return self._known.get(name) or str(self._word(fields.VDEV, name))

        return re.sub(r"\S+", word, line)
