"""The command line, its completion for bash and its manual pages have the same options."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

from zfstune import cli
from zfstune.experiment import objective
from zfstune.tunables import catalogue

COMPLETION = ROOT / "docs/completion/zfstune.bash"
MAN = ROOT / "docs/man"
# where a command has no page
PAGES = dict.fromkeys(("status", "revert", "keep", "recover"), "zfstune-revert.1")
PAGES |= {"report": "zfstune.1", "": "zfstune.1"}

Words = tuple[str, ...]


def below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def walk(
    parser: argparse.ArgumentParser, words: Words = ()
) -> Iterator[tuple[Words, argparse.ArgumentParser]]:
    yield words, parser
    for name, child in below(parser).items():
        yield from walk(child, (*words, name))


COMMANDS = dict(walk(cli.build_parser()))
PARAMETERS = (*catalogue.default_set(), *catalogue.on_request())


def options(parser: argparse.ArgumentParser) -> set[str]:
    """The long ones."""
    return {name for name in parser._option_string_actions if name.startswith("--")}


def offered(*words: str) -> list[str]:
    """What bash completes when the cursor is at the end of the last word; = is a word."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
        'COMPREPLY=(); _zfstune; ((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", script, "bash", str(COMPLETION), "zfstune", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_completion_has_the_options_of_each_command(words: Words) -> None:
    assert set(offered(*words, "--")) == options(COMMANDS[words])


@pytest.mark.parametrize(
    "words", [words for words, parser in COMMANDS.items() if below(parser)], ids=" ".join
)
def test_completion_has_the_subcommands(words: Words) -> None:
    assert set(below(COMMANDS[words])) <= set(offered(*words, ""))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_completion_knows_which_options_take_a_value(words: Words) -> None:
    for action in COMMANDS[words]._actions:
        long = next((name for name in action.option_strings if name.startswith("--")), None)
        if long is None or action.nargs == 0:
            continue
        found = offered(*words, long, "")
        assert not [word for word in found if word.startswith("--")], long
        if action.choices is not None:
            assert found == list(action.choices), long


def test_completion_knows_parameters_and_metrics() -> None:
    assert offered("tune", "--parameters", "") == list(PARAMETERS)
    assert offered("tune", "--parameters", "zfs_txg_timeout,zil") == [
        "zfs_txg_timeout,zil_slog_bulk"
    ]
    assert offered("tune", "--parameters", "zfs_txg_timeout,zfs_txg") == []
    assert offered("tune", "--parameters", "=", "zfs_arc_max,zfs_arc") == [
        "zfs_arc_max,zfs_arc_min"
    ]
    assert offered("tune", "--parameters", "=") == list(PARAMETERS)
    assert offered("tune", "--limit", "") == list(objective.METRICS)
    assert offered("tune", "--objective", "") == list(objective.METRICS)
    assert offered("tune", "--objective", "fsync.p99", "=", "0.7,write") == ["0.7,write.throughput"]


def manual(words: Words) -> str:
    name = words[0] if words else ""
    return (MAN / PAGES.get(name, f"zfstune-{name}.1")).read_text()


def flags(page: str, macro: str = "") -> set[str]:
    """The options that a page names, long and short; of lines that begin with macro."""
    lines = [line for line in page.splitlines() if line.startswith(macro) and "Fl " in line]
    names = re.findall(r"(?:\bFl|[,|]) ([A-Za-z]\b|-[a-z][a-z-]*)", "\n".join(lines))
    return {f"-{name}" for name in names}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_option_of_a_command_is_in_its_manual(words: Words) -> None:
    of_parser = set(COMMANDS[words]._option_string_actions) - {"-h", "--help"}
    assert of_parser <= flags(manual(words), ".It Fl ")


def test_the_manual_of_zfstune_has_help_and_commands() -> None:
    page = manual(())
    assert "--help" in flags(page)
    head = page[: page.index(".Sh DESCRIPTION")]
    for name in below(COMMANDS[()]):
        assert re.search(rf"^\.Cm .*\b{name}\b", head, re.MULTILINE), name


@pytest.mark.parametrize("path", sorted(MAN.glob("zfstune*.1")), ids=lambda path: path.name)
def test_no_manual_has_an_option_that_is_gone(path: Path) -> None:
    page = path.read_text()
    # zfstune.1 is about all of them
    about = [words for words in COMMANDS if path.name == "zfstune.1" or manual(words) == page]
    there = {name for words in about for name in COMMANDS[words]._option_string_actions}
    assert flags(page) <= there
