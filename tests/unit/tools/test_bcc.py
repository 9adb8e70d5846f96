"""The bcc tools are one file each, so that one can be copied: what they share must stay equal."""

from __future__ import annotations

import ast
import re

from support.paths import ROOT

TOOLS = ("zildist", "zilslower")


def source(tool: str) -> str:
    return (ROOT / f"tracers/bcc/{tool}.py").read_text(encoding="utf-8")


def parts(tool: str) -> dict[str, str]:
    """Functions and classes by name, with NAME in place of the tool's name."""
    text = source(tool)
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


def test_the_histogram_has_room_for_every_slot_of_every_stage() -> None:
    """A histogram with such a key is a hash table of 64 entries unless it names its size (bcc's
    helpers.h); a slot that finds no room is not counted."""
    text = source("zildist")
    size = re.search(r"BPF_HISTOGRAM\(dist, struct slot, (\d+)\)", text)
    stages = re.search(r"^STAGES = \((.*?)^\)", text, re.DOTALL | re.MULTILINE)
    assert size
    assert stages
    assert int(size[1]) >= 64 * stages[1].count(",")


def test_a_wait_for_a_txg_is_one_entry_of_the_histogram() -> None:
    """Two probes fire for it where txg_wait_synced() calls txg_wait_synced_flags()."""
    handler = re.search(r"^int on_txg\(.*?^}", source("zildist"), re.DOTALL | re.MULTILINE)
    assert handler
    assert "op->stage != TXG" in handler[0]
