"""Names of kernel addresses, from /proc/kallsyms."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path

from zfstrace.stacks import UNKNOWN

_BOUNDS = (b"_text_start", b"_text_end")


class Symbols:
    """The symbols of a kernel, from the text of its kallsyms, one per line:
    ``address type name[\\t[module]]``."""

    def __init__(self, text: bytes) -> None:
        # Addresses have a fixed width, so lines sort by address. There are some 200,000 lines: do
        # no work per line.
        self._lines = text.split(b"\n")
        self._lines.sort()

    def name(self, address: int) -> str:
        """``name [module]``, ``name`` in the kernel itself, ``[unknown]`` below the first symbol.

        If an address has several names, the first is taken: global before local, functions before
        section bounds.
        """
        last = bisect_right(self._lines, b"%016x\xff" % address) - 1
        if last < 0 or not self._lines[last]:
            return UNKNOWN
        first = bisect_left(self._lines, self._lines[last][:16])
        same = self._lines[first : last + 1]
        line = next((one for one in same if not one.endswith(_BOUNDS)), same[0])
        return line[19:].decode(errors="replace").replace("\t", " ")


def hidden(path: Path) -> bool:
    """Whether the kernel shows zeros instead of addresses (kernel.kptr_restrict)."""
    with path.open("rb") as file:
        first = file.read(1 << 16).split(b"\n")
    return all(not line.strip(b"0") or line.startswith(b"0" * 16) for line in first[:-1])
