"""Kstats of OpenZFS, from files or sysctls."""
