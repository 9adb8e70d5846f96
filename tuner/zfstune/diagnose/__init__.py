"""`zfstune diagnose`: observes, quantifies, and names causes with their remedies."""
