"""`zfstune flame`: records, compares and converts flame graphs."""
