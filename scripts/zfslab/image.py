"""Builds images, keeps them in the user's cache, and finds them there."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from . import initrd, qemu, recipe, vm_image, zfs_source
from .errors import USAGE, LabError
from .process import ends_with_parent, missing_programs, scratch_dir
from .units import format_size, format_time

# The variable that names FreeBSD's disk image
FREEBSD_IMAGE = "ZFSTUNE_FREEBSD_IMAGE"
# The variable that names the tree or archive of OpenZFS for flavours that compile it
ZFS_SOURCE = "ZFSTUNE_ZFS_SOURCE"

_VIRTUAL_SIZE = "6G"
_CHROOT_LINK = "chroot"
# A build prints something at least this often
_QUIET_S = 20.0


@dataclass(frozen=True)
class Image:
    """A finished image: of Debian a directory with `disk.img`, `vmlinuz`, `initrd` and
    `manifest.json`, of FreeBSD one with `disk.qcow2` and `manifest.json`, or a file in its place.
    """

    flavour: str
    key: str
    path: Path
    system: str = "debian"  # or "freebsd"

    @property
    def disk(self) -> Path:
        if self.system == "freebsd":
            return self.path / "disk.qcow2" if self.path.is_dir() else self.path
        return self.path / "disk.img"

    @property
    def disk_format(self) -> str:
        return "qcow2" if self.system == "freebsd" else "raw"

    @property
    def kernel(self) -> Path:
        return self.path / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.path / "initrd"

    def manifest(self) -> dict[str, object]:
        """Kernel release, version of ZFS, time and duration of the build, versions of Debian's
        packages."""
        if not self.path.is_dir():
            return {"kernel": f"of {self.path}", "zfs": "of the same"}
        content = json.loads((self.path / "manifest.json").read_text())
        assert isinstance(content, dict)
        return content

    def size_bytes(self) -> int:
        """Allocated size; the files are sparse."""
        return sum(entry.stat().st_blocks * 512 for entry in self.path.iterdir())


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/zfstune/lab`, by default under `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the specification says to ignore a relative path
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "zfstune" / "lab"


def find(name: str, file: Path | None = None) -> Image:
    """The image of flavour `name`: for FreeBSD `file`, or that of `$ZFSTUNE_FREEBSD_IMAGE`. Raises
    LabError if there is none."""
    given = file or os.environ.get(FREEBSD_IMAGE)
    if given and name in recipe.FREEBSD:
        return _given(name, Path(given))
    if file is not None:
        what = f"--image is for {' and '.join(recipe.FREEBSD)}, not for {name}"
        raise LabError(what, status=USAGE)
    image = _image(recipe.flavour(name))
    if not image.path.is_dir():
        hint = f"run `scripts/lab build {name}` (once, about 8 minutes)"
        if recipe.compiles(name):
            hint = f"run `scripts/lab build {name} --zfs-source FILE` (once, about 8 minutes)"
        if name in recipe.FREEBSD:
            hint += f", or name one with {FREEBSD_IMAGE}"
        raise LabError(f"no image of {name} yet", hint)
    return image


def _given(name: str, path: Path) -> Image:
    try:
        facts = path.stat()
    except OSError as error:
        raise LabError(f"image {path}: {error.strerror}", f"see {FREEBSD_IMAGE}") from None
    text = f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}"
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    return Image(name, key, path.resolve(), "freebsd")


def everything() -> list[Image]:
    """All finished images in the cache, including those of older recipes."""
    found = []
    for path in sorted(cache_dir().glob("*/manifest.json")):
        if not path.parent.name.startswith("tmp-"):
            name, _, key = path.parent.name.rpartition("-")
            found.append(Image(name, key, path.parent, _system(name)))
    return found


def is_current(image: Image) -> bool:
    """Whether today's recipe still makes this image."""
    try:
        return recipe.key(recipe.flavour(image.flavour)) == image.key
    except LabError:
        return False


def build(name: str, again: bool = False, source: Path | None = None) -> Image:
    """Builds flavour `name` unless it exists (or even then, if `again`), and returns the image.
    `source` is the tree or archive of OpenZFS for a flavour that compiles it, by default
    `$ZFSTUNE_ZFS_SOURCE`; an image of another source is replaced. Raises LabError."""
    flavour = recipe.flavour(name)
    if name in recipe.FREEBSD and os.environ.get(FREEBSD_IMAGE):
        return find(name)
    if not recipe.compiles(name):
        return _build(flavour, again, None)
    given = source or os.environ.get(ZFS_SOURCE)
    with zfs_source.packed(Path(given)) if given else nullcontext() as packed:
        return _build(flavour, again, packed)


