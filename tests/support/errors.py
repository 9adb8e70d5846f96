"""What an error of zfstune looks like."""

ONE_ERROR = r"zfstune: error: [^\n]+\n(hint: [^\n]+\n)?"
# where a trace is refused: below it, what works all the same
REFUSED = ONE_ERROR + r"(this works here all the same[^\n]+\n(  [^\n]+\n)+)?"
