#!/usr/bin/env python3
"""Records which parameters four versions of OpenZFS have, from a git clone of it:
record_parameters.py CLONE > zfs_parameters.txt

A line has the name on Linux, the name on FreeBSD (- where there is none), and for each system a
letter per version: w can be set at any time, r only when the module is loaded, - is not there.
Macros are read, not run: what only some architecture or build has counts as there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

VERSIONS = ("2.1.11", "2.2.9", "2.3.9", "2.4.4")
_SPACE = r"\s*"
_ARGUMENT = r"\s*([\w|\s]+?)\s*"
_SHARED = re.compile(
    rf"^ZFS_MODULE_(?:VIRTUAL_)?PARAM(?:_CALL)?\({_ARGUMENT},{_ARGUMENT},{_ARGUMENT},(.*?)\);",
    re.MULTILINE | re.DOTALL,
)
_LINUX = re.compile(r"^module_param(?:_call|_named)?\((.*?)\);", re.MULTILINE | re.DOTALL)
_NODE = re.compile(rf"SYSCTL_NODE\({_ARGUMENT},{_ARGUMENT},{_ARGUMENT},", re.DOTALL)
_SYSCTL = re.compile(
    rf"^SYSCTL_(?!NODE|DECL)\w+\({_ARGUMENT},{_ARGUMENT},{_ARGUMENT},(.*?)\);",
    re.MULTILINE | re.DOTALL,
)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')


def files(clone: str, version: str, folder: str) -> Iterator[tuple[str, str]]:
    """Paths and texts of the C sources of both systems."""
    tag = f"zfs-{version}"
    listed = subprocess.run(
        ["git", "-C", clone, "ls-tree", "-r", "--name-only", tag, folder],
        capture_output=True,
        text=True,
        check=True,
    )
    for path in listed.stdout.split():
        if path.endswith(".c"):
            shown = subprocess.run(
                ["git", "-C", clone, "show", f"{tag}:{path}"], capture_output=True, check=True
            )
            yield path, shown.stdout.decode("utf-8", "replace")


def letter(text: str) -> str:
    return "w" if re.search(r"ZMOD_RW|0644|CTLFLAG_RW|CTLFLAG_WR", text) else "r"


def read(clone: str, version: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Of one version: letters by Linux name, letters by sysctl, sysctls by Linux name."""
    linux: dict[str, str] = {}
    freebsd: dict[str, str] = {}
    names: dict[str, str] = {}
    texts = dict(files(clone, version, "module"))
    nodes = {"_vfs": "vfs", "_kstat": "kstat"}
    found = [match for text in texts.values() for match in _NODE.findall(text)]
    for _ in range(5):  # a node may come before its parent
        for parent, _number, name in found:
            if parent in nodes:
                nodes[f"{parent}_{name}"] = f"{nodes[parent]}.{name}"
    for path, text in texts.items():
        for scope, prefix, name, rest in _SHARED.findall(text):
            if "/os/linux/" not in path:
                oid = f"{nodes['_vfs_' + scope]}.{name}"
                freebsd[oid] = letter(rest)
                names[prefix.strip() + name] = oid
            if "/os/freebsd/" not in path:
                linux[prefix.strip() + name] = letter(rest)
        if "/os/linux/" in path:
            for rest in _LINUX.findall(text):
                linux[rest.split(",")[0].strip()] = letter(rest)
        if "/os/freebsd/" in path:
            for parent, _number, name, rest in _SYSCTL.findall(text):
                if nodes.get(parent, "").startswith("vfs.zfs"):
                    freebsd[f"{nodes[parent]}.{name}"] = letter(_STRING.sub("", rest))
    return linux, freebsd, names


def main(clone: str) -> None:
    read_all = [read(clone, version) for version in VERSIONS]
    oids = {name: oid for _linux, _freebsd, names in read_all for name, oid in names.items()}
    print("# Written by record_parameters.py from OpenZFS", *VERSIONS)
    for name in sorted({name for linux, _, _ in read_all for name in linux} | set(oids)):
        oid = oids.get(name, "-")
        there = "".join(linux.get(name, "-") for linux, _, _ in read_all)
        print(name, oid, there, "".join(freebsd.get(oid, "-") for _, freebsd, _ in read_all))
    for oid in sorted({oid for _, freebsd, _ in read_all for oid in freebsd} - set(oids.values())):
        print("-", oid, "----", "".join(freebsd.get(oid, "-") for _, freebsd, _ in read_all))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: record_parameters.py CLONE")
    main(sys.argv[1])
