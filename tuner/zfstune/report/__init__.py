"""`zfstune report`: the report of a session, from its JSON."""
