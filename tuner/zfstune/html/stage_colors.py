"""The colours of the stages, in plots and in the keys beside them."""

from __future__ import annotations

# By owner: blue for the device, warm for ZFS, green for the scheduler. Neighbours also differ in
# lightness, for every kind of colour vision and for paper.
_STAGE_COLORS = {
    "writeback": "#f6d9a8",
    "async_to_sync": "#d98a3d",
    "tx_assign": "#f2b84b",
    "issuer_lock": "#b5651d",
    "issue": "#f7cf7a",
    "batch_wait": "#e39a5b",
    "log_write": "#8cc4ec",
    "flush": "#3f8fd2",
    "wakeup": "#7cc9a4",
    "txg_fallback": "#c98bb0",
    "other": "#b9bcc3",
}


def stage_color(name: str) -> str:
    """The colour of a stage as #rrggbb; of `other` for an unknown name."""
    return _STAGE_COLORS.get(name, _STAGE_COLORS["other"])
