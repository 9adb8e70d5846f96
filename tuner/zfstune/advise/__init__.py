"""`zfstune advise`: judges pools, datasets, parameters and a database's configuration by rules."""
