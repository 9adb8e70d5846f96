"""The bcc tools are one file each, so that one can be copied: what they share must stay equal."""

from __future__ import annotations

import ast

from support.paths import ROOT

TOOLS = ("zildist", "zilslower")


def parts(tool: str) -> dict[str, str]:
    """Functions and classes by name, with NAME in place of the tool's name."""
    text = (ROOT / f"tracers/bcc/{tool}.py").read_text(encoding="utf-8")
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, kinds)}
    return {
        name: (ast.get_source_segment(text, node) or "").replace(tool, "NAME")
        for name, node in found.items()
    }


def test_functions_that_both_have_are_equal() -> None:
    first, second = map(parts, TOOLS)
    shared = (first.keys() & second.keys()) - {"main"}
    assert shared >= {"fail", "load_bcc", "compiled", "lost_commits"}
    assert {name: first[name] for name in shared} == {name: second[name] for name in shared}
