"""FreeBSD in scripts/lab: its image, given or downloaded from a local server, and a guest's disks.

A program stands in for QEMU, since FreeBSD's own image needs packages from the network.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from zfslab import disk, image, machine, qemu, recipe
from zfslab.errors import LabError
from zfslab.image import Image

RELEASE = recipe.FREEBSD["freebsd-15"].release
NAME = f"FreeBSD-{RELEASE}-amd64-BASIC-CLOUDINIT-ufs.qcow2.xz"
DISK = b"a disk " * 100_000
# What a first boot prints, and how an ISO image is made of a directory: its script.
FIRST_BOOT = """#!/bin/sh
[ "$1" = --version ] && echo "QEMU emulator version 10.0.2" && exit
echo "zfslab-prepared 15.1-RELEASE zfs-2.4.1-FreeBSD_g1"
"""
ISO_MAKER = """#!/bin/sh
cat "$7/user-data" >"$3"
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The server's directory of the release."""
    directory = tmp_path / "served" / RELEASE / "amd64/Latest"
    directory.mkdir(parents=True)
    packed = lzma.compress(DISK)
    (directory / NAME).write_bytes(packed)
    digest = hashlib.sha512(packed).hexdigest()
    (directory / "CHECKSUM.SHA512").write_text(f"SHA512 (other) = x\nSHA512 ({NAME}) = {digest}\n")
    return directory


