#!/usr/bin/env python3
"""Writes the completion of zfstune for bash, zsh and fish by shtab, from the parser of the command
line.

usage: scripts/compile_completion.py     (`make completion`; the files are committed, since
`make install` needs nothing of PyPI)
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import shtab

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tracers", "tuner")]

from zfstune import cli  # noqa: E402
from zfstune.check.metrics import METRICS as CHECKED  # noqa: E402
from zfstune.experiment import objective  # noqa: E402
from zfstune.exporter.args import VIEWS  # noqa: E402
from zfstune.record.args import VIEWS as RECORDED  # noqa: E402
from zfstune.record.triggers import METRICS as TRIGGERS  # noqa: E402
from zfstune.tunables import catalogue  # noqa: E402
from zfstune.tune.request import NO_LIMIT  # noqa: E402

PARTS = ROOT / "scripts/completion"
TARGETS = {
    shell: ROOT / "docs/completion" / name
    for shell, name in {"bash": "zfstune.bash", "zsh": "_zfstune", "fish": "zfstune.fish"}.items()
}

METRICS = tuple(objective.METRICS)

# What completes a value: shtab's files and directories, a function of scripts/completion/, or words
# to choose from.
Source = str | tuple[str, ...]
BY_METAVAR: dict[str, Source] = {
    "AFTER": "file",
    "BEFORE": "file",
    "DIR": "directory",
    "DIR|FILE": "file",
    "DISK": "file",
    "FILE": "file",
    "IN": "file",
    "NAME": "parameters",
    "NAME=VALUE": "parameters",
    "PATH|DATASET": "datasets_dirs",
    "POOL": "pools",
    "POOL|DATASET": "pools_datasets",
    "USER": "users",
}
BY_OPTION: dict[str, Source] = {
    "--block": ("10s", "20s", "30s"),
    "--budget": ("10m", "15m", "30m", "1h"),
    "--budget SHARE": ("1%", "2%", "5%"),
    "--dataset": "datasets",
    "--duration": ("5s", "10s", "30s", "1m", "5m"),
    "--interval": ("1s", "2s", "5s", "10s", "1m"),
    "--last": ("10m", "30m", "1h", "6h"),
    "--limit": (*METRICS, NO_LIMIT),
    "--matrix": ("reports-2014",),
    "--over": ("1ms", "5ms", "10ms", "50ms", "100ms", "1s"),
    "--pid": "pids",
    "--timeout": ("10s", "30s", "50s"),
    "--trigger": tuple(TRIGGERS),
}
# words that are joined by commas
LISTS = {
    **dict.fromkeys(("--warn", "--crit", "--show"), tuple(CHECKED)),
    "--objective": METRICS,
    "--views": tuple(VIEWS),
    "--views VIEWS": tuple(RECORDED),
    "--parameters": catalogue.default_set(),
    "--test": (
        "fdatasync",
        "fsync",
        "o_dsync",
        "two-fdatasync",
        "committers-2",
        "committers-8",
        "plain",
    ),
}
# = or a comma may follow their values
OPEN = tuple(dict.fromkeys(key.split()[0] for key in (*LISTS, "--limit")))

# The shells' own words for it, where they have it.
OWN = {
    ("zsh", "pids"): "_pids",
    ("zsh", "users"): "_users",
    ("fish", "pids"): "(__fish_complete_pids)",
    ("fish", "users"): "(__fish_complete_users)",
}


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All of the parser and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from actions(child)
        else:
            yield action


def completer(action: argparse.Action) -> object:
    """shtab's `complete` of an action that takes a value; None if nothing completes it."""
    name = action.option_strings[-1] if action.option_strings else ""
    metavar = str(action.metavar)
    # of two options with one name, one has its metavar in the table
    key = f"{name} {metavar}" if f"{name} {metavar}" in {**BY_OPTION, **LISTS} else name
    if key in LISTS:
        return listed(key, LISTS[key])
    source = BY_OPTION.get(key, BY_METAVAR.get(metavar))
    if not source:
        return None
    if isinstance(source, tuple):
        words = " ".join(source)
        function = function_of(key, "words")
        return {
            "bash": function,
            "zsh": f"({words})",
            "fish": words,
            "preamble": {"bash": f'{function}() {{\n\tcompgen -W "{words}" -- "$1"\n}}\n'},
        }
    if source in shtab.CHOICE_FUNCTIONS:
        return source
    shells = {"bash": f"_zfstune_{source}", "zsh": f"_zfstune_{source}"}
    shells["fish"] = f"(_zfstune_{source})"
    return {shell: OWN.get((shell, source), text) for shell, text in shells.items()}


def listed(name: str, words: tuple[str, ...]) -> object:
    """The same for words that are joined by commas."""
    function, given = function_of(name, "list"), " ".join(words)
    what = name.split()[0].strip("-")
    return {
        "bash": function,
        "zsh": function,
        "fish": f"(_zfstune_list {given})",
        "preamble": {
            "bash": f'{function}() {{\n\t_zfstune_list "$1" {given}\n}}\n',
            "zsh": f"{function}() {{\n  _values -s , {what} {given}\n}}\n",
        },
    }


def function_of(name: str, kind: str) -> str:
    """The name of the shell function for an option."""
    return f"_zfstune_{kind}_{re.sub('[- ]', '_', name.strip('-').lower())}"


def compiled(shell: str) -> str:
    """The whole script for a shell."""
    parser = cli.build_parser()
    for action in actions(parser):
        if action.nargs != 0 and not action.choices:
            found = completer(action)
            if found:
                setattr(action, "complete", found)  # noqa: B010  (argparse has no such attribute)
    names = (PARTS / f"names.{shell}").read_text(encoding="utf-8")
    text = shtab.complete(parser, shell, preamble=names)
    if shell == "bash":
        # our function calls shtab's
        text = text[: text.rindex("complete -o bashdefault")]
        text += (PARTS / "words.bash").read_text().replace("%%OPEN%%", " ".join(OPEN))
    if shell == "zsh":
        # shtab's way of writing several arguments completes only the first of them
        text = re.sub(r'^  "\(\*\)::?', '  "*:', text, flags=re.MULTILINE)
    return text.rstrip("\n") + "\n"


def main() -> int:
    for shell, target in TARGETS.items():
        target.write_text(compiled(shell), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
