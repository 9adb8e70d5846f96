"""Incident files: what the flight recorder kept of the hours before somebody asked.

gzip of JSON lines. The first is the header (`fields.HEADER`), the last tells how many were between
them (`end`), so that a file that was cut short is known as such. The others are in order of time:
an `interval` opens each interval, and the objects of `trace --json` that follow it were counted in
it; `slow_fsync`, `txg`, `diagnosis`, `parameter_change`, `pool_state` and `note` are of their time.
`fields.RECORDS` has every field of every type.
"""
