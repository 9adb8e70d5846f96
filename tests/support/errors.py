"""What an error of zfstune looks like."""

ONE_ERROR = r"zfstune: error: [^\n]+\n(hint: [^\n]+\n)?"
