"""`zfstune keep --format`: each form as a reader of its own takes it."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.fake_module import GIB, MIB, ModuleHost

from zfstune import cli
from zfstune.changes import args, formats
from zfstune.changes.session import set_values
from zfstune.tunables import catalogue

LEAST, MOST = "zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"
PARAMETERS = "/sys/module/zfs/parameters/"
Values = dict[str, int]


def of_modprobe(text: str) -> Values:
    """modprobe.d(5): a line each; a backslash joins lines, # begins a comment."""
    found: Values = {}
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        command, module, *options = line.split()
        assert (command, module) == ("options", "zfs")
        found |= {name: int(value) for name, _, value in (one.partition("=") for one in options)}
    return found


def of_nix(text: str) -> Values:
    """An indented string has no escapes but '' and ${, neither of which may be in it."""
    match = re.fullmatch(r"boot\.extraModprobeConfig = ''\n(.*)'';\n", text, re.DOTALL)
    assert match
    assert "''" not in match[1]
    assert "${" not in match[1]
    return of_modprobe(match[1])


def written_by(command: str) -> Values:
    """What a shell writes below PARAMETERS, each file once."""
    script = 'd=$(mktemp -d) && cd "$d" && eval "$1" && grep . *'
    there = command.replace(PARAMETERS, "./")
    assert there.count(" > ") == command.count(PARAMETERS)
    done = subprocess.run(
        ["sh", "-c", script, "sh", f"echo 0 > zz; {there}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    found = dict(line.split(":") for line in done.stdout.splitlines())
    del found["zz"]
    return {name: int(value) for name, value in found.items()}


def of_truenas(text: str) -> Values:
    words = shlex.split(text)
    assert words[:3] == ["midclt", "call", "initshutdownscript.create"]
    (given,) = words[3:]
    task = json.loads(given)
    assert (task["type"], task["when"], task["enabled"]) == ("COMMAND", "PREINIT", True)
    return written_by(task["command"])


def of_ansible(text: str) -> Values:
    (task,) = yaml.safe_load(text)
    copy = task["ansible.builtin.copy"]
    assert (copy["dest"], copy["mode"]) == ("/etc/modprobe.d/zfstune.conf", "0644")
    assert task["become"] is True
    assert copy["content"].endswith("\n")
    return of_modprobe(copy["content"])


def of_tuned(text: str) -> Values:
    """TuneD reads profiles by configparser, with = only."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    assert parser["main"]["summary"]
    found = of_modprobe(f"options zfs {parser['modules']['zfs']}\n")
    if "sysfs" in parser:
        now = {n.removeprefix(PARAMETERS): int(v) for n, v in parser["sysfs"].items()}
        assert now.items() <= found.items()
    return found


def of_sysctl(text: str) -> Values:
    """sysctl.conf(5), and loader.conf(5), whose values are in quotes."""
    linux = {oid: name for name, oid in catalogue.freebsd_names().items()}
    file, found = "", {}
    for line in text.splitlines():
        if line.startswith("# "):
            file = line[2:]
            continue
        pattern = r'([\w.]+)="(\d+)"' if "loader" in file else r"([\w.]+)=(\d+)"
        match = re.fullmatch(pattern, line)
        assert match, line
        assert file in ("/etc/sysctl.conf", "/boot/loader.conf.d/zfstune.conf")
        found[linux[match[1]]] = int(match[2])
    return found


READERS: dict[str, Callable[[str], Values]] = {
    "modprobe": of_modprobe,
    "nix": of_nix,
    "truenas": of_truenas,
    "ansible": of_ansible,
    "tuned": of_tuned,
    "sysctl": of_sysctl,
}
CHANGED = {
    "zfs_dirty_data_max": 64 * MIB,
    "zfs_txg_timeout": 10,
    "zfs_arc_max": 16 * GIB,
    "zfs_vdev_async_write_active_max_dirty_percent": 50,
}


def text_of(name: str, values: Values) -> str:
    return "".join(f"{line}\n" for line in formats.printed(name, values)[0])


def test_each_format_can_be_asked_for() -> None:
    assert tuple(formats.FORMATS) == args.FORMATS
    assert READERS.keys() == formats.FORMATS.keys()


@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_reader_of_the_form_finds_the_values_in_force(
    name: str, host: ModuleHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_values(host, CHANGED, "zfstune params set", lambda _text: None, where=host.where)
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["keep", "--format", name]) == 0
    out, err = capsys.readouterr()
    assert READERS[name](out) == CHANGED
    assert formats.FORMATS[name].where in err
    assert sorted(tmp_path.rglob("*")) == before
    assert cli.main(["keep", "zfs_txg_timeout", "--format", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert READERS[name]("".join(f"{line}\n" for line in found["lines"])) == {"zfs_txg_timeout": 10}


NAMES = st.sampled_from(sorted(catalogue.load()))


@pytest.mark.parametrize("name", set(formats.FORMATS) - {"truenas"})
@given(values=st.dictionaries(NAMES, st.integers(0, (1 << 64) - 1), min_size=1))
def test_any_values_of_the_catalogue_are_read_back(name: str, values: Values) -> None:
    lines, notes = formats.printed(name, values)
    found = READERS[name](text_of(name, values)) if lines else {}
    left_out = {note.split()[0] for note in notes if " is left out: " in note}
    assert found == {n: v for n, v in values.items() if n not in left_out}


def test_what_only_the_load_can_set_is_no_task_of_a_running_system() -> None:
    values = {"zfs_dirty_data_max_max": GIB, "zfs_dirty_data_max": 64 * MIB}
    lines, notes = formats.printed("truenas", values)
    assert of_truenas("\n".join(lines)) == {"zfs_dirty_data_max": 64 * MIB}
    assert "zfs_dirty_data_max_max is left out: it can only be set when the module is" in notes[1]
    lines, _ = formats.printed("sysctl", values)
    assert lines[2:] == [
        "# /boot/loader.conf.d/zfstune.conf",
        f'vfs.zfs.dirty_data_max_max="{GIB}"',
    ]
    profile = text_of("tuned", values)
    assert "dirty_data_max_max" not in profile.partition("[sysfs]")[2]
    assert of_tuned(profile) == values
    lines, notes = formats.printed("truenas", {"zfs_dirty_data_max_max": GIB})
    assert (lines, len(notes)) == ([], 1)


@pytest.mark.parametrize("name", ["truenas", "tuned", "sysctl"])
def test_values_set_one_by_one_are_in_the_order_of_the_guard(
    name: str, host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a pair that rises the upper one comes first, of one that falls the lower."""
    for low, high, first in ((4, 20, "max"), (1, 5, "min")):
        wanted = {LEAST: low, MOST: high}
        set_values(host, wanted, "zfstune params set", lambda _text: None, where=host.where)
        capsys.readouterr()
        assert cli.main(["keep", "--format", name]) == 0
        out = capsys.readouterr().out.rpartition("[sysfs]")[2]
        found = re.findall(r"async_write_(max|min)_active", out)
        assert found[0] == first, out


def test_format_does_not_go_with_remove(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["keep", "--remove", "--format", "nix"]) == 2
    assert "leave out one of them" in capsys.readouterr().err


def test_nothing_to_keep_is_status_1(host: ModuleHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keep", "--format", "nix"]) == 1
    assert capsys.readouterr().out == ""


def test_hazardous_values_are_refused(host: ModuleHost, capsys: pytest.CaptureFixture[str]) -> None:
    values = {LEAST: 12, MOST: 20}
    set_values(host, values, "zfstune params set", lambda _text: None, where=host.where)
    assert cli.main(["keep", LEAST, "--format", "nix"]) == 2
    assert "cannot keep" in capsys.readouterr().err
