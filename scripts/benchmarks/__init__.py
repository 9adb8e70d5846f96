"""Measures what zfstune costs and how well it searches; writes pages of docs/measurements."""
