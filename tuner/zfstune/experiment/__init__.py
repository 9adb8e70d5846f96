"""Experiments: candidates against a baseline in blocks, the search and the proof."""