@pytest.fixture(autouse=True)
def host(tmp_path: Path, published: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of the programs that stand in."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("qemu", FIRST_BOOT), ("genisoimage", ISO_MAKER)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("ZFSTUNE_QEMU", str(programs / "qemu"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ZFSTUNE_FREEBSD_MIRROR", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("ZFSTUNE_FREEBSD_IMAGE", raising=False)
    yield programs
    server.shutdown()
    server.server_close()


def refused() -> str:
    """Why a build is refused; it must leave nothing in the cache."""
    with pytest.raises(LabError) as caught:
        image.build("freebsd-15")
    assert list(image.cache_dir().glob("*/*")) == []
    return str(caught.value)


def test_an_image_is_downloaded_prepared_and_found() -> None:
    built = image.build("freebsd-15")
    assert built.disk.read_bytes() == DISK
    assert {entry.name for entry in built.path.iterdir()} == {"disk.qcow2", "manifest.json"}
    facts = built.manifest()
    assert (facts["kernel"], facts["zfs"]) == ("15.1-RELEASE", "zfs-2.4.1-FreeBSD_g1")
    assert image.find("freebsd-15") == built
    assert image.is_current(built)
    assert image.everything() == [built]


def test_the_first_boot_finds_the_script(host: Path, tmp_path: Path) -> None:
    kept = tmp_path / "seed"
    (host / "qemu").write_text(
        FIRST_BOOT + f'while [ "$1" != -cdrom ]; do shift; done\ncp "$2" {kept}\n'
    )
    image.build("freebsd-15")
    assert kept.read_text() == recipe.PREPARE


def test_a_wrong_checksum_is_refused(published: Path) -> None:
    (published / NAME).write_bytes(lzma.compress(DISK + b"!"))
    assert "do not match the published checksum" in refused()


def test_an_image_without_a_checksum_is_refused(published: Path) -> None:
    (published / "CHECKSUM.SHA512").write_text("SHA512 (other) = 00\n")
    assert f"has no checksum of {NAME}" in refused()


def test_a_missing_image_is_an_error(published: Path) -> None:
    (published / NAME).unlink()
    assert refused().endswith(f"{NAME}: File not found")


def test_a_server_that_is_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZFSTUNE_FREEBSD_MIRROR", "http://127.0.0.1:9")
    assert "refused" in refused()


def test_a_damaged_archive_is_an_error(published: Path) -> None:
    damaged = lzma.compress(DISK)[:-20]
    (published / NAME).write_bytes(damaged)
    digest = hashlib.sha512(damaged).hexdigest()
    (published / "CHECKSUM.SHA512").write_text(f"SHA512 ({NAME}) = {digest}\n")
    assert "cannot be unpacked" in refused()


def test_a_failing_iso_maker_is_an_error(host: Path) -> None:
    (host / "genisoimage").write_text("#!/bin/sh\necho no space >&2\nexit 1\n")
    assert refused() == "genisoimage made no image: no space"


def test_a_download_that_breaks_off_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset(*_: object) -> bytes:
        raise ConnectionResetError("reset by peer")

    monkeypatch.setattr("http.client.HTTPResponse.read", reset)
    assert "the download broke off: reset by peer" in refused()


def test_a_first_boot_that_fails_is_shown(host: Path) -> None:
    (host / "qemu").write_text(FIRST_BOOT.replace("zfslab-prepared", "pkg failed"))
    assert "did not prepare the image:\n  | pkg failed" in refused()


def test_a_given_image_is_used_and_never_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "given.qcow2"
    file.write_bytes(DISK)
    monkeypatch.setenv("ZFSTUNE_FREEBSD_IMAGE", str(file))
    assert image.find("freebsd-15").disk == file
    assert image.build("freebsd-14").disk == file
    other = tmp_path / "other.qcow2"
    other.write_bytes(DISK)
    assert image.find("freebsd-15", other).disk == other
    with pytest.raises(LabError, match="not for trixie"):
        image.find("trixie", other)


def test_a_given_image_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZFSTUNE_FREEBSD_IMAGE", "/no/such.qcow2")
    with pytest.raises(LabError, match=r"/no/such.qcow2: No such file"):
        image.find("freebsd-15")


def test_without_an_image_the_hint_says_how_to_get_one() -> None:
    with pytest.raises(LabError, match="no image of freebsd-15") as caught:
        image.find("freebsd-15")
    assert "scripts/lab build freebsd-15" in caught.value.hint
    assert "ZFSTUNE_FREEBSD_IMAGE" in caught.value.hint


def test_the_script_of_the_first_boot_is_valid_shell(tmp_path: Path) -> None:
    script = tmp_path / "prepare.sh"
    script.write_text(recipe.PREPARE)
    assert os.system(f"sh -n {script}") == 0


def launch(path: Path, options: machine.Options, files: ExitStack) -> machine.Launch:
    given = Image("freebsd-15", "abc", path / "given.qcow2", "freebsd")
    log = files.enter_context((path / "console").open("wb"))
    tool = qemu.Qemu("qemu", (10, 0, 2))
    return machine.launch(tool, "tcg,thread=multi", given, options, {"argv": []}, 9, log, files)


def test_a_guest_boots_from_its_disk_and_finds_its_job_on_another(tmp_path: Path) -> None:
    (tmp_path / "tree/.git").mkdir(parents=True)
    (tmp_path / "tree/file").write_text("content")
    options = machine.Options(tmp_path / "tree", reboots=1, disks=(disk.parse_disk("size=1G"),))
    with ExitStack() as files:
        found = launch(tmp_path, options, files)
        drives = [word for word in found.command if ",if=none," in word]
        assert [drive.partition("id=")[2].partition(",")[0] for drive in drives] == [
            "root",
            "vdb",
            "VZJOB",
        ]
        assert "format=qcow2" in drives[0]
        assert "snapshot=on" in drives[0]
        assert "max,-avx2" in found.command
        assert "-no-reboot" not in found.command
        with Path(f"/proc/self/fd/{found.descriptors[-1]}").open("rb") as job:
            assert os.fstat(job.fileno()).st_size % (1 << 20) == 0
            with tarfile.open(fileobj=job) as archive:
                names = archive.getnames()
    assert {"run.sh", "agent.py", "config", "command.json", "zfstune/file"} <= set(names)
    assert not [name for name in names if ".git" in name]


def test_a_checkout_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with ExitStack() as files, pytest.raises(LabError, match=r"cannot copy .*none"):
        launch(tmp_path, machine.Options(tmp_path / "none"), files)


def test_a_shared_directory_is_an_archive_on_a_disk(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "share/a b").write_text("content")
    options = machine.Options(tmp_path / "share", share=tmp_path / "share")
    with ExitStack() as files:
        found = launch(tmp_path, options, files)
        assert "virtio-blk-pci,drive=zfslab-share,serial=zfslab-share" in found.command
        with (
            Path(f"/proc/self/fd/{found.descriptors[-1]}").open("rb") as share,
            tarfile.open(fileobj=share) as archive,
        ):
            assert archive.getnames() == [".", "./a b"]


def test_a_delayed_disk_is_served_by_a_process_that_ends_with_the_run(tmp_path: Path) -> None:
    delayed = disk.parse_disk("size=64M,flush-delay=20ms,write-iops=10")
    options = machine.Options(tmp_path, disks=(delayed,))
    with ExitStack() as files:
        found = launch(tmp_path, options, files)
        (drive,) = [word for word in found.command if "id=vdb" in word]
        assert "file.driver=nbd,file.server.type=fd" in drive
        assert "throttling.iops-write=10" in drive
        (number,) = re.findall(r"server.str=(\d+)", drive)
        connection = socket.socket(fileno=os.dup(int(number)))
        assert connection.recv(8) == b"NBDMAGIC"
    with connection:
        while connection.recv(1 << 10):
            pass