def _build(
    flavour: recipe.Flavour | recipe.Release, again: bool, source: zfs_source.Packed | None
) -> Image:
    image = _image(flavour)
    name = flavour.name

    def there() -> bool:
        return image.path.is_dir() and (
            source is None or image.manifest().get("source") == source.digest
        )

    if there() and not again:
        return image
    if source is None and recipe.compiles(name):
        hint = f"add --zfs-source FILE (a tree or an archive), or set {ZFS_SOURCE}"
        raise LabError(f"{name} needs the source of OpenZFS", hint, status=USAGE)
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{cache_dir()}: {error.strerror}", "set XDG_CACHE_HOME") from None
    started = time.monotonic()
    with _lock(f"{name}-{image.key}") as waited:
        if there() and (waited or not again):
            return image
        _remove_stale()
        scratch = cache_dir() / f"tmp-{name}-{image.key}"
        scratch.mkdir()
        try:
            if isinstance(flavour, recipe.Release):
                _fill_freebsd(scratch, flavour, started)
            else:
                _fill_debian(scratch, flavour, source, started)
            _replace(scratch, image.path)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    _say(f"{name}: done in {format_time(time.monotonic() - started)}")
    return image


def clean(everything_too: bool = False) -> list[str]:
    """Removes images of older recipes and leftovers (or all images); returns their names."""
    gone = []
    for image in everything():
        if everything_too or not is_current(image):
            shutil.rmtree(image.path, ignore_errors=True)
            gone.append(image.path.name)
    if cache_dir().is_dir():
        gone += _remove_stale()
    return gone


def _image(flavour: recipe.Flavour | recipe.Release) -> Image:
    key = recipe.key(flavour)
    path = cache_dir() / f"{flavour.name}-{key}"
    return Image(flavour.name, key, path, _system(flavour.name))


def _system(name: str) -> str:
    return "freebsd" if name in recipe.FREEBSD else "debian"


def _check_tools() -> None:
    tools = ["mmdebstrap", "mke2fs", "tar", *([] if os.geteuid() == 0 else ["fakeroot"])]
    missing = missing_programs(tools)
    if missing:
        raise LabError(f"{', '.join(missing)} not found", "run scripts/bootstrap")


def _fill_freebsd(scratch: Path, release: recipe.Release, started: float) -> None:
    """Makes the image of `release` in the empty directory `scratch`."""
    progress = _Progress(release.name, scratch / "build.log", started)
    versions = vm_image.fill(scratch, release, qemu.find(), progress.step)
    _write_manifest(scratch, release.name, versions, started)


def _write_manifest(
    scratch: Path, flavour: str, facts: Mapping[str, object], started: float
) -> None:
    manifest = {
        "flavour": flavour,
        **facts,
        "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(time.monotonic() - started),
    }
    (scratch / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def _fill_debian(
    scratch: Path, flavour: recipe.Flavour, source: zfs_source.Packed | None, started: float
) -> None:
    """Makes the image of `flavour` in the empty directory `scratch`."""
    _check_tools()
    progress = _Progress(flavour.name, scratch / "build.log", started)
    archive = scratch / "root.tar"
    progress.step("installing Debian and compiling OpenZFS")
    mirror = os.environ.get("ZFSTUNE_MIRROR") or None
    command = recipe.mmdebstrap(
        flavour, str(archive), mirror, str(source.archive) if source else None
    )
    with _chroot(scratch) as directory:
        progress.run(
            [*_own_mounts(), command[0], "--verbose", *command[1:]], {"TMPDIR": str(directory)}
        )
    progress.step("making the disk image")
    # Device nodes need privilege, and the guest makes its own. fakeroot remembers owners during one
    # command only, so all of this is one command.
    script = (
        'mkdir "$1/tree" && tar -C "$1/tree" --exclude="./dev/*" -xf "$1/root.tar" && '
        'mke2fs -q -F -t ext4 -m 0 -O "^has_journal,^metadata_csum" '
        '-E lazy_itable_init=1,root_owner=0:0 -d "$1/tree" "$1/disk.img" "$2"'
    )
    fake = [] if os.geteuid() == 0 else ["fakeroot"]
    progress.run([*fake, "sh", "-c", script, "sh", str(scratch), _VIRTUAL_SIZE])
    tree = scratch / "tree"
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    release = kernel.name.removeprefix("vmlinuz-")
    shutil.copyfile(kernel, scratch / "vmlinuz")
    (scratch / "initrd").write_bytes(initrd.base(tree, release))
    packages = dict(
        line.split() for line in (tree / "etc/zfslab/packages").read_text().splitlines()
    )
    archive.unlink()
    # an ordinary user cannot empty directories without write permission
    subprocess.run(["chmod", "-R", "u+rwX", str(tree)], check=False, capture_output=True)
    shutil.rmtree(tree)
    facts: dict[str, object] = {"kernel": release, "packages": packages}
    facts["zfs"] = packages["zfs-source" if source else "zfs-dkms"]
    if source:
        facts["source"] = source.digest
    _write_manifest(scratch, flavour.name, facts, started)


@contextmanager
def _chroot(scratch: Path) -> Iterator[Path]:
    """A directory for mmdebstrap, outside the cache, which its other users cannot enter.

    A link in `scratch` leads there, so that it can be removed after a build that was killed.
    """
    directory = Path(tempfile.mkdtemp(prefix="zfslab-", dir=scratch_dir()))
    (scratch / _CHROOT_LINK).symlink_to(directory)
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        _remove_chroot(directory)
        (scratch / _CHROOT_LINK).unlink()


def _own_mounts() -> list[str]:
    """Hides the mounts of root's mmdebstrap from others, and ends them if it is killed."""
    return ["unshare", "--mount", "--propagation", "private", "--"] if os.geteuid() == 0 else []


def _remove_chroot(directory: Path) -> None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[4].startswith(f"{directory}/"):
            raise LabError(f"{line.split()[4]} is still mounted", "unmount it, then build again")
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists() and os.geteuid() != 0:
        # the rest belongs to users of our name space
        helper = ["mmdebstrap", "--unshare-helper", "rm", "-rf", str(directory)]
        subprocess.run(helper, check=False, capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)


def _replace(scratch: Path, target: Path) -> None:
    """Atomically replaces `target` by `scratch`."""
    if target.is_dir():
        old = target.with_name(f"tmp-old-{target.name}")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        scratch.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        scratch.rename(target)


def _remove_stale() -> list[str]:
    """Removes temporary directories whose builder is gone: their lock is free."""
    gone = []
    for path in cache_dir().glob("tmp-*"):
        name = path.name.removeprefix("tmp-").removeprefix("old-")
        with suppress(BlockingIOError), _lock(name, wait=False):
            if (path / _CHROOT_LINK).is_symlink():
                _remove_chroot((path / _CHROOT_LINK).readlink())
            subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=False, capture_output=True)
            shutil.rmtree(path, ignore_errors=True)
            gone.append(path.name)
    return gone


