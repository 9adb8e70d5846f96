"""Conditions over named facts, as the rules of advice.toml have them: comparisons of sums and of
words, joined by `and`, `or`, `not`; sums are those of language.py."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zfstune.rules import language
from zfstune.rules.language import Unknown

Fact = int | str

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


def holds(text: str, facts: Mapping[str, Fact]) -> bool:
    """Raises Unknown when it depends on a fact that is not known: `a and b` is false, and
    `a or b` is true, when one of the two is. Raises ValueError for what is no condition."""
    return _holds(language.parse(text), facts)


def names(text: str) -> tuple[str, ...]:
    """The facts in a condition, in order, each once."""
    return language.names(text)


def _holds(node: ast.expr, facts: Mapping[str, Fact]) -> bool:
    if isinstance(node, ast.BoolOp):
        return _joined(node.values, facts, ends=isinstance(node.op, ast.Or))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _holds(node.operand, facts)
    if isinstance(node, ast.Compare):
        sides = [_side(side, facts) for side in (node.left, *node.comparators)]
        pairs = zip(node.ops, sides, sides[1:], strict=False)
        return all(_compare(op, left, right) for op, left, right in pairs)
    return bool(_side(node, facts))


def _joined(parts: Sequence[ast.expr], facts: Mapping[str, Fact], *, ends: bool) -> bool:
    """Of `or` when ends is true, else of `and`: the value that decides alone."""
    unknown = None
    for part in parts:
        try:
            if _holds(part, facts) == ends:
                return ends
        except Unknown as error:
            unknown = unknown or error
    if unknown:
        raise unknown
    return not ends


def _side(node: ast.expr, facts: Mapping[str, Fact]) -> Fact | tuple[Fact, ...]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(ast.literal_eval(node))
    if isinstance(node, ast.Name) and node.id in facts:
        return facts[node.id]
    # only its own: there are hundreds of facts, of thousands of datasets
    names = (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    numbers = {name: fact for name in names if isinstance(fact := facts.get(name), int)}
    return language.function(node)(numbers)


def _compare(op: ast.cmpop, left: object, right: object) -> bool:
    """A number and a word ("none") are different, and neither is less."""
    try:
        return _COMPARE[type(op)](left, right)
    except TypeError:
        return False
    except KeyError:
        raise ValueError(f"{type(op).__name__} is no comparison of a condition") from None
