"""Files that belong to a package, wherever it was imported from: a folder, or the one file."""

from __future__ import annotations

import importlib.util
import os


def read(package: str, name: str) -> bytes:
    """A file beside a package's modules, some of which scripts/dist/pack.py has packed by xz.
    Raises OSError if there is none, ValueError if it is damaged.

    By the package's own loader: importlib.resources would do it too, but takes longer to import
    than most commands to start.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None or spec.loader is None:
        raise FileNotFoundError(f"no package {package}")
    # Not pathlib: the command line does without it, until a command runs.
    path = os.path.join(os.path.dirname(spec.origin), name)  # noqa: PTH118, PTH120
    get = spec.loader.get_data  # type: ignore[attr-defined]
    try:
        data: bytes = get(path)
    except OSError as error:
        try:
            packed = get(f"{path}.xz")
        except OSError:
            raise error from None
        data = unpacked(packed)
    return data


def unpacked(packed: bytes) -> bytes:
    """What xz has packed. Raises ValueError if it is damaged."""
    import lzma

    try:
        return lzma.decompress(packed)
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(error) from None


def archive(package: str) -> str:
    """The path of the one file that a package was imported from; "" if from a folder."""
    spec = importlib.util.find_spec(package)
    # of scripts/dist/importer.py
    return str(getattr(spec and spec.loader, "archive", ""))
