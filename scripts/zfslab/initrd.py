"""The initial RAM disk: busybox, the few modules needed to reach the root file system, a script.

Debian's own initrd takes several seconds to unpack under emulation, hence this one. The part in the
image does not change; what differs between runs (guest scripts, configuration) is appended as a
second archive, so that editing a script rebuilds no image.
"""

from __future__ import annotations

import gzip
import json
import lzma
import shlex
from collections.abc import Mapping
from pathlib import Path

from .cpio import Archive
from .errors import LabError

# without virtio_mmio: these are PCI machines
_WANTED = ("virtio_pci", "virtio_blk", "virtio_console", "ext4", "9p", "9pnet_virtio", "overlay")
# kernels before 6.14 reach crc32c through the crypto API, without a dependency on the module
_WHERE_PRESENT = ("crc32c_generic", "crc32c_intel")

GUEST = Path(__file__).resolve().parent / "guest"


def base(root: Path, release: str) -> bytes:
    """The fixed part, from the root file system at `root` for kernel `release`."""
    archive = Archive()
    archive.device("dev/console", 5, 1)
    for name in ("proc", "sys", "root"):
        archive.directory(name)
    busybox = root / "usr/bin/busybox"
    if not busybox.exists():
        busybox = root / "bin/busybox"
    archive.file("bin/busybox", busybox.read_bytes(), executable=True)
    order = []
    for path in _load_order(root / "usr/lib/modules" / release):
        name = path.name.removesuffix(".xz").removesuffix(".gz")
        order.append(name)
        archive.file(f"modules/{name}", _uncompressed(path))
    archive.file("modules/order", "\n".join([*order, ""]).encode())
    return archive.data()


def per_run(config: Mapping[str, str], command: Mapping[str, object]) -> bytes:
    """The part for one run: the guest's scripts, `config` as shell variables, `command` as JSON."""
    archive = Archive()
    archive.file("init", (GUEST / "init.sh").read_bytes(), executable=True)
    for name in ("start.sh", "agent.py"):
        archive.file(f"zfslab/{name}", (GUEST / name).read_bytes(), executable=True)
    archive.file("zfslab/agent.service", (GUEST / "agent.service").read_bytes())
    lines = [f"{key}={shlex.quote(value)}\n" for key, value in config.items()]
    archive.file("zfslab/config", "".join(lines).encode())
    archive.file("zfslab/command.json", json.dumps(command).encode())
    return archive.data()


def _load_order(modules: Path) -> list[Path]:
    """The module files to insert, dependencies first."""
    depends: dict[str, tuple[str, list[str]]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, needs = line.partition(":")
        depends[_module_name(path)] = (path, needs.split())
    builtin = {_module_name(p) for p in (modules / "modules.builtin").read_text().split()}
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        path, needs = depends[name]
        for need in reversed(needs):  # modules.dep lists the nearest dependency first
            add(_module_name(need))
        order.setdefault(name, modules / path)

    for name in (*_WHERE_PRESENT, *_WANTED):
        if name in depends:
            add(name)
        elif name not in builtin and name in _WANTED:
            raise LabError(f"kernel module {name} is not in the image", "avoid cloud kernels")
    return list(order.values())


def _module_name(path: str) -> str:
    return path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def _uncompressed(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(content)
    return gzip.decompress(content) if path.suffix == ".gz" else content
