"""Traces by dtrace(1): its process, the scripts, and what each script prints."""
