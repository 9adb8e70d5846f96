"""`scripts/freebsd-check`: tries every part of zfstune on a real FreeBSD host."""
