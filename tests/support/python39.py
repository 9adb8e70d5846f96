"""What tests, which are for Python 3.11, need and 3.9 lacks: a plugin of pytest for
`make test-python39`. What is tested gets none of it."""

from __future__ import annotations

import builtins
import datetime
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TESTS = str(Path(__file__).resolve().parents[1])
_zip = zip


def pairwise(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """itertools.pairwise() of Python 3.10."""
    first, second = itertools.tee(items)
    next(second, None)
    return _zip(first, second)


class Zip(_zip):  # type: ignore[type-arg]
    """zip() of Python 3.10, for tests: for others it is that of 3.9, which knows no `strict`."""

    def __new__(cls, *rows: Iterable[Any], **options: bool) -> Any:
        if options and sys._getframe(1).f_code.co_filename.startswith(TESTS):
            rows = tuple(map(list, rows))
            if options["strict"] and len({len(row) for row in rows if isinstance(row, list)}) > 1:
                raise ValueError("zip(): arguments of different lengths")
            options = {}
        return _zip(*rows, **options)


datetime.UTC = datetime.timezone.utc  # noqa: UP017
itertools.pairwise = pairwise  # type: ignore[assignment,misc]
builtins.zip = Zip  # type: ignore[misc]
