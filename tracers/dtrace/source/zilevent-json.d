/*
 * zilevent-json.d  One JSON object for each ZIL commit on OpenZFS, with its parts.
 *
 * USAGE: zilevent-json.d [MIN_MS [POOL]]
 *
 * Only commits of MIN_MS or more, by default all. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=4m
#pragma D option aggsize=1m
#pragma D option dynvarsize=16m
#pragma D option strsize=64
#pragma D option switchrate=10hz
#pragma D option aggrate=10hz

inline string WANTED = $$2;
inline uint64_t MIN_MS = $1;

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"zilevent\"}\n");
}

{{include commit.d}}

/* The call writes the pages of mappings back before zfs_fsync(): the stage writeback. */
{{CALL_ENTRY}}
{
	self->called = timestamp;
}

{{CALL_RETURN}}
{
	self->called = 0;
}

/* (znode_t *): fsync(2), fdatasync(2) or msync(2). With sync=disabled it does not commit. */
fbt:{{ZFS}}:zfs_fsync:entry
{
	self->in_fsync = timestamp;
	self->os = (uint64_t){{ZNODE_OS}};
	self->commits = 0;
}

fbt:{{ZFS}}:zil_commit:entry,
fbt:{{ZFS}}:zil_commit_flags:entry
/self->in_fsync/
{
	self->commits = 1;
}

{{COMMIT_RETURN}}
/self->start && self->assigned/
{
	@commits = sum(1);
	seen_commit = 1;
	this->writeback = self->in_fsync && self->called ? self->start - self->called : 0;
	this->total = this->writeback + self->since - self->start;
}

{{COMMIT_RETURN}}
/self->start && self->assigned && this->total >= MIN_MS * 1000000/
{
	/* when it began */
	this->wall = walltimestamp - this->total;
{{include utc.d}}
	printf("{\"schema\":1,\"type\":\"commit\",\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06dZ\"",
	    this->year, this->month, this->day, this->s / 3600 % 24, this->s / 60 % 60, this->s % 60,
	    this->wall / 1000 % 1000000);
	printf(",\"pid\":%d,\"tid\":%d,\"comm\":\"%s\"", pid, tid,
	    index(execname, "\"") < 0 && index(execname, "\\") < 0 && index(execname, "\n") < 0 &&
	    index(execname, "\r") < 0 ? execname : "?");
	printf(",\"pool\":\"%s\",\"dataset\":null,\"objset\":%d,\"object\":%d,\"total_ns\":%d",
	    stringof((({{ZILOG_T}} *)self->zilog)->zl_spa->spa_name),
	    (({{ZILOG_T}} *)self->zilog)->zl_os->os_dsl_dataset->ds_object, self->object, this->total);
	printf(",\"stages\":{\"writeback\":%d", this->writeback);
	printf(",\"async_to_sync\":%d,\"tx_assign\":%d,\"issuer_lock\":%d,\"issue\":%d",
	    self->part[1], self->part[2], self->part[3], self->part[4]);
	printf(",\"batch_wait\":%d,\"log_write\":%d,\"flush\":%d,\"wakeup\":%d",
	    self->part[5], self->part[6], self->part[7], self->part[8]);
	printf(",\"txg_fallback\":%d,\"device_wait\":%d},\"txg_state\":null,\"kind\":\"%s\"}\n",
	    self->part[9], self->part[10], self->in_fsync ? "fsync" : "other");
}

{{COMMIT_RETURN}}
/self->start && !self->assigned/
{
	this->objset = (({{ZILOG_T}} *)self->zilog)->zl_os->os_dsl_dataset->ds_object;
	@past[stringof((({{ZILOG_T}} *)self->zilog)->zl_spa->spa_name), this->objset] = count();
	@past_ns[stringof((({{ZILOG_T}} *)self->zilog)->zl_spa->spa_name), this->objset] =
	    sum(timestamp - self->start);
	@past_max[stringof((({{ZILOG_T}} *)self->zilog)->zl_spa->spa_name), this->objset] =
	    max(timestamp - self->start);
}

{{include commit-end.d}}

dtrace:::BEGIN
{
	@commits = sum(0);
}

profile:::tick-500ms,
dtrace:::END
{
	printa("{\"schema\":1,\"type\":\"bypassed\",\"pool\":\"%s\",\"objset\":%d,\"count\":%@u,\"total_ns\":%@u,\"max_ns\":%@u}\n",
	    @past, @past_ns, @past_max);
	printa("{\"schema\":1,\"type\":\"trace_state\",\"count\":%@u,\"lost\":%@u,\"bypassed\":%@u,\"errors\":%@u}\n",
	    @commits, @lost, @bypassed, @errors);
}

fbt:{{ZFS}}:zfs_fsync:return
/self->in_fsync && !self->commits &&
    (WANTED == "" || WANTED == stringof((({{OS_T}} *)self->os)->os_spa->spa_name))/
{
	this->objset = (({{OS_T}} *)self->os)->os_dsl_dataset->ds_object;
	@past[stringof((({{OS_T}} *)self->os)->os_spa->spa_name), this->objset] = count();
	@past_ns[stringof((({{OS_T}} *)self->os)->os_spa->spa_name), this->objset] =
	    sum(timestamp - self->in_fsync);
	@past_max[stringof((({{OS_T}} *)self->os)->os_spa->spa_name), this->objset] =
	    max(timestamp - self->in_fsync);
	@bypassed = sum(1);
}

fbt:{{ZFS}}:zfs_fsync:return
{
	self->in_fsync = 0;
	self->os = 0;
	self->commits = 0;
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"zilevent\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"count\":%@u", @commits);
	printa(",\"lost\":%@u", @lost);
	printa(",\"bypassed\":%@u", @bypassed);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[%s%s%s%snull]}\n",
	    seen_commit ? "" : "\"fbt:{{ZFS}}:zil_commit:return\",",
	    saw_written ? "" : "\"fbt:{{ZFS}}:zil_lwb_write_done:entry\",",
	    saw_flushed ? "" : "\"fbt:{{ZFS}}:zil_lwb_flush_vdevs_done:entry\",",
	    saw_told ? "" : "\"{{CV_BROADCAST}}\",");
}
