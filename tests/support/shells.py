"""What bash, zsh and fish offer, each asked in its own way: bash by the function that it calls,
fish by its `complete -C`, zsh in a pseudo-terminal, since its completion needs a line editor."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from support.paths import ROOT

CAPTURE = ROOT / "tests/support/zsh_capture.zsh"
LIMIT_S = 60

_BASH = (
    'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
    'COMPREPLY=(); _zfstune; ((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"'
)
_FISH = 'source $argv[1]; complete -C "$argv[2..-1]"'


def bash(script: Path, *words: str) -> list[str]:
    """When the cursor is at the end of the last word; = is a word."""
    return _lines("bash", "-c", _BASH, "bash", str(script), "zfstune", *words)


def fish(script: Path, *words: str) -> list[str]:
    """The same, without the descriptions."""
    found = _lines("fish", "--no-config", "-c", _FISH, str(script), "zfstune", *words)
    return [line.partition("\t")[0] for line in found]


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert done.stderr == ""
    return done.stdout.splitlines()


class Zsh:
    """An interactive zsh; directory has _zfstune, and is written to."""

    def __init__(self, directory: Path) -> None:
        self._found = directory / "found"
        self._found.write_text("")
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            ours = {"COMPLETION_DIR": str(directory), "CAPTURED": str(self._found), "TERM": "dumb"}
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, **ours})
        self._type(f"source {CAPTURE}\r")

    def offered(self, *words: str) -> list[str]:
        """When the cursor is at the end of the last word."""
        return self._type("\x15" + " ".join(("zfstune", *words)) + "\t")

    def close(self) -> None:
        os.close(self._terminal)
        os.waitpid(self.pid, 0)

    def _type(self, text: str) -> list[str]:
        """The lines of the file, when they are complete."""
        self._found.write_text("")
        os.write(self._terminal, text.encode())
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if select.select([self._terminal], [], [], 0.02)[0]:
                os.read(self._terminal, 65536)  # it must not block
            lines = self._found.read_text().splitlines()
            if lines[-1:] == ["."]:
                return lines[:-1]
        raise AssertionError(f"zsh does not answer {text!r}")


Offers = Callable[..., list[str]]
