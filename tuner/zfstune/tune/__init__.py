"""`zfstune tune`: plans a session, asks for consent, runs an experiment and reports."""
