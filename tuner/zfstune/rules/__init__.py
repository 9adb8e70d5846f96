"""The language of conditions in which rule files are written."""
