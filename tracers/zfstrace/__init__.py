"""Measures where an fsync on OpenZFS spends its time.

Types, histograms and summaries are plain Python; :mod:`zfstrace.bpf.binding` binds the
C library that attaches to the kernel. Nothing here asks which system it is on.
"""
