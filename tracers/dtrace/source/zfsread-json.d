/*
 * zfsread-json.d  Reads and writes of files on OpenZFS, by dataset, as JSON objects.
 *
 * USAGE: zfsread-json.d [PID [POOL]]
 *
 * Only those of a process; 0: of all. Prints its sums twice a second. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=256k
#pragma D option aggsize=4m
#pragma D option dynvarsize=4m
#pragma D option strsize=64
#pragma D option switchrate=10hz
#pragma D option aggrate=10hz

inline int PID = $1;
inline string WANTED = $$2;

self uint64_t began;
self uint64_t uio;
self int64_t resid;
self uint64_t spa;
self uint64_t objset;
self uint64_t held_since;
self uint64_t held;
self int op;
self int direct;

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"zfsread\"}\n");
}

dtrace:::BEGIN
{
	@calls = sum(0);
	@lost = sum(0);
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

/*
 * A call is a read(2), write(2) or a relative of a file of any file system, until one of ZFS takes
 * it; what nfsd(8) and the kernel itself read and write begins there.
 */
fbt:kernel:vn_io_fault:entry
/self->began/
{
	/* the end of the thread's last call was not seen */
	@lost = sum(self->spa ? 1 : 0);
{{include read-clear.d}}
}

/*
 * (struct file *, struct uio *): it calls the file system several times if the caller's buffer is
 * not in memory.
 */
fbt:kernel:vn_io_fault:entry
/PID == 0 || PID == pid/
{
	self->began = timestamp;
	self->uio = arg1;
	self->resid = ((struct uio *)arg1)->uio_resid;
}

/* (znode_t *, zfs_uio_t *) */
fbt:{{ZFS}}:zfs_read:entry,
fbt:{{ZFS}}:zfs_write:entry
/!self->began && (PID == 0 || PID == pid)/
{
	self->direct = 1;
	self->began = timestamp;
	self->uio = (uint64_t)((zfs_uio_t *)arg1)->uio;
	self->resid = ((struct uio *)self->uio)->uio_resid;
}

fbt:{{ZFS}}:zfs_read:entry,
fbt:{{ZFS}}:zfs_write:entry
/self->began && !self->spa/
{
	saw_begin = 1;
	this->os = {{ZNODE_OS}};
	this->wanted = WANTED == "" || WANTED == stringof(this->os->os_spa->spa_name);
	self->spa = this->wanted ? (uint64_t)this->os->os_spa : 0;
	self->objset = this->wanted ? this->os->os_dsl_dataset->ds_object : 0;
}

/* self->op is 0 for a read, 1 for one that has waited for an I/O, 2 for a write. */
fbt:{{ZFS}}:zfs_write:entry
/self->spa/
{
	self->op = 2;
}

/*
 * (struct cv *, struct lock_object *): an I/O of its own that is not over yet, or a buffer that
 * another thread reads. In a zio_t, a dmu_buf_impl_t and an arc_callback_t the cv follows its mutex
 * this closely; those of range locks and transactions are elsewhere, or before it.
 */
{{CV_WAIT}},
{{CV_TIMEDWAIT}}
/self->spa && !self->op && arg0 > arg1 && arg0 - arg1 <= 192/
{
	self->op = 1;
}

/* A write that the throttle delays, or that waits for a txg. */
fbt:{{ZFS}}:dmu_tx_wait:entry
/self->op == 2 && !self->held_since/
{
	self->held_since = timestamp;
}

fbt:{{ZFS}}:spa_tx_assign_add_nsecs:entry
/self->held_since/
{
	self->held += timestamp - self->held_since;
	self->held_since = 0;
}

fbt:kernel:vn_io_fault:return
{
	this->ends = self->began && !self->direct;
}

fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
{
	this->ends = self->direct;
}

/* arg1 is the error. Without bytes it was the end of the file, and nothing. */
fbt:kernel:vn_io_fault:return,
fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
/this->ends && self->spa/
{
	saw_end = 1;
	this->failed = (int)arg1 ? 1 : 0;
	this->bytes = self->resid - ((struct uio *)self->uio)->uio_resid;
	this->ns = timestamp - self->began;
	@calls = sum(1);
}

fbt:kernel:vn_io_fault:return,
fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
/this->ends && self->spa && !this->failed && this->bytes/
{
{{include bucket.d}}
	@count[stringof((char *)self->spa), self->objset, self->op, this->bucket] = count();
	@sum[stringof((char *)self->spa), self->objset, self->op, this->bucket] = sum(this->ns);
	@max[stringof((char *)self->spa), self->objset, self->op, this->bucket] = max(this->ns);
	@size[stringof((char *)self->spa), self->objset, self->op, this->bucket] = sum(this->bytes);
}

fbt:kernel:vn_io_fault:return,
fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
/this->ends && self->spa && (this->failed || (self->held && this->bytes))/
{
	this->held = this->failed ? 0 : self->held;
	@failed[stringof((char *)self->spa), self->objset] = sum(this->failed);
	@held[stringof((char *)self->spa), self->objset] = sum(this->held ? 1 : 0);
	@held_ns[stringof((char *)self->spa), self->objset] = sum(this->held);
}

fbt:kernel:vn_io_fault:return,
fbt:{{ZFS}}:zfs_read:return,
fbt:{{ZFS}}:zfs_write:return
/this->ends/
{
{{include read-clear.d}}
}

profile:::tick-500ms,
dtrace:::END
{
	printa("{\"schema\":1,\"type\":\"read_times\",\"pool\":\"%s\",\"objset\":%d,\"op\":%d,\"bucket\":%d,\"count\":%@u,\"total_ns\":%@u,\"max_ns\":%@u,\"bytes\":%@u}\n",
	    @count, @sum, @max, @size);
	printa("{\"schema\":1,\"type\":\"read_rest\",\"pool\":\"%s\",\"objset\":%d,\"errors\":%@u,\"held\":%@u,\"held_ns\":%@u}\n",
	    @failed, @held, @held_ns);
	printa("{\"schema\":1,\"type\":\"trace_state\",\"count\":%@u,\"lost\":%@u,\"errors\":%@u}\n",
	    @calls, @lost, @errors);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"zfsread\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"count\":%@u", @calls);
	printa(",\"lost\":%@u", @lost);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[%s%snull]}\n",
	    saw_begin ? "" : "\"fbt:{{ZFS}}:zfs_read:entry\",",
	    saw_end ? "" : "\"fbt:kernel:vn_io_fault:return\",");
}
