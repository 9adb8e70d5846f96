"""cpio archives ("newc"), the format of an initial RAM disk."""

from __future__ import annotations

import stat

_TRAILER = "TRAILER!!!"


class Archive:
    """Collects files in memory; `data()` is the finished archive, to which others may be
    appended."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inode = 0
        self._directories: set[str] = set()

    def directory(self, name: str) -> None:
        """Adds directory `name` and its parents, once."""
        path = ""
        for part in name.strip("/").split("/"):
            path = f"{path}/{part}".lstrip("/")
            if path not in self._directories:
                self._directories.add(path)
                self._entry(path, stat.S_IFDIR | 0o755, b"")

    def file(self, name: str, content: bytes, executable: bool = False) -> None:
        """Adds a regular file, with its directories."""
        if "/" in name:
            self.directory(name.rpartition("/")[0])
        self._entry(name, stat.S_IFREG | (0o755 if executable else 0o644), content)

    def device(self, name: str, major: int, minor: int) -> None:
        """Adds a character device; being only text in the archive, it needs no privilege."""
        if "/" in name:
            self.directory(name.rpartition("/")[0])
        self._entry(name, stat.S_IFCHR | 0o600, b"", (major, minor))

    def data(self) -> bytes:
        """The archive, padded to a multiple of 512 bytes so that another one may follow."""
        body = b"".join(self._parts) + _header(_TRAILER, 0, 0, 0, (0, 0))
        return body + bytes(-len(body) % 512)

    def _entry(
        self, name: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)
    ) -> None:
        self._inode += 1
        self._parts.append(_header(name, self._inode, mode, len(content), device))
        self._parts.append(content + bytes(-len(content) % 4))


def _header(name: str, inode: int, mode: int, size: int, device: tuple[int, int]) -> bytes:
    encoded = name.encode() + b"\0"
    # inode, mode, uid, gid, nlink, mtime, size, dev major/minor, rdev major/minor, name, check
    numbers = (inode, mode, 0, 0, 1, 0, size, 0, 0, *device, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + encoded
    return head + bytes(-len(head) % 4)
