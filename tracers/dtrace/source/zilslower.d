/*
 * zilslower.d  One line for each slow ZIL commit on OpenZFS, with its parts.
 *
 * USAGE: zilslower.d [MIN_MS [POOL]]
 *
 * MIN_MS is 10 by default; 0 shows all. The parts do not overlap and add up to TOTAL.
 * See zilslower.d(8).
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=4m
#pragma D option dynvarsize=16m
#pragma D option strsize=64
#pragma D option switchrate=10hz

inline string WANTED = $$2;
inline uint64_t MIN_MS = $$1 == "" ? 10 : $1;

dtrace:::BEGIN
{
	printf("Tracing ZIL commits of %u ms or more, times in us... Hit Ctrl-C to end.\n", MIN_MS);
	printf("%-8s %-7s %-7s %7s %5s %5s %5s %6s %6s %6s %6s %5s %6s %6s %s\n", "UTC", "PID", "OBJECT",
	    "TOTAL", "ASYNC", "TX", "LOCK", "ISSUE", "BATCH", "WRITE", "FLUSH", "WAKE", "TXG", "DEVICE",
	    "COMM");
}

{{include commit.d}}

{{COMMIT_RETURN}}
/self->start && self->assigned/
{
	@commits = sum(1);
	seen_commit = 1;
	this->total = self->since - self->start;
}

{{COMMIT_RETURN}}
/self->start && self->assigned && this->total >= MIN_MS * 1000000/
{
	this->s = walltimestamp / 1000000000;
	printf("%02d:%02d:%02d %-7d %-7d %7d %5d %5d %5d %6d %6d %6d %6d %5d %6d %6d %s\n",
	    this->s / 3600 % 24, this->s / 60 % 60, this->s % 60, pid, self->object,
	    this->total / 1000, self->part[1] / 1000, self->part[2] / 1000, self->part[3] / 1000,
	    self->part[4] / 1000, self->part[5] / 1000, self->part[6] / 1000,
	    self->part[7] / 1000, self->part[8] / 1000, self->part[9] / 1000,
	    self->part[10] / 1000, execname);
	@slow = sum(1);
}

{{include commit-end.d}}

dtrace:::BEGIN
{
	@commits = sum(0);
	@slow = sum(0);
}

dtrace:::END
{
	printa("%@u commits", @commits);
	printa(", %@u slow", @slow);
	printa(", lost: %@u", @lost);
	printa(", past the log: %@u", @bypassed);
	printa(", errors: %@u\n", @errors);
}

{{include commit-missing.d}}
