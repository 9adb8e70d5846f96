"""The language of the rule files parameters.toml, causes.toml, signs.toml and advice.toml.

A sum is made of whole numbers, sizes (64M is 64 << 20; also K, G, T, E), names of facts, the
operators + - * // and the functions min() and max().

A condition compares sums or words with < <= > >= == !=, also in chains (80 <= x < 90), or tests
a word with in ('one', 'another') or not in. Conditions are joined with and, or, not. A sum alone
holds unless it is 0, a word unless it is empty. A number never equals a word, and neither is less
than the other.

An unknown fact has no entry; it is never 0. Whatever depends on it raises Unknown, unless the rest
decides: `a and b` is false if either is false, `a or b` is true if either is true.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

Fact = Union[int, str]
Facts = Mapping[str, Fact]

_Sum = Callable[[Facts], int]
_Side = Callable[[Facts], Union[Fact, tuple[Fact, ...]]]
_Condition = Callable[[Facts], bool]

_SUFFIX = re.compile(r"\b([0-9]+)([KMGTE])\b")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "E": 1 << 60}
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


class Unknown(Exception):
    """A needed fact is not known; args[0] is its name."""


def evaluate(text: str, facts: Facts) -> int:
    """The value of a sum. Raises Unknown, and ValueError if the text is not a sum."""
    return _sum_of(text)(facts)


def holds(text: str, facts: Facts) -> bool:
    """Whether a condition holds. Raises Unknown, and ValueError if the text is not a condition."""
    return _condition_of(text)(facts)


@functools.cache
def names(text: str) -> tuple[str, ...]:
    """The facts in a sum or a condition, in order, each once. Raises ValueError."""
    found = [
        (node.col_offset, node.id)
        for node in ast.walk(_parsed(text))
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS
    ]
    return tuple(dict.fromkeys(name for _, name in sorted(found)))


@functools.cache
def sides(text: str) -> tuple[str, str, int]:
    """The two sums of a condition `left <= right` or `left < right`, and the least difference
    right - left (0 or 1). Raises ValueError for other conditions."""
    match = re.fullmatch(r"([^<>=]+)<(=?)([^<>=]+)", text)
    if not match:
        raise ValueError(f"{text!r} is not of the form `left <= right`")
    return match[1].strip(), match[3].strip(), 0 if match[2] else 1


# Cached: the guard evaluates the same few texts again and again.


@functools.cache
def _sum_of(text: str) -> _Sum:
    return _sum(_parsed(text))


@functools.cache
def _condition_of(text: str) -> _Condition:
    return _condition(_parsed(text))


@functools.cache
def _parsed(text: str) -> ast.expr:
    """The syntax tree, with sizes replaced by numbers."""
    plain = _SUFFIX.sub(lambda match: str(int(match[1]) * _UNITS[match[2]]), text)
    try:
        return ast.parse(plain, mode="eval").body
    except SyntaxError:
        raise ValueError(f"{text!r} is neither a sum nor a condition") from None


def _condition(node: ast.expr) -> _Condition:
    if isinstance(node, ast.BoolOp):
        parts = [_condition(part) for part in node.values]
        return functools.partial(_joined, parts, isinstance(node.op, ast.Or))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        negated = _condition(node.operand)
        return lambda facts: not negated(facts)
    if isinstance(node, ast.Compare):
        return _comparison(node)
    side = _side(node)
    return lambda facts: bool(side(facts))


def _joined(parts: Sequence[_Condition], decides: bool, facts: Facts) -> bool:
    """The parts joined by `or` if decides is true, else by `and`: a single part with the value
    decides settles it, even if others are unknown."""
    unknown = None
    for part in parts:
        try:
            if part(facts) == decides:
                return decides
        except Unknown as error:
            unknown = unknown or error
    if unknown:
        raise unknown
    return not decides


def _comparison(node: ast.Compare) -> _Condition:
    """A chain is the comparisons of neighbours, joined by `and`."""
    found = [_side(side) for side in (node.left, *node.comparators)]
    pairs = [_pair(*pair) for pair in zip(node.ops, found, found[1:])]
    return pairs[0] if len(pairs) == 1 else functools.partial(_joined, pairs, False)


def _pair(op: ast.cmpop, left: _Side, right: _Side) -> _Condition:
    compare = _COMPARE.get(type(op))
    if compare is None:
        raise ValueError(f"{type(op).__name__} is not allowed in a condition")

    def compared(facts: Facts) -> bool:
        try:
            return compare(left(facts), right(facts))
        except TypeError:  # a number and a word
            return False

    return compared


def _side(node: ast.expr) -> _Side:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        word = node.value
        return lambda facts: word
    if isinstance(node, ast.Tuple):
        words = tuple(ast.literal_eval(node))
        return lambda facts: words
    if isinstance(node, ast.Name):
        return functools.partial(_fact, node.id)
    return _sum(node)


def _sum(node: ast.expr) -> _Sum:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        number = node.value
        return lambda facts: number
    if isinstance(node, ast.Name):
        return functools.partial(_number, node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        combine, left, right = _OPERATORS[type(node.op)], _sum(node.left), _sum(node.right)
        return lambda facts: combine(left(facts), right(facts))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        least_or_most = _FUNCTIONS.get(node.func.id)
        if least_or_most and node.args:
            given = [_sum(argument) for argument in node.args]
            return lambda facts: least_or_most(*[one(facts) for one in given])
    raise ValueError(f"{ast.unparse(node)!r} is not a sum")


def _fact(name: str, facts: Facts) -> Fact:
    try:
        return facts[name]
    except KeyError:
        raise Unknown(name) from None


def _number(name: str, facts: Facts) -> int:
    """A fact that is a word is unknown as a number."""
    fact = facts.get(name)
    if isinstance(fact, int):
        return fact
    raise Unknown(name)