_held: set[str] = set()


@contextmanager
def _lock(name: str, wait: bool = True) -> Iterator[bool]:
    """Holds the lock called `name`; yields whether it had to wait for another holder. Raises
    BlockingIOError instead of waiting if not `wait`."""
    if name in _held:  # flock does not nest
        yield False
        return
    with (cache_dir() / f"{name}.lock").open("w") as file:
        waited = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            _say(f"{name}: waiting for another build")
            fcntl.flock(file, fcntl.LOCK_EX)
            waited = True
        _held.add(name)
        try:
            yield waited
        finally:
            _held.discard(name)


class _Progress:
    """Runs the steps of a build: logs everything to a file, the main points to stderr."""

    def __init__(self, name: str, log: Path, started: float) -> None:
        self._name = name
        self._log = log
        self._started = started
        self._spoken = started
        self._latest = "still building"

    def step(self, text: str) -> None:
        self._spoken = time.monotonic()
        _say(f"{self._name}: {text} ({format_time(self._spoken - self._started)})")

    def run(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        """Runs `command`. Prints the end of its output and raises LabError if it fails."""
        recent: list[str] = []
        with self._log.open("a") as log, self._heartbeat():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
            assert process.stdout is not None
            try:
                watcher = ends_with_parent(process.pid)
                for line in process.stdout:
                    log.write(line)
                    recent = [*recent[-19:], line]
                    self._show(line)
                status = process.wait()
                watcher.communicate("done\n")
            except BaseException:
                _say(f"{self._name}: interrupted, cleaning up")
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=60)
                raise
        if status != 0:
            sys.stderr.writelines(recent)
            kept = cache_dir() / f"failed-{self._name}.log"
            shutil.copyfile(self._log, kept)
            what = f"cannot build {self._name}: {command[0]} ended with status {status}"
            raise LabError(what, f"see {kept}", status=1)

    def _show(self, line: str) -> None:
        """Prints the main points; keeps the latest other line for the heartbeat."""
        if line.startswith("I: "):
            self.step(line.removeprefix("I: ").strip())
        elif line.strip() and not line[0].isspace():
            self._latest = line.strip()[:70]

    @contextmanager
    def _heartbeat(self) -> Iterator[None]:
        """Prints something now and then: compiling OpenZFS is silent for minutes."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(1.0):
                if time.monotonic() - self._spoken > _QUIET_S:
                    self.step(self._latest)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def describe(image: Image) -> str:
    """One line on `image` for `scripts/lab list`."""
    facts = image.manifest()
    state = "" if is_current(image) else "  (older recipe: `scripts/lab clean` removes it)"
    return (
        f"{image.flavour:<18}{facts['kernel']!s:<30}{facts['zfs']!s:<22}"
        f"{format_size(image.size_bytes()):>6}  {facts['built']}{state}"
    )


def _say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)
