"""The lab: virtual machines with a stock Debian kernel and OpenZFS, for tests and for people.

`recipe` says what is in an image, `image` builds it, `qemu` finds out how it can be run here,
`machine` writes the command line, `session` runs a command in it.  `guest/` runs inside.
"""
