"""Shows where an fsync on OpenZFS spends its time."""

__version__ = "0.1.0"
