"""speedscope's own application and its published schema take the file."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flame.browser import Browser

from zfstrace.stacks import Stacks

KINDS = {"object": (dict,), "array": (list,), "string": (str,), "number": (int, float)}


def check(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> None:
    """The part of JSON Schema that speedscope's uses."""
    if "$ref" in schema:
        check(value, root["definitions"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        assert any(matches(value, choice, root) for choice in schema["anyOf"]), value
    if "enum" in schema:
        assert value in schema["enum"]
    if schema.get("type") in KINDS:
        assert isinstance(value, KINDS[schema["type"]]), (value, schema)
    if isinstance(value, dict):
        assert set(schema.get("required", [])) <= set(value), schema["required"]
        for name, part in schema.get("properties", {}).items():
            if name in value:
                check(value[name], part, root)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            check(item, schema["items"], root)


def matches(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    try:
        check(value, schema, root)
    except AssertionError:
        return False
    return True


def test_the_file_follows_the_published_schema(
    speedscope_app: Path, written: Callable[[str], Path]
) -> None:
    schema = json.loads((speedscope_app / "file-format-schema.json").read_text())
    file = json.loads(written("a.speedscope.json").read_text())
    check(file, schema, schema)
    # that the check checks
    del file["profiles"][0]["endValue"]
    assert not matches(file, schema, schema)


def test_the_application_shows_names_and_weights(
    chromium: Browser, speedscope_app: Path, written: Callable[[str], Path], sample: Stacks
) -> None:
    path = written("a.speedscope.json")
    # as speedscope's command hands over a file
    content = base64.b64encode(path.read_bytes()).decode()
    script = path.with_name("profile.js")
    script.write_text(f"speedscope.loadFileFromBase64({path.name!r}, {content!r})")
    index = (speedscope_app / "index.html").as_uri()
    chromium.open(f"{index}#localProfilePath={script}&view=sandwich")
    chromium.wait("document.querySelectorAll('table tr').length > 5")
    rows = chromium.js("[...document.querySelectorAll('table tr')].map((r) => r.innerText)")
    table = {row.split("\t")[-1].strip(): row for row in rows}
    # all of it in the leaf, in the unit of the file
    assert "100%" in table["__schedule"]
    assert "18.01s" in table["__schedule"], table["__schedule"]
    assert sample.title in chromium.js("document.body.innerText")
