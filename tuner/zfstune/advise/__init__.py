"""`zfstune advise`: judges how a pool, its datasets and a database are set up."""
