"""A hostile name, as of a process, a vdev, a dataset or a file."""

EVIL = "a\x1b]0;owned\x07\nb\r\x9b2J\udcff<script>\u202e"


def raw(text: str) -> set[str]:
    """The characters of a text, but for newlines, that must not reach a terminal."""
    return {c for c in text if not c.isprintable()} - {"\n"}
