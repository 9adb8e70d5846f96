"""The language of the rule files, and the thresholds that rules share."""
