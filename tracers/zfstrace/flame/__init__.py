"""Flame graphs: reads and writes stacks as folded text, SVG, speedscope JSON and pprof."""

from zfstrace.flame.errors import FlameError, WriteFailed
from zfstrace.flame.output import check_output, save, write
from zfstrace.flame.source import Source, read

__all__ = ["FlameError", "Source", "WriteFailed", "check_output", "read", "save", "write"]
