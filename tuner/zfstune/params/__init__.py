"""`zfstune params`: shows, sets and explains parameters."""
