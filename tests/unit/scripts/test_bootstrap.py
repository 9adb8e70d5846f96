"""What scripts/bootstrap and scripts/python39 find missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from support.paths import ROOT

# dpkg-query -W -f FORMAT PACKAGE, of a host where each package is installed for two architectures
DPKG_QUERY = """\
#!/bin/sh
for architecture in amd64 i386; do
	printf "$(printf %s "$3" | sed 's/[$]{db:Status-Status}/installed/; s/[$]{Version}/1:10.0.2/')"
done
"""


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_package_of_two_architectures_is_not_missing(tmp_path: Path) -> None:
    """As libc6-dev is with gcc-multilib."""
    program(tmp_path / "dpkg-query", DPKG_QUERY)
    done = subprocess.run(
        [str(ROOT / "scripts/bootstrap"), "--check"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("bootstrap: ")
    assert "libc6-dev" not in done.stderr
    assert "QEMU" not in done.stderr


def test_files_of_an_older_version_are_not_tried(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/python39", tmp_path / "scripts")
    machine = os.uname().machine
    for name, text in (
        ("tuner/zfstune/__init__.py", '__version__ = "9.9"\n'),
        (f"build/dist/{machine}/libzfstrace.so", ""),
        (f"dist/zfstune-9.8-linux-{machine}.pyz", ""),
        (f"dist/zfstune-9.8-py3-none-manylinux_2_28_{machine}.whl", ""),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [str(tmp_path / "scripts/python39")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert f"there is no dist/zfstune-9.9-linux-{machine}.pyz\nhint: " in done.stderr
