"""Counting the instructions that an emulated guest executes; see instructions.c."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from .errors import LabError
from .process import find_program
from .qemu import STABLE_MAJOR, Qemu

SOURCE = Path(__file__).with_name("instructions.c")


def arguments(qemu: Qemu, into: Path, files: ExitStack) -> list[str]:
    """QEMU's arguments for a machine whose time passes with its instructions, one nanosecond for
    each, and whose counts are left in `into`: `marks` (lines of a mark's number and the
    instructions since the one before) and `blocks` (number, address of the code, instructions, how
    often it ran, address of what it ends by calling or 0). `files` keeps the plugin while QEMU
    needs it. Raises LabError if it cannot be compiled.
    """
    if qemu.version[0] < STABLE_MAJOR:
        what = f"QEMU {qemu.shown} cannot count instructions"
        raise LabError(what, f"run scripts/bootstrap for QEMU {STABLE_MAJOR} or newer")
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"--instructions {into}: {error.strerror}") from None
    plugin = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="zfslab-")), "plugin.so")
    compile_plugin(plugin)
    wanted = f"marks={_quoted(into / 'marks')},blocks={_quoted(into / 'blocks')}"
    return ["-icount", "shift=0,sleep=on", "-plugin", f"file={plugin},{wanted}"]


def compile_plugin(to: Path) -> None:
    """Compiles instructions.c. Raises LabError."""
    compiler = find_program("cc")
    if compiler is None:
        raise LabError("cc not found, to compile the counter", "run scripts/bootstrap")
    flags = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
    done = subprocess.run(
        [compiler, *flags, str(SOURCE), "-o", str(to)],
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    if done.returncode:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise LabError(f"the counter cannot be compiled: {first}")


def _quoted(path: Path) -> str:
    """`path` inside one of QEMU's comma separated options."""
    return str(path).replace(",", ",,")
