"""The console log of a guest: did its kernel oops, and what did it print last?"""

from __future__ import annotations

import re

TAIL_LINES = 40

# The first line that matches is the cause; what follows it are consequences.
_FATAL = (
    (re.compile(r"zfslab: (.*)"), "the guest did not start"),
    (re.compile(r"(VERIFY.*failed.*|PANIC at .*)"), "ZFS assertion failed in the guest"),
    (
        re.compile(
            r"(BUG: (?:kernel NULL|unable to handle|stack guard).*|kernel BUG at .*|"
            r"general protection fault.*|Oops: .*|invalid opcode: .*|int3: .*|"
            r"traps: .* trap .*PANIC.*|stack segment: .*|double fault: .*)"
        ),
        "guest kernel oops",
    ),
    (re.compile(r"Kernel panic - not syncing: (.*)"), "guest kernel panic"),
    (re.compile(r"(end Kernel panic.*)"), "guest kernel panic"),
    # FreeBSD
    (re.compile(r"panic: (VERIFY.*|solaris assert.*)"), "ZFS assertion failed in the guest"),
    (re.compile(r"panic: (.*)"), "guest kernel panic"),
    (re.compile(r"(Fatal (?:double fault|trap \d+: .*))"), "guest kernel panic"),
)
_TIMESTAMP = re.compile(r"^\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")


def clean(raw: bytes) -> list[str]:
    """The non-empty lines of a console log, without carriage returns and terminal control."""
    text = raw.decode(errors="replace")
    text = re.sub(r"\x1b(?:\[[0-9;?]*[A-Za-z]|c)", "", text)
    text = re.sub(r"[^\t\n\x20-\x7e\u00a0-\U0010ffff]", "", text)
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def diagnose(lines: list[str]) -> str | None:
    """What killed the guest, in one line; None if the log does not show it."""
    for line in lines:
        message = _TIMESTAMP.sub("", line)
        for pattern, what in _FATAL:
            match = pattern.match(message)
            if match is not None:
                return f"{what}: {match[1]}"
    return None


def own_breakpoint(lines: list[str]) -> bool:
    """Whether the kernel hit a breakpoint of its own. It patches its code with these, and an
    emulated CPU may still execute one that has been removed."""
    return re.match(r"guest kernel oops: (?:Oops: )?int3\b", diagnose(lines) or "") is not None


def tail(lines: list[str]) -> list[str]:
    """The end of the log, or the whole first oops, which may be longer."""
    start = max(0, len(lines) - TAIL_LINES)
    for number, line in enumerate(lines):
        if diagnose([line]) is not None:
            start = max(0, number - 5)
            break
    return lines[start : start + 3 * TAIL_LINES]
