"""`zfstune bench`: measures what a synchronous write costs."""
