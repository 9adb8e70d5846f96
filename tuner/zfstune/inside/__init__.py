"""`zfstune tools` and `zfstune licences`: what a copy of zfstune holds beside its commands."""
