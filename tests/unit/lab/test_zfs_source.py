"""The source of OpenZFS that a flavour of the lab is compiled from."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from zfslab import image, recipe, zfs_source
from zfslab.errors import USAGE, LabError


def tree(directory: Path) -> Path:
    (directory / "module").mkdir(parents=True)
    (directory / "META").write_text("Name: zfs\nVersion: 2.2.11\n")
    (directory / "module/zfs.c").write_text("int zfs;\n")
    return directory


def archive(path: Path, *tops: str) -> Path:
    with tarfile.open(path, "w:xz") as file:
        for top in tops:
            data = tarfile.TarInfo(f"{top}/META")
            data.size = 3
            file.addfile(data, io.BytesIO(b"zfs"))
    return path


def unpacked(packed: zfs_source.Packed, directory: Path) -> set[str]:
    """What the recipe gets when it unpacks the archive."""
    directory.mkdir()
    command = ["tar", "-xf", str(packed.archive), "-C", str(directory), "--strip-components=1"]
    subprocess.run(command, check=True)
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_tree_is_packed(tmp_path: Path) -> None:
    source = tree(tmp_path / "zfs-2.2")
    with zfs_source.packed(source) as packed:
        assert unpacked(packed, tmp_path / "out") == {"META", "module/zfs.c"}
        kept = packed
    assert not kept.archive.exists()
    with zfs_source.packed(source) as again:
        assert again.digest == kept.digest
    (source / "module/zfs.c").write_text("int spa;\n")
    with zfs_source.packed(source) as changed:
        assert changed.digest != kept.digest


def test_of_a_checkout_only_tracked_files_are_taken(tmp_path: Path) -> None:
    source = tree(tmp_path / "zfs")
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    subprocess.run(["git", "-C", str(source), "add", "-A"], check=True)
    (source / "module/zfs.o").write_bytes(b"\x7fELF of another kernel")
    with zfs_source.packed(source) as packed:
        assert unpacked(packed, tmp_path / "out") == {"META", "module/zfs.c"}


def test_a_tracked_file_that_is_removed_is_left_out(tmp_path: Path) -> None:
    source = tree(tmp_path / "zfs")
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    subprocess.run(["git", "-C", str(source), "add", "-A"], check=True)
    (source / "module/zfs.c").unlink()
    with zfs_source.packed(source) as packed:
        assert unpacked(packed, tmp_path / "out") == {"META"}


def test_a_checkout_that_git_refuses_is_an_error(tmp_path: Path) -> None:
    """As one of somebody else's is for root."""
    source = tree(tmp_path / "zfs")
    (source / ".git").write_text("no repository\n")
    match = "cannot list the files of .*: git ended with status 128"
    with pytest.raises(LabError, match=match), zfs_source.packed(source):
        pass


def test_an_archive_is_taken_as_it_is(tmp_path: Path) -> None:
    file = archive(tmp_path / "zfs.tar.xz", "zfs-2.2.11")
    with zfs_source.packed(file) as packed:
        assert packed.archive == file
        assert unpacked(packed, tmp_path / "out") == {"META"}


@pytest.mark.parametrize("what", ["text", "cut", "two", "other", "empty", "missing", "no META"])
def test_what_is_not_openzfs_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "it"
    if what == "text":
        path.write_text("a text")
    elif what == "cut":
        path.write_bytes(archive(tmp_path / "whole", "zfs").read_bytes()[:-40])
    elif what == "two":
        archive(path, "zfs", "spl")
    elif what == "other":
        with tarfile.open(path, "w") as file:
            file.addfile(tarfile.TarInfo("linux-6.1/Makefile"))
    elif what == "empty":
        archive(path)
    elif what == "no META":
        path.mkdir()
    with pytest.raises(LabError) as caught, zfs_source.packed(path):
        pass
    assert caught.value.status == USAGE
    assert "\n" not in str(caught.value)


def test_a_flavour_may_carry_a_word_of_the_users() -> None:
    for name in ("bookworm-2.2", "trixie-master"):
        found = recipe.flavour(name)
        assert isinstance(found, recipe.Flavour)
        assert (found.suite, found.source) == (name.partition("-")[0], True)
        command = recipe.mmdebstrap(found, "-", source="/src/zfs.tar")
        (include,) = (word for word in command if word.startswith("--include="))
        assert not {"dkms", "zfs-dkms"} & set(re.split("[,=]", include))
        assert any("upload /src/zfs.tar " in word for word in command)
        for hook in (word for word in command if "hook=chroot" in word):
            subprocess.run(["sh", "-n", "-c", hook.partition("=")[2]], check=True)
    for name in ("sid-2.2", "bookworm-", "bookworm-../x", "bookworm-2-2", "BOOKWORM-2.2"):
        with pytest.raises(LabError, match="unknown flavour"):
            recipe.flavour(name)


def test_an_image_of_another_source_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(image.ZFS_SOURCE, raising=False)
    built: list[str] = []

    def fill(
        scratch: Path, flavour: recipe.Flavour, source: zfs_source.Packed | None, started: float
    ) -> None:
        assert source
        built.append(source.digest)
        (scratch / "manifest.json").write_text(f'{{"source": "{source.digest}"}}')

    monkeypatch.setattr(image, "_fill_debian", fill)
    source = tree(tmp_path / "zfs")
    with pytest.raises(LabError, match="needs the source"):
        image.build("bookworm-2.2")
    for _ in range(2):
        image.build("bookworm-2.2", source=source)
    image.build("bookworm-2.2")  # one is there
    assert len(built) == 1
    (source / "module/zfs.c").write_text("int spa;\n")
    monkeypatch.setenv(image.ZFS_SOURCE, str(source))
    image.build("bookworm-2.2")
    assert len(set(built)) == len(built) == 2
