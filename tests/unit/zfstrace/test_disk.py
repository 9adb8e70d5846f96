"""Device numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zfstrace import disk


@pytest.mark.parametrize("device", [0, 1, os.makedev(8, 1), 1 << 62, (1 << 63) - 1])
def test_numbers_are_those_of_the_system(device: int) -> None:
    assert disk.numbers(device) == (os.major(device), os.minor(device))


def test_a_number_with_the_top_bit_set_is_positive() -> None:
    """As Python 3.11 on FreeBSD 15 returned it for a dataset, where os.major() raised
    OverflowError."""
    device = -(0x60 << 56) + 7
    assert disk.numbers(device) == disk.numbers(device + (1 << 64))
    assert min(disk.numbers(device)) >= 0
    assert disk.numbers(device) != disk.numbers(device + 1)


def test_a_path_has_the_number_of_its_file_system(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    assert disk.dev_of(tmp_path) == disk.dev_of(str(tmp_path)) == disk.numbers(device)
    with pytest.raises(FileNotFoundError):
        disk.dev_of(tmp_path / "absent")
