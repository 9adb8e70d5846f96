/*
 * zilcommit.d  Where ZIL commits (fsync, O_SYNC writes, ...) on OpenZFS spend their time.
 *
 * USAGE: zilcommit.d [POOL]
 *
 * A histogram and a sum for each stage. A committing thread is always in exactly one stage, so
 * the sums of the stages add up to that of the commits. See zilcommit.d(8).
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option dynvarsize=16m
#pragma D option strsize=64

inline string WANTED = $$1;

dtrace:::BEGIN
{
	printf("Tracing ZIL commits... Hit Ctrl-C to end.\n");
}

{{include commit.d}}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[1]/
{
	@us["async_to_sync"] = quantize(self->part[1] / 1000);
	@sum_us["async_to_sync"] = sum(self->part[1] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[2]/
{
	@us["tx_assign"] = quantize(self->part[2] / 1000);
	@sum_us["tx_assign"] = sum(self->part[2] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[3]/
{
	@us["issuer_lock"] = quantize(self->part[3] / 1000);
	@sum_us["issuer_lock"] = sum(self->part[3] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[4]/
{
	@us["issue"] = quantize(self->part[4] / 1000);
	@sum_us["issue"] = sum(self->part[4] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[5]/
{
	@us["batch_wait"] = quantize(self->part[5] / 1000);
	@sum_us["batch_wait"] = sum(self->part[5] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[6]/
{
	@us["log_write"] = quantize(self->part[6] / 1000);
	@sum_us["log_write"] = sum(self->part[6] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[7]/
{
	@us["flush"] = quantize(self->part[7] / 1000);
	@sum_us["flush"] = sum(self->part[7] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[8]/
{
	@us["wakeup"] = quantize(self->part[8] / 1000);
	@sum_us["wakeup"] = sum(self->part[8] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[9]/
{
	@us["txg_fallback"] = quantize(self->part[9] / 1000);
	@sum_us["txg_fallback"] = sum(self->part[9] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[10]/
{
	@us["device_wait"] = quantize(self->part[10] / 1000);
	@sum_us["device_wait"] = sum(self->part[10] / 1000);
}

{{COMMIT_RETURN}}
/self->start && self->assigned/
{
	this->us = (self->since - self->start) / 1000;
	@commit_us = quantize(this->us);
	@sum_us["commits"] = sum(this->us);
	@commits = sum(1);
	seen_commit = 1;
}

{{include commit-end.d}}

dtrace:::BEGIN
{
	@commits = sum(0);
}

dtrace:::END
{
	printf("\nTime of each commit in each stage, us:\n");
	printa(@us);
	printf("Whole commits, us:\n");
	printa(@commit_us);
	printf("Sums, us:\n");
	printa("  %-16s %@16u\n", @sum_us);
	printa("\n%@u commits", @commits);
	printa(", lost: %@u", @lost);
	printa(", past the log: %@u", @bypassed);
	printa(", errors: %@u\n", @errors);
}

{{include commit-missing.d}}
