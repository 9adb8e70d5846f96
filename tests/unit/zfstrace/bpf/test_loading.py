"""Why libzfstrace.so does not load, for real files that do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import ROOT

from zfstrace import errors
from zfstrace.bpf import binding, loading

LIBRARY = ROOT / "tracers/libzfstrace/libzfstrace.so"


def byte(at: int, value: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("change", "meaning", "hint"),
    [
        (lambda _data: b"", "damaged or not complete", "copy it again"),
        (lambda _data: b"x" * 4096, "damaged or not complete", "copy it again"),
        (lambda data: data[:3000], "damaged or not complete", "copy it again"),
        # the linker would be killed by SIGBUS
        (lambda data: data[: len(data) // 2], "damaged or not complete", "copy it again"),
        (lambda data: data[:-1], "damaged or not complete", "copy it again"),
        # in words of the linker this one is a file that does not exist
        (byte(18, 40), "it is for another machine, and this machine is", "build it on this host"),
        (byte(4, 1), "it is for", "build it on this host"),
        (
            lambda data: data.replace(b"libbpf.so.1", b"libbpx.so.1"),
            "libbpx.so.1 is not installed",
            "install libbpx.so.1",
        ),
        (
            lambda data: data.replace(b"LIBBPF_0.6.0", b"LIBBPF_9.6.0"),
            "it needs LIBBPF_9.6.0, which this system does not have",
            "build it on this host",
        ),
    ],
)
def test_files_that_do_not_load_are_told_apart(
    change: Callable[[bytes], bytes], meaning: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "libzfstrace.so"
    path.write_bytes(change(LIBRARY.read_bytes()))
    with pytest.raises(errors.LibraryMissing) as caught:
        binding.load(str(path))
    assert f"cannot trace: {path} does not load: " in str(caught.value)
    assert meaning in str(caught.value)
    assert hint in caught.value.hint


def test_the_library_is_not_wrong() -> None:
    assert loading.wrong(str(LIBRARY)) is None
    assert loading.wrong("libzfstrace.so.4") is None
    binding.load(str(LIBRARY))


NOEXEC = """
set -e
mount -t tmpfs -o noexec none "$1"
cp "$2" "$1/libzfstrace.so"
exec "$3" -c "$4" "$1/libzfstrace.so"
"""
LOADS = """
import sys
sys.path.insert(0, {path!r})
from zfstrace import errors
from zfstrace.bpf import binding
try:
    binding.load(sys.argv[1])
except errors.LibraryMissing as error:
    print(error.in_one_line())
"""


def test_noexec_is_named(tmp_path: Path) -> None:
    """With the words of the linker of glibc, where no file system can be mounted."""
    words = "/mnt/libzfstrace.so: failed to map segment from shared object"
    meaning, hint = loading.why(words)
    assert (meaning, "/root" in hint) == ("its file system is mounted noexec", True)
    program = LOADS.format(path=str(ROOT / "tracers"))
    script = ["sh", "-c", NOEXEC, "sh", str(tmp_path), str(LIBRARY), sys.executable, program]
    done = subprocess.run(
        ["unshare", "-r", "-m", *script], capture_output=True, text=True, timeout=50
    )
    if done.returncode:
        assert "mount" in done.stderr or "unshare" in done.stderr, done.stderr
        return
    assert "does not load: its file system is mounted noexec; copy zfstune to one" in done.stdout


def test_an_unknown_reason_is_passed_on_in_one_line() -> None:
    assert loading.why("a\n b")[0] == "a b"
