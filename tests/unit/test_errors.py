"""Errors of any kind as one line for a person."""

from __future__ import annotations

import pytest

from zfstrace.errors import TraceError
from zfstune.errors import in_one_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TraceError("no", "look"), "no; look"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(13, "Permission denied", "/a\x1bb"), "/a?b: Permission denied"),
        (OSError("odd"), "OSError: odd"),
        (ValueError("a bug\nin two lines"), "ValueError: a bug?in two lines"),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_an_error_is_one_line(error: Exception, line: str) -> None:
    assert in_one_line(error) == line
