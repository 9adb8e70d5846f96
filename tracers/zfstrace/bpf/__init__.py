"""The binding to libzfstrace.so: loads it, starts its tracers, reads their counts."""
