"""Small sums over names, as the catalogue of parameters has them: `min(memory // 4, 64M)`."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping

_SUFFIX = re.compile(r"\b([0-9]+)([KMGTE])\b")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "E": 1 << 60}
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
Compiled = Callable[[Mapping[str, int]], int]
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


class Unknown(Exception):
    """A name of the expression has no value here. args[0] is the name."""


def evaluate(text: str, values: Mapping[str, int]) -> int:
    """The value of a sum of integers and names: + - * // min() max(), sizes like 64M.
    Raises Unknown, and ValueError for anything else than that."""
    return compiled(text)(values)


@functools.cache
def names(text: str) -> tuple[str, ...]:
    """The names in an expression, in order, each once."""
    found = [
        (node.col_offset, node.id)
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS
    ]
    return tuple(dict.fromkeys(name for _, name in sorted(found)))


def split(text: str) -> tuple[str, str, int]:
    """The two sides of `left <= right` or `left < right`, and what must be between them
    at least (0 or 1). Raises ValueError."""
    match = re.fullmatch(r"([^<]+)<(=?)([^<=]+)", text)
    if not match:
        raise ValueError(f"{text!r} is not of the form `left <= right`")
    return match[1].strip(), match[3].strip(), 0 if match[2] else 1


@functools.cache
def parse(text: str) -> ast.expr:
    """Sizes are numbers then. Raises ValueError."""
    plain = _SUFFIX.sub(lambda match: str(int(match[1]) * _UNITS[match[2]]), text)
    try:
        return ast.parse(plain, mode="eval").body
    except SyntaxError:
        raise ValueError(f"{text!r} is not an expression") from None


@functools.cache
def compiled(text: str) -> Compiled:
    """As evaluate(), for many evaluations: a guard judges each bound again and again."""
    return function(parse(text))


def function(node: ast.expr) -> Compiled:
    """What evaluates it. Raises ValueError, and what it returns raises Unknown."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        number = node.value
        return lambda values: number
    if isinstance(node, ast.Name):
        return functools.partial(_named, node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        sum_of, left, right = _OPERATORS[type(node.op)], function(node.left), function(node.right)
        return lambda values: sum_of(left(values), right(values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        least_or_most = _FUNCTIONS.get(node.func.id)
        if least_or_most and node.args:
            given = [function(argument) for argument in node.args]
            return lambda values: least_or_most(*[one(values) for one in given])
    raise ValueError(f"{ast.unparse(node)!r} is more than a sum")


def _named(name: str, values: Mapping[str, int]) -> int:
    try:
        return values[name]
    except KeyError:
        raise Unknown(name) from None
