"""The role for Ansible: its files load, and what an inventory or -e gives as a string is no truth
by itself: `-e zfstune_revert=false` is the string "false"."""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT

ROLE = ROOT / "platform/ansible/roles/zfstune"
FILES = sorted(ROLE.rglob("*.yml"))
# Keys of tasks that are no module
KEYWORDS = {
    *("name", "when", "register", "notify", "loop", "tags", "delegate_to", "become"),
    *("changed_when", "environment"),
}

Task = dict[str, Any]


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tasks() -> Iterator[Task]:
    for folder in ("tasks", "handlers"):
        for path in sorted((ROLE / folder).glob("*.yml")):
            yield from load(path)


def conditions(task: Task) -> Iterator[str]:
    """What is asked of a task, and of an assertion."""
    asked = [task.get("when"), task.get("ansible.builtin.assert", {}).get("that")]
    for one in asked:
        yield from [one] if isinstance(one, str) else one or []


def booleans() -> set[str]:
    options = load(ROLE / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return {name for name, option in options.items() if option["type"] == "bool"}


def unfiltered(text: str, names: set[str]) -> list[str]:
    """The names that are not followed by `| bool`."""
    found = re.finditer(rf"\b({'|'.join(sorted(names))})\b(?!\s*\|\s*bool\b)", text)
    return [match[1] for match in found]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROLE)))
def test_each_file_loads(path: Path) -> None:
    assert load(path)
    assert path.read_text().startswith("---\n")


def test_an_unfiltered_boolean_is_found() -> None:
    assert unfiltered("not a | bool and b|bool and a_b", {"a", "b"}) == []
    assert unfiltered("not a and b | boolean", {"a", "b"}) == ["a", "b"]


def test_each_boolean_is_filtered() -> None:
    assert booleans() == {"zfstune_exporter", "zfstune_exporter_kprobes", "zfstune_revert"}
    asked = [text for task in tasks() for text in conditions(task)]
    assert len(asked) > 10
    templates = [path.read_text() for path in (ROLE / "templates").iterdir()]
    for text in (*asked, *templates):
        assert unfiltered(text, booleans()) == [], text


def test_variables_are_those_that_are_described() -> None:
    defaults = set(load(ROLE / "defaults/main.yml"))
    options = load(ROLE / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    rows = re.findall(r"^\| `(\w+)` \|", (ROLE / "README.md").read_text(), re.MULTILINE)
    assert defaults == set(options) == set(rows)


def test_defaults_are_those_of_the_unit() -> None:
    found = load(ROLE / "defaults/main.yml")
    units = Path(found["zfstune_units"].replace("{{ role_path }}", str(ROLE)))
    unit = units / f"{found['zfstune_exporter_service']}.service"
    text = unit.read_text()
    assert (found["zfstune_exporter"], found["zfstune_revert"]) == (True, False)
    (options,) = (
        task["ansible.builtin.template"]["dest"]
        for task in tasks()
        if task.get("ansible.builtin.template", {}).get("src") == "default.j2"
    )
    assert f"EnvironmentFile=-{options}\n" in text
    for name in ("default.j2", "drop_in.j2"):
        assert "ZFSTUNE_EXPORTER" in (ROLE / "templates" / name).read_text()


def test_a_copy_is_compared_where_it_arrives(tmp_path: Path) -> None:
    copies = [task["ansible.builtin.copy"] for task in tasks() if "ansible.builtin.copy" in task]
    sources = [one for one in copies if one["src"] == "{{ zfstune_path }}"]
    assert len(sources) == 2
    assert {one.get("validate") for one in sources} == {
        "{{ zfstune_compare if zfstune_sha256 else omit }}"
    }
    file = tmp_path / "a file"
    file.write_bytes(b"whole")
    for content, status in ((b"whole", 0), (b"another", 1)):
        checksum = hashlib.sha256(content).hexdigest()
        compare = load(ROLE / "vars/main.yml")["zfstune_compare"]
        command = shlex.split(compare.replace("{{ zfstune_sha256 }}", checksum))
        words = [word.replace("%s", str(file)) for word in command]
        assert subprocess.run(words, check=False, capture_output=True).returncode == status


def test_the_exporter_is_not_restarted_with_a_file_that_does_not_start() -> None:
    found = load(ROLE / "tasks/file.yml")
    assert [("notify" in task, "ansible.builtin.command" in task) for task in found] == [
        (False, False),
        (False, False),
        (True, True),
    ]


def test_modules_are_named_in_full_and_need_no_collection() -> None:
    for task in tasks():
        (module,) = set(task) - KEYWORDS
        assert module.startswith("ansible.builtin."), task["name"]
