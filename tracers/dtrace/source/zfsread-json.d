/*
 * zfsread-json.d  Reads and writes of files on OpenZFS, by dataset, as JSON objects.
 *
 * USAGE: zfsread-json.d [POOL [PID]]
 *
 * Prints its sums twice a second. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=256k
#pragma D option aggsize=4m
#pragma D option dynvarsize=4m
#pragma D option strsize=64
#pragma D option switchrate=10hz
#pragma D option aggrate=10hz

inline string WANTED = $$1;
inline int PID = $2;

self uint64_t start;
self uint64_t os;
self uint64_t uio;
self uint64_t left;
self uint64_t held;
self int waited;

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"zfsread\"}\n");
}

dtrace:::BEGIN
{
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

/* (znode_t *, zfs_uio_t *, ...). What is left to move tells afterwards how much was. */
fbt:{{ZFS}}:zfs_read:entry,
fbt:{{ZFS}}:zfs_write:entry
/PID == 0 || pid == PID/
{
	saw_call = 1;
	self->os = (uint64_t){{ZNODE_OS}};
	self->uio = arg1;
	self->left = ((zfs_uio_t *)arg1)->uio->uio_resid;
	self->waited = 0;
	self->held = 0;
	self->start = timestamp;
}

/* zio_wait() calls it only if the I/O is not done yet. */
{{CV_TIMEDWAIT}}
/self->start/
{
	self->waited = 1;
}

/* For a buffer that another thread reads: there the cv follows its mutex. */
{{CV_WAIT}}
/self->start && arg0 > arg1 && arg0 - arg1 <= 192/
{
	self->waited = 1;
}

/* (spa_t *, uint64_t ns): a wait of the thread's transaction has ended. */
fbt:{{ZFS}}:spa_tx_assign_add_nsecs:entry
/self->start/
{
	self->held += arg1;
}

fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
/self->start/
{
	this->ns = timestamp - self->start;
	this->os = ({{OS_T}} *)self->os;
	this->bytes = self->left - ((zfs_uio_t *)self->uio)->uio->uio_resid;
	this->failed = arg1 != 0;
	this->counts = !this->failed && this->bytes > 0;
	this->op = probefunc == "zfs_write" ? "write" : self->waited ? "miss" : "hit";
	this->wanted = WANTED == "" || WANTED == stringof(this->os->os_spa->spa_name);
	this->id = this->os->os_dsl_dataset->ds_object;
	self->start = 0;
{{include bucket.d}}
}

fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
/self->os && this->wanted && this->counts/
{
	@count[stringof(this->os->os_spa->spa_name), this->id, this->op, this->bucket] = count();
	@sum[stringof(this->os->os_spa->spa_name), this->id, this->op, this->bucket] = sum(this->ns);
	@max[stringof(this->os->os_spa->spa_name), this->id, this->op, this->bucket] = max(this->ns);
	@size[stringof(this->os->os_spa->spa_name), this->id, this->op, this->bucket] = sum(this->bytes);
}

fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
/self->os && this->wanted && (this->failed || self->held)/
{
	@failed[stringof(this->os->os_spa->spa_name), this->id] = sum(this->failed);
	@held[stringof(this->os->os_spa->spa_name), this->id] = sum(this->counts && self->held ? 1 : 0);
	@held_ns[stringof(this->os->os_spa->spa_name), this->id] = sum(this->counts ? self->held : 0);
}

fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
{
	self->os = 0;
	self->uio = 0;
	self->left = 0;
	self->held = 0;
	self->waited = 0;
}

profile:::tick-500ms,
dtrace:::END
{
	printa("{\"schema\":1,\"type\":\"read_times\",\"pool\":\"%s\",\"objset\":%u,\"op\":\"%s\",\"bucket\":%d,\"count\":%@u,\"total_ns\":%@u,\"max_ns\":%@u,\"bytes\":%@u}\n",
	    @count, @sum, @max, @size);
	printa("{\"schema\":1,\"type\":\"read_more\",\"pool\":\"%s\",\"objset\":%u,\"errors\":%@u,\"held\":%@u,\"held_ns\":%@u}\n",
	    @failed, @held, @held_ns);
	printa("{\"schema\":1,\"type\":\"trace_state\",\"errors\":%@u}\n", @errors);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"zfsread\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[%snull]}\n", saw_call ? "" : "\"fbt:{{ZFS}}:zfs_read:entry\",");
}
