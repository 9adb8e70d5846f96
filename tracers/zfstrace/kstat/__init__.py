"""Kstats of OpenZFS, as files or sysctls show them."""
