#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/zfsread-json.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

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
fbt:zfs:zfs_read:entry,
fbt:zfs:zfs_write:entry
/PID == 0 || pid == PID/
{
	saw_call = 1;
	self->os = (uint64_t)((znode_t *)arg0)->z_zfsvfs->z_os;
	self->uio = arg1;
	self->left = ((zfs_uio_t *)arg1)->uio->uio_resid;
	self->waited = 0;
	self->held = 0;
	self->start = timestamp;
}

/* zio_wait() calls it only if the I/O is not done yet. */
fbt:kernel:_cv_timedwait_sbt:entry
/self->start/
{
	self->waited = 1;
}

/* For a buffer that another thread reads: there the cv follows its mutex. */
fbt:kernel:_cv_wait:entry
/self->start && arg0 > arg1 && arg0 - arg1 <= 192/
{
	self->waited = 1;
}

/* (spa_t *, uint64_t ns): a wait of the thread's transaction has ended. */
fbt:zfs:spa_tx_assign_add_nsecs:entry
/self->start/
{
	self->held += arg1;
}

fbt:zfs:zfs_read:return,
fbt:zfs:zfs_write:return
/self->start/
{
	this->ns = timestamp - self->start;
	this->os = (objset_t *)self->os;
	this->bytes = self->left - ((zfs_uio_t *)self->uio)->uio->uio_resid;
	this->failed = arg1 != 0;
	this->counts = !this->failed && this->bytes > 0;
	this->op = probefunc == "zfs_write" ? "write" : self->waited ? "miss" : "hit";
	this->wanted = WANTED == "" || WANTED == stringof(this->os->os_spa->spa_name);
	this->id = this->os->os_dsl_dataset->ds_object;
	self->start = 0;
	/* this->bucket of this->ns: 32 for each power of two (see tracers/zfstrace/hist.py) */
	this->v = this->ns;
	this->b = this->v >> 32 ? 32 : 0;
	this->v = this->v >> this->b;
	this->bits = this->b;
	this->b = this->v >> 16 ? 16 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 8 ? 8 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 4 ? 4 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 2 ? 2 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b + (this->v >> 1 ? 1 : 0);
	this->shift = this->bits > 5 ? this->bits - 5 : 0;
	this->bucket = this->ns < 64 ? this->ns : this->ns >> 42 ? 1215 :
	    this->shift * 32 + (this->ns >> this->shift);
}

fbt:zfs:zfs_read:return,
fbt:zfs:zfs_write:return
/self->os && this->wanted && this->counts/
{
	@count[stringof(this->os->os_spa->spa_name), this->id, this->op, this->bucket] = count();
	@sum[stringof(this->os->os_spa->spa_name), this->id, this->op, this->bucket] = sum(this->ns);
	@max[stringof(this->os->os_spa->spa_name), this->id, this->op, this->bucket] = max(this->ns);
	@size[stringof(this->os->os_spa->spa_name), this->id, this->op, this->bucket] = sum(this->bytes);
}

fbt:zfs:zfs_read:return,
fbt:zfs:zfs_write:return
/self->os && this->wanted && (this->failed || self->held)/
{
	@failed[stringof(this->os->os_spa->spa_name), this->id] = sum(this->failed);
	@held[stringof(this->os->os_spa->spa_name), this->id] = sum(this->counts && self->held ? 1 : 0);
	@held_ns[stringof(this->os->os_spa->spa_name), this->id] = sum(this->counts ? self->held : 0);
}

fbt:zfs:zfs_read:return,
fbt:zfs:zfs_write:return
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
	printf(",\"never_fired\":[%snull]}\n", saw_call ? "" : "\"fbt:zfs:zfs_read:entry\",");
}
