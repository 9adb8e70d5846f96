"""Makes a wheel for each machine, with the library inside; called by `make wheel`, and by pip, for
which it is the backend of this checkout (PEP 517).

There is no way to a wheel without the library. The same sources make the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import install

from dist import pack

LIBRARY = "zfstrace/bpf/libzfstrace.so"  # where zfstrace.bpf.binding looks for it
TAG = "py3-none-manylinux_2_28_{machine}"  # glibc 2.28, as tests of the library check
METADATA = """\
Metadata-Version: 2.4
Name: zfstune
Version: {version}
Summary: Shows where an fsync on OpenZFS spends its time, and reduces it
License-Expression: BSD-2-Clause AND (BSD-2-Clause OR GPL-2.0-only) AND {linked}
{files}
Classifier: Operating System :: POSIX :: Linux
Requires-Python: >=3.9
Provides-Extra: tune
Requires-Dist: optuna>=4.3; extra == "tune"
"""


def contents(library: bytes) -> dict[str, bytes]:
    """All files by their names, in their order: what describes them is last."""
    version = install.version()
    info = f"zfstune-{version}.dist-info"
    files = {**pack.modules(), LIBRARY: library}
    for entry in install.help_entries():
        files[f"zfstune-{version}.data/data/{entry.target}"] = entry.content
    linked = pack.linked()
    texts = {part["name"]: part["text"].encode() for part in linked}
    texts["LICENSE"] = (install.ROOT / "LICENSE").read_bytes()
    for name, text in texts.items():
        files[f"{info}/licenses/{name}"] = text
    files = dict(sorted(files.items()))
    files[f"{info}/METADATA"] = METADATA.format(
        version=version,
        linked=" AND ".join(sorted({part["licence"] for part in linked})),
        files="\n".join(f"License-File: {name}" for name in sorted(texts)),
    ).encode()
    tag = TAG.format(machine=pack.machine(library))
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: zfstune ({version})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nzfstune = zfstune.__main__:main\n"
    rows = [f"{name},{digest(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    return files


def digest(data: bytes) -> str:
    """As RECORD has it."""
    raw = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={raw.decode().rstrip('=')}"


def wheel(library: bytes) -> tuple[str, bytes]:
    """Name and content of the wheel with a library."""
    made = io.BytesIO()
    pack.add(made, contents(library))
    tag = TAG.format(machine=pack.machine(library))
    return f"zfstune-{install.version()}-{tag}.whl", made.getvalue()


def built() -> bytes:
    """The library for this machine. Raises InstallError if it is not what `make wheel` would take:
    missing, or older than its sources."""
    file = pack.SOURCES.parent / os.uname().machine / "libzfstrace.so"
    goal = str(file.relative_to(install.ROOT))
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    try:
        question = ["make", "--question", goal]
        asked = subprocess.run(
            question, cwd=install.ROOT, env=env, capture_output=True, check=False
        )
        if asked.returncode == 0:
            return file.read_bytes()
    except OSError:
        pass
    raise install.InstallError(
        f"no wheel without {file.name}: {goal} is missing, or older than its sources",
        "run `make wheel`, and install what it makes in dist/",
    )


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The hook of PEP 517."""
    try:
        name, data = wheel(built())
        (Path(wheel_directory) / name).write_bytes(data)
        return name
    except install.InstallError as error:
        refuse(error)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, object] | None = None) -> str:
    """The hook of PEP 517, which demands it: a wheel of an sdist would lack the library."""
    refuse(install.InstallError("zfstune has no sdist", "run `make wheel`"))


def refuse(error: install.InstallError) -> NoReturn:
    """Ends pip's process for hooks, whose output pip then shows, without a traceback."""
    sys.exit(install.fail(error, "zfstune"))


def main() -> None:
    """Runs the command line."""
    given = pack.arguments("Makes a wheel for each machine.")
    for path in given.libraries:
        pack.write(given.output, *wheel(path.read_bytes()))


if __name__ == "__main__":
    main()
