"""Raw stacks, as printed by dtrace and bpftrace: detects the format; the common part of both.

Both print a stack leaf first, one frame per line, with its keys before or after it, then its
weight.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from zfstrace.flame.errors import FlameError
from zfstrace.recording import NO_STACK
from zfstrace.stacks import UNKNOWN, fold

# A line that only one format has: a frame, the beginning of a map's key, a folded stack.
_DTRACE = re.compile(r"(?!.*\s\d+\s*$)(\s*[^\s`;@]+`[^\s;][^;]*|\s+0x[0-9a-f]{3,16}\s*)")
_BPFTRACE = re.compile(r"@\w*\[(.*,)?\s*")
_FOLDED = re.compile(r"[^\s@].*;.*\s[0-9.]+\s*")

_OFFSET = re.compile(r"\+(0x[0-9a-f]+|[0-9]+)$")
_ADDRESS = re.compile(r"0x[0-9a-f]+|[0-9]|[0-9a-f]{8,16}")
# The kernel itself, as a module: FreeBSD, Linux.
_KERNELS = ("kernel", "vmlinux")
# The first function of a kernel stack, and addresses in the upper half.
_ENTRY = re.compile(
    r"(entry_|asm_|ret_from_fork|kthread|el[01]\w*_|secondary_startup|start_secondary|"
    r"fork_exit|fork_trampoline|amd64_syscall|fast_syscall_common|do_el0|0xffff|ffff)\w*"
)


@dataclass
class Raw:
    """The stacks of a text.

    unit (``ns``, ``us``, ``ms``, ``samples``) and kind are None unless the text states them.
    left_out counts what is not a stack with a weight, first_out is the line of the first one.
    repeated counts stacks that occurred before with the same keys.
    """

    counts: dict[str, int] = field(default_factory=dict)
    unit: str | None = None
    kind: str | None = None
    left_out: int = 0
    first_out: int = 0
    repeated: int = 0
    notes: list[str] = field(default_factory=list)
    _seen: set[tuple[str, ...]] = field(default_factory=set)

    def leave_out(self, line: int) -> None:
        """Counts a line that is not used."""
        self.left_out += 1
        self.first_out = self.first_out or line

    def note_keys(self, *keys: str) -> None:
        """Counts a stack as repeated if the same text occurred before."""
        self.repeated += keys in self._seen
        self._seen.add(keys)


def form(lines: Iterable[str]) -> tuple[str, Iterator[str]]:
    """``dtrace``, ``bpftrace`` or ``folded``, and all lines. Reads ahead only as far as needed;
    text without a sign of any format, or binary data, is folded."""
    found, rest = [], iter(lines)
    for line in rest:
        found.append(line)
        if _FOLDED.fullmatch(line) or "\0" in line:
            break
        for name, sign in (("bpftrace", _BPFTRACE), ("dtrace", _DTRACE)):
            if sign.fullmatch(line):
                return name, chain(found, rest)
    return "folded", chain(found, rest)


def stack(keys: Sequence[str], groups: Sequence[Sequence[str]]) -> str:
    """The folded form: the keys, then the frames of all groups, root first. A group is a stack as
    printed, leaf first. Of several, a kernel stack comes last, otherwise the first one."""
    frames: list[str] = []
    root_first = list(reversed(groups))
    root_first.sort(key=_in_kernel)
    for group in root_first:
        frames += [name(frame) for frame in reversed(group)]
    return fold([*keys, *(frames or [NO_STACK])])


@lru_cache(maxsize=8192)
def name(frame: str) -> str:
    """``func [module]`` for dtrace's module`func+offset, ``func`` for the kernel itself or without
    a module, ``[unknown]`` for an address."""
    module, tick, function = frame.rpartition("`")
    function = _OFFSET.sub("", function.strip())
    if not function or _ADDRESS.fullmatch(function):
        function = UNKNOWN
    module = module.removesuffix(".ko")
    return function if not tick or module in _KERNELS else f"{function} [{module}]"


def is_address(frame: str) -> bool:
    """Whether a frame is only an address."""
    return bool(_ADDRESS.fullmatch(frame))


def error(source: str, line: int, what: str, hint: str) -> FlameError:
    """The error for a line of a text."""
    return FlameError(f"{source}, line {line}: {what}", hint)


def _in_kernel(group: Sequence[str]) -> bool:
    if any(frame.partition("`")[0] in _KERNELS for frame in group if "`" in frame):
        return True
    return bool(group and _ENTRY.match(group[-1]))
