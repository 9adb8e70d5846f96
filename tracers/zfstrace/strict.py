"""zip() that refuses columns of different lengths, for Python 3.9, whose own has no strict=."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, TypeVar, overload

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")
_NONE: Any = object()


@overload
def strict_zip(a: Iterable[_A], b: Iterable[_B], /) -> Iterator[tuple[_A, _B]]: ...
@overload
def strict_zip(
    a: Iterable[_A], b: Iterable[_B], c: Iterable[_C], /
) -> Iterator[tuple[_A, _B, _C]]: ...
def strict_zip(*columns: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """zip(*columns, strict=True). Raises ValueError after the end of the shortest."""
    for row in zip_longest(*columns, fillvalue=_NONE):
        if any(one is _NONE for one in row):
            raise ValueError("columns of different lengths")
        yield row
