/*
 * zilcommit-json.d  Where ZIL commits on OpenZFS spend their time, as JSON objects.
 *
 * USAGE: zilcommit-json.d [POOL]
 *
 * It prints when it is interrupted. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option dynvarsize=16m
#pragma D option strsize=64

inline string WANTED = $$1;

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"zilcommit\"}\n");
}

{{include commit.d}}

{{COMMIT_RETURN}}
/self->start && self->assigned/
{
	this->pool = stringof((({{ZILOG_T}} *)self->zilog)->zl_spa->spa_name);
	this->total = self->since - self->start;
	@count[this->pool] = count();
	@mean[this->pool] = avg(this->total);
	@max[this->pool] = max(this->total);
	@commits = sum(1);
	seen_commit = 1;
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[1]/
{
	@stage_sum[this->pool, "async_to_sync"] = sum(self->part[1]);
	@stage_count[this->pool, "async_to_sync"] = count();
	@stage_max[this->pool, "async_to_sync"] = max(self->part[1]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[2]/
{
	@stage_sum[this->pool, "tx_assign"] = sum(self->part[2]);
	@stage_count[this->pool, "tx_assign"] = count();
	@stage_max[this->pool, "tx_assign"] = max(self->part[2]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[3]/
{
	@stage_sum[this->pool, "issuer_lock"] = sum(self->part[3]);
	@stage_count[this->pool, "issuer_lock"] = count();
	@stage_max[this->pool, "issuer_lock"] = max(self->part[3]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[4]/
{
	@stage_sum[this->pool, "issue"] = sum(self->part[4]);
	@stage_count[this->pool, "issue"] = count();
	@stage_max[this->pool, "issue"] = max(self->part[4]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[5]/
{
	@stage_sum[this->pool, "batch_wait"] = sum(self->part[5]);
	@stage_count[this->pool, "batch_wait"] = count();
	@stage_max[this->pool, "batch_wait"] = max(self->part[5]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[6]/
{
	@stage_sum[this->pool, "log_write"] = sum(self->part[6]);
	@stage_count[this->pool, "log_write"] = count();
	@stage_max[this->pool, "log_write"] = max(self->part[6]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[7]/
{
	@stage_sum[this->pool, "flush"] = sum(self->part[7]);
	@stage_count[this->pool, "flush"] = count();
	@stage_max[this->pool, "flush"] = max(self->part[7]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[8]/
{
	@stage_sum[this->pool, "wakeup"] = sum(self->part[8]);
	@stage_count[this->pool, "wakeup"] = count();
	@stage_max[this->pool, "wakeup"] = max(self->part[8]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[9]/
{
	@stage_sum[this->pool, "txg_fallback"] = sum(self->part[9]);
	@stage_count[this->pool, "txg_fallback"] = count();
	@stage_max[this->pool, "txg_fallback"] = max(self->part[9]);
}

{{COMMIT_RETURN}}
/self->start && self->assigned && self->part[10]/
{
	@stage_sum[this->pool, "device_wait"] = sum(self->part[10]);
	@stage_count[this->pool, "device_wait"] = count();
	@stage_max[this->pool, "device_wait"] = max(self->part[10]);
}

{{include commit-end.d}}

dtrace:::BEGIN
{
	@commits = sum(0);
}

/* Percentiles need the single commits: zilslower-json.d 0. */
dtrace:::END
{
	printa("{\"schema\":1,\"type\":\"fsync_summary\",\"pool\":\"%s\",\"dataset\":null,\"count\":%@u,\"latency\":{\"mean\":%@u,\"p50\":null,\"p90\":null,\"p99\":null,\"p999\":null,\"max\":%@u}}\n",
	    @count, @mean, @max);
	printa("{\"schema\":1,\"type\":\"fsync_stage\",\"pool\":\"%s\",\"name\":\"%s\",\"total_ns\":%@u,\"count\":%@u,\"p50\":null,\"p99\":null,\"max\":%@u}\n",
	    @stage_sum, @stage_count, @stage_max);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"zilcommit\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"count\":%@u", @commits);
	printa(",\"lost\":%@u", @lost);
	printa(",\"bypassed\":%@u", @bypassed);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[%s%s%s%snull]}\n",
	    seen_commit ? "" : "\"fbt::zil_commit:return\",",
	    saw_written ? "" : "\"fbt::zil_lwb_write_done:entry\",",
	    saw_flushed ? "" : "\"fbt::zil_lwb_flush_vdevs_done:entry\",",
	    saw_told ? "" : "\"{{CV_BROADCAST}}\",");
}
