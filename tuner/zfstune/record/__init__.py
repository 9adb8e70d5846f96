"""`zfstune record`: the flight recorder, hours of all views in memory, written when asked."""
