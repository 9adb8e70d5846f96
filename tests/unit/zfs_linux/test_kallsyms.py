"""Names of kernel addresses: generated kernels, and recorded ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import DATA

from zfs_linux.kallsyms import Symbols, hidden

addresses = st.integers(1, 2**64 - 1)


def line(address: int, name: str, module: str = "", kind: str = "t") -> str:
    return f"{address:016x} {kind} {name}" + (f"\t[{module}]" if module else "")


@given(st.dictionaries(addresses, st.booleans(), min_size=1), addresses, st.randoms())
def test_an_address_gets_the_nearest_symbol_below(
    kernel: dict[int, bool], address: int, random: Random
) -> None:
    lines = [line(a, f"f{a:x}", "zfs" if mod else "") for a, mod in kernel.items()]
    random.shuffle(lines)
    below = max((a for a in kernel if a <= address), default=None)
    want = "[unknown]"
    if below is not None:
        want = f"f{below:x}" + (" [zfs]" if kernel[below] else "")
    assert Symbols("\n".join(lines).encode()).name(address) == want


@given(st.binary(max_size=300), addresses)
def test_any_text_gives_a_name(text: bytes, address: int) -> None:
    assert isinstance(Symbols(text).name(address), str)


def test_global_names_come_first() -> None:
    text = "\n".join([line(16, "alias"), line(16, "zz", kind="T"), line(8, "before")])
    assert Symbols(text.encode()).name(17) == "zz"
    assert Symbols(text.encode()).name(15) == "before"
    text = "\n".join([line(16, "__sched_text_start", kind="T"), line(16, "io_schedule", kind="t")])
    assert Symbols(text.encode()).name(17) == "io_schedule"


@pytest.mark.parametrize("flavour", ["trixie", "bookworm", "trixie-backports"])
def test_symbols_of_recorded_kernels_are_found(flavour: str) -> None:
    path = DATA / flavour / "kallsyms"
    assert not hidden(path)
    symbols = Symbols(path.read_bytes())
    for text in path.read_text().splitlines():
        address, _, rest = text.split(" ", 2)
        name, _, module = rest.partition("\t")
        assert symbols.name(int(address, 16)) in {f"{name} {module}", rest.replace("\t", " ")}


def test_hidden_addresses_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text("\n".join(line(0, f"f{i}") for i in range(5000)))
    assert hidden(path)
    # an absolute symbol of some kernels is at 0
    path.write_text("\n".join([line(0, "fixed_percpu_data", kind="A"), line(4096, "x"), ""]))
    assert not hidden(path)
