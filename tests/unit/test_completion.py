"""The command line, its completion by shells and its manual pages have the same options."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import compile_completion
import pytest
from support import shells
from support.paths import ROOT

from zfstune import cli
from zfstune.check.metrics import METRICS
from zfstune.experiment import objective
from zfstune.tunables import catalogue

MAN = ROOT / "docs/man"
# where a command has no page
PAGES = dict.fromkeys(("status", "revert", "keep", "recover"), "zfstune-revert.1")
PAGES |= {"licences": "zfstune-tools.1", "report": "zfstune.1", "": "zfstune.1"}

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
PARAMETERS = catalogue.default_set()


def options(parser: argparse.ArgumentParser) -> set[str]:
    """The long ones."""
    return {name for name in parser._option_string_actions if name.startswith("--")}


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def offered(request: pytest.FixtureRequest, kstats: Path) -> Iterator[shells.Offers]:
    """What a shell offers when the cursor is at the end of the last word, on a host with a pool."""
    shell: str = request.param
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = kstats.parent / compile_completion.TARGETS[shell].name
    text = compile_completion.TARGETS[shell].read_text().replace("/proc/spl/kstat/zfs", str(kstats))
    script.write_text(text.replace("/sys/module/zfs/parameters", str(kstats.parent / "parameters")))
    if shell == "zsh":
        zsh = shells.Zsh(kstats.parent)
        yield zsh.offered
        zsh.close()
    else:
        yield partial({"bash": shells.bash, "fish": shells.fish}[shell], script)


@pytest.fixture(scope="module")
def kstats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like /proc/spl/kstat/zfs, and the module's parameters."""
    path = tmp_path_factory.mktemp("completion") / "kstat"
    path.mkdir()
    for pool, names in {"tank": ("tank", "tank/db"), "tank2": ("tank2",)}.items():
        (path / pool).mkdir()
        for number, name in enumerate(names):
            text = f"name  type data\ndataset_name                    7    {name}\nwrites 4 0\n"
            (path / pool / f"objset-0x{number + 54:x}").write_text(text)
    (path.parent / "parameters").mkdir()
    for name in ("zfs_txg_timeout", "zil_slog_bulk"):
        (path.parent / "parameters" / name).write_text("5\n")
    return path


@pytest.mark.parametrize("shell", compile_completion.TARGETS)
def test_the_scripts_are_what_the_parser_gives(shell: str) -> None:
    written = compile_completion.TARGETS[shell].read_text()
    assert written == compile_completion.compiled(shell), "run `make completion`"


def test_completion_has_the_options_of_each_command(offered: shells.Offers) -> None:
    for words, parser in COMMANDS.items():
        assert set(offered(*words, "--")) == options(parser), words


def test_completion_has_the_subcommands(offered: shells.Offers) -> None:
    for words, parser in COMMANDS.items():
        names = set(below(parser))
        assert names <= {name.partition(":")[0] for name in offered(*words, "")}, words


def test_completion_knows_which_options_take_a_value(offered: shells.Offers) -> None:
    for words, parser in COMMANDS.items():
        for action in parser._actions:
            long = next((name for name in action.option_strings if name.startswith("--")), None)
            if long is None or action.nargs == 0:
                continue
            found = offered(*words, long, "")
            assert not [word for word in found if word.startswith("--")], long
            if action.choices is not None:
                assert set(found) == set(action.choices), long


def test_completion_knows_pools_datasets_and_parameters(offered: shells.Offers) -> None:
    pools, datasets = {"tank", "tank2"}, {"tank", "tank/db", "tank2"}
    for words in (("diagnose",), ("tune",), ("trace", "fsync"), ("trace", "--pool")):
        assert set(offered(*words, "")) - {*below(COMMANDS[("trace",)])} == pools, words
    assert set(offered("trace", "fsync", "--dataset", "")) == datasets
    assert set(offered("advise", "tank/")) == {"tank/db"}
    assert "tank/db" in offered("bench", "tank/")
    assert set(offered("params", "get", "")) == {"zfs_txg_timeout", "zil_slog_bulk"}
    assert set(offered("params", "explain", "zil_slog_bulk", "zfs")) == {"zfs_txg_timeout"}
    assert {"5s", "10s"} <= set(offered("trace", "slow", "--over", "1ms", "--duration", ""))


def test_completion_knows_lists(offered: shells.Offers) -> None:
    def words(*line: str) -> set[str]:
        # fish and bash offer what is typed already as well
        return {name.rpartition(",")[2] for name in offered(*line)}

    assert words("tune", "--parameters", "") == set(PARAMETERS)
    assert words("tune", "--parameters", "zfs_txg_timeout,zil") == {"zil_slog_bulk"}
    assert words("tune", "--parameters", "zfs_txg_timeout,zfs_dirty_data_s") == {
        "zfs_dirty_data_sync_percent"
    }
    assert words("tune", "--limit", "") == {*objective.METRICS, "none"}
    assert words("tune", "--objective", "") == set(objective.METRICS)
    assert words("bench", "--test", "plain,o_") == {"o_dsync"}
    for option in ("--warn", "--crit", "--show"):
        assert words("check", "tank", option, "") == set(METRICS)


def test_bash_makes_words_of_equals_signs_and_colons(kstats: Path) -> None:
    (kstats / "a:b").mkdir(exist_ok=True)
    script = kstats.parent / "equals.bash"
    text = compile_completion.TARGETS["bash"].read_text()
    script.write_text(text.replace("/proc/spl/kstat/zfs", str(kstats)))
    offered = partial(shells.bash, script)
    assert offered("tune", "--parameters", "=", "zfs_txg_timeout,zfs_dirty_data_s") == [
        "zfs_txg_timeout,zfs_dirty_data_sync_percent"
    ]
    assert offered("tune", "--parameters", "=") == list(PARAMETERS)
    assert offered("tune", "--objective", "fsync.p99", "=", "0.7,write.t") == [
        "0.7,write.throughput"
    ]
    assert offered("trace", "fsync", "--pid", "=", "1", "--count") == []
    assert offered("diagnose", "a", ":", "") == ["b"]
    assert offered("diagnose", "a", ":") == ["b"]


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
