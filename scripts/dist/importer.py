"""Imports the modules of the one file: from byte code, where pack.py has packed some for this
Python, else from their sources, which are packed as one, and unpacked when the first is needed."""

from __future__ import annotations

import importlib.util
import marshal
import sys
import zipimport
import zlib
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

SOURCES = "sources.xz"
CODE = f"code-{int.from_bytes(importlib.util.MAGIC_NUMBER[:2], 'little')}"


class Importer:
    """A finder for sys.meta_path, and a loader. Reads a copy, and calls it by the name of the file,
    which people know."""

    def __init__(self, archive: str, copy: str) -> None:
        self.archive = archive
        self._read = zipimport.zipimporter(copy).get_data
        self._sources: dict[str, str] = {}
        # by files; of some there is no byte code
        self._code: dict[str, bytes]
        try:
            self._code = marshal.loads(zlib.decompress(self._read(CODE)))
        except OSError:
            self._code = dict.fromkeys(self._unpacked(), b"")
        except zlib.error as error:
            raise self._damaged(error) from None

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """That of a module inside."""
        if self._file(name) not in self._code:
            return None
        location = f"{self.archive}/{self._file(name)}"
        return importlib.util.spec_from_file_location(
            name,
            location,
            loader=self,  # type: ignore[arg-type]
        )

    def create_module(self, spec: ModuleSpec) -> None:
        """As Python does."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs a module."""
        exec(self.get_code(module.__name__), module.__dict__)

    def is_package(self, name: str) -> bool:
        """Whether a module is a package."""
        return f"{name.replace('.', '/')}/__init__.py" in self._code

    def get_code(self, name: str) -> CodeType:
        """That of a module, in which its file has the same name wherever the code is from."""
        file = self._file(name)
        packed = self._code[file]
        if packed:
            code: CodeType = marshal.loads(zlib.decompress(packed, -zlib.MAX_WBITS))
            return code
        return compile(self._unpacked()[file], file, "exec", dont_inherit=True)

    def get_source(self, name: str) -> str:
        """That of a module, for tracebacks."""
        return self._unpacked()[self._file(name)]

    def get_data(self, path: str) -> bytes:
        """Of a file beside a module. Raises OSError if there is none."""
        return self._read(path[len(self.archive) + 1 :])

    def _file(self, name: str) -> str:
        return name.replace(".", "/") + ("/__init__.py" if self.is_package(name) else ".py")

    def _unpacked(self) -> dict[str, str]:
        """The sources, by their files."""
        if not self._sources:
            import lzma

            try:
                text = lzma.decompress(self._read(SOURCES)).decode()
            except (lzma.LZMAError, EOFError) as error:
                raise self._damaged(error) from None
            parts = (part.partition("\n") for part in text.split("\0"))
            self._sources = {file: source for file, _, source in parts}
        return self._sources

    def _damaged(self, error: Exception) -> SystemExit:
        print(
            f"zfstune: error: {self.archive} is damaged ({error})\n"
            "hint: copy the file again, and compare it with SHA256SUMS",
            file=sys.stderr,
        )
        return SystemExit(3)
