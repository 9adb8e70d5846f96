"""Loads that read and write in blocks, of known number and size."""

from __future__ import annotations

import os

BLOCK = 8192

# reads that begin when it is told to
READER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
input()
for i in range(int(sys.argv[2])):
    os.pread(fd, 4096, 0)
"""


def fill(path: str, blocks: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for i in range(blocks):
        os.pwrite(fd, os.urandom(BLOCK), i * BLOCK)
    os.fsync(fd)
    os.close(fd)


def preads(path: str, n: int, size: int = BLOCK, blocks: int = 64) -> None:
    """Reads block after block, n times, into memory that is there."""
    fd, buffer = os.open(path, os.O_RDONLY), bytearray(b"x" * size)
    for i in range(n):
        os.preadv(fd, [buffer], i % blocks * BLOCK)
    os.close(fd)


def pwrites(path: str, n: int, size: int = BLOCK) -> None:
    """Writes block after block, n times."""
    fd, data = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), b"x" * size
    for i in range(n):
        os.pwrite(fd, data, i * size)
    os.close(fd)
