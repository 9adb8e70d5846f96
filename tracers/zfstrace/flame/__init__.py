"""Flame graphs: stacks in and out as folded text, SVG, speedscope JSON and pprof."""

from zfstrace.flame.errors import FlameError, WriteFailed
from zfstrace.flame.files import check_output, read, write

__all__ = ["FlameError", "WriteFailed", "check_output", "read", "write"]
