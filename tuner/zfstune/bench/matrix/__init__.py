"""`zfstune bench --matrix`: the table of a report, row by row, on pools made for it."""
