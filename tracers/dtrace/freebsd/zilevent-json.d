#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/zilevent-json.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

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

self uint64_t start;
self uint64_t part[int];
self uint64_t since;
self uint64_t zilog;
self uint64_t object;
self uint64_t waiter;
self uint64_t written;
self int stage;
self int assigned;
uint64_t waiting[uint64_t];
uint64_t done_at[uint64_t];
uint64_t written_at[uint64_t];
uint64_t lwb_written[uint64_t];

/*
 * A committing thread is in exactly one stage at a time. self->part[] is its time in each, in ns:
 *
 *	1 async_to_sync	the file's earlier writes are moved to the commit list
 *	2 tx_assign	waiting for a transaction group
 *	3 issuer_lock	waiting for a mutex of the dataset's log
 *	4 issue		CPU: log blocks are filled, allocated, and their writes started
 *	5 batch_wait	the log block is held open for more commits to join it
 *	6 log_write	the log block is written
 *	7 flush		the cache flush after it, and waiting for earlier log blocks
 *	8 wakeup	done, but the thread is not running yet
 *	9 txg_fallback	waiting for a whole transaction group instead of the log
 *	10 device_wait	6 to 8 where they cannot be distinguished
 *
 * self->stage is 6 during all of 6 to 8 and 10.
 */

/* The end of the thread's last commit was not seen. */
fbt:zfs:zil_commit:entry,
fbt:zfs:zil_commit_flags:entry
/self->assigned/
{
	@lost = sum(1);
	waiting[self->waiter] = 0;
	done_at[self->waiter] = 0;
	written_at[self->waiter] = 0;
	self->waiter = 0;
	self->start = 0;
	self->since = 0;
	self->stage = 0;
	self->assigned = 0;
	self->zilog = 0;
	self->object = 0;
	self->part[1] = 0;
	self->part[2] = 0;
	self->part[3] = 0;
	self->part[4] = 0;
	self->part[5] = 0;
	self->part[6] = 0;
	self->part[7] = 0;
	self->part[8] = 0;
	self->part[9] = 0;
	self->part[10] = 0;
}

/* The same, before an operation that may not commit at all. */
fbt:zfs:zfs_fsync:entry,
fbt:zfs:zfs_write:entry
/self->start/
{
	@lost = sum(1);
	waiting[self->waiter] = 0;
	done_at[self->waiter] = 0;
	written_at[self->waiter] = 0;
	self->waiter = 0;
	self->start = 0;
	self->since = 0;
	self->stage = 0;
	self->assigned = 0;
	self->zilog = 0;
	self->object = 0;
	self->part[1] = 0;
	self->part[2] = 0;
	self->part[3] = 0;
	self->part[4] = 0;
	self->part[5] = 0;
	self->part[6] = 0;
	self->part[7] = 0;
	self->part[8] = 0;
	self->part[9] = 0;
	self->part[10] = 0;
}

/* (zilog_t *, uint64_t object). From 2.4 on one calls the other: the later one counts. */
fbt:zfs:zil_commit:entry,
fbt:zfs:zil_commit_flags:entry
/WANTED == "" || WANTED == stringof(((zilog_t *)arg0)->zl_spa->spa_name)/
{
	self->start = timestamp;
	self->since = self->start;
	self->stage = 1;
	self->zilog = arg0;
	self->object = arg1;
}

/* Where a stage may end. The clauses below decide whether it does, and which is next. */
fbt:zfs:dmu_tx_assign:entry,
fbt:zfs:dmu_tx_assign:return,
fbt:kernel:_sx_xlock_hard:entry,
fbt:kernel:_sx_xlock_hard:return,
fbt:kernel:_cv_timedwait_sbt:entry,
fbt:kernel:_cv_wait:entry,
fbt:zfs:zil_lwb_write_issue:entry,
fbt:zfs:zio_alloc_zil:entry,
fbt:zfs:txg_wait_synced:entry,
fbt:zfs:txg_wait_synced_flags:entry,
fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start/
{
	this->next = 0;
}

fbt:zfs:dmu_tx_assign:entry
/self->start && self->stage != 2/
{
	this->next = 2;
	self->assigned = 1;
}

fbt:zfs:dmu_tx_assign:return
/self->start && self->stage == 2/
{
	this->next = 4;
}

/* A mutex of the ZIL: they are in the first KiB of the zilog_t. */
fbt:kernel:_sx_xlock_hard:entry
/self->start && (self->stage == 4 || self->stage == 5) &&
    arg0 >= self->zilog && arg0 < self->zilog + 1024/
{
	this->next = 3;
}

fbt:kernel:_sx_xlock_hard:return
/self->start && self->stage == 3/
{
	this->next = 4;
}

/* A commit waiter's mutex follows its condition variable; elsewhere it precedes it. */
fbt:kernel:_cv_timedwait_sbt:entry
/self->start && self->stage >= 3 && arg1 > arg0 && arg1 < arg0 + 256/
{
	this->next = 5;
}

fbt:kernel:_cv_wait:entry
/self->start && self->stage >= 3 && arg1 > arg0 && arg1 < arg0 + 256/
{
	this->next = 6;
}

/* What follows a wait, whose return probe is not reliable. */
fbt:zfs:zil_lwb_write_issue:entry,
fbt:zfs:zio_alloc_zil:entry
/self->start && (self->stage == 5 || self->stage == 9)/
{
	this->next = 4;
}

/* Inside dmu_tx_assign it is part of tx_assign. */
fbt:zfs:txg_wait_synced:entry,
fbt:zfs:txg_wait_synced_flags:entry
/self->start && self->stage != 2 && self->stage != 9/
{
	this->next = 9;
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start/
{
	this->next = 11;
}

fbt:zfs:dmu_tx_assign:entry,
fbt:zfs:dmu_tx_assign:return,
fbt:kernel:_sx_xlock_hard:entry,
fbt:kernel:_sx_xlock_hard:return,
fbt:kernel:_cv_timedwait_sbt:entry,
fbt:kernel:_cv_wait:entry,
fbt:zfs:zil_lwb_write_issue:entry,
fbt:zfs:zio_alloc_zil:entry,
fbt:zfs:txg_wait_synced:entry,
fbt:zfs:txg_wait_synced_flags:entry,
fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && this->next && self->stage != 6/
{
	this->now = timestamp;
	self->part[self->stage] += this->now - self->since;
	self->since = this->now;
	self->stage = this->next;
}

/* The end of a wait for the device, divided by the times that the I/O pipeline recorded below. */
fbt:kernel:_cv_timedwait_sbt:entry,
fbt:kernel:_cv_wait:entry,
fbt:zfs:txg_wait_synced:entry,
fbt:zfs:txg_wait_synced_flags:entry,
fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && this->next && self->waiter/
{
	this->now = timestamp;
	/* an earlier commit may have waited at this address, and not have returned yet */
	this->done = done_at[self->waiter];
	this->done = this->done > self->since ? this->done : 0;
	this->written = written_at[self->waiter];
	/* the block may have been written before the wait began */
	this->mid = this->written > self->since ? this->written : self->since;
	this->mid = this->mid < this->done ? this->mid : this->done;
	self->part[6] += this->done && this->written ? this->mid - self->since : 0;
	self->part[7] += this->done && this->written ? this->done - this->mid : 0;
	self->part[8] += this->done && this->written ? this->now - this->done : 0;
	self->part[10] += this->done && this->written ? 0 : this->now - self->since;
	waiting[self->waiter] = 0;
	done_at[self->waiter] = 0;
	written_at[self->waiter] = 0;
	self->waiter = 0;
	self->since = this->now;
	self->stage = this->next;
}

fbt:kernel:_cv_wait:entry
/self->start && this->next == 6/
{
	self->waiter = arg0;
	waiting[arg0] = 1;
}

/* In threads of the I/O pipeline: (zio_t *), which leads to the log block. */
fbt:zfs:zil_lwb_write_done:entry
{
	lwb_written[(uint64_t)((zio_t *)arg0)->io_private] = timestamp;
	saw_written = 1;
}

fbt:zfs:zil_lwb_flush_vdevs_done:entry
{
	self->written = lwb_written[(uint64_t)((zio_t *)arg0)->io_private];
	lwb_written[(uint64_t)((zio_t *)arg0)->io_private] = 0;
	saw_flushed = 1;
}

/* The waiters of the block are woken. */
fbt:kernel:cv_broadcastpri:entry
/waiting[arg0]/
{
	done_at[arg0] = timestamp;
	written_at[arg0] = self->written;
	saw_told = 1;
}

/* Past the log: sync=disabled, or the log is suspended. */
fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && !self->assigned/
{
	@bypassed = sum(1);
}

/* The call writes the pages of mappings back before zfs_fsync(): the stage writeback. */
fbt:kernel:kern_fsync:entry
{
	self->called = timestamp;
}

fbt:kernel:kern_fsync:return
{
	self->called = 0;
}

/* (znode_t *): fsync(2), fdatasync(2) or msync(2). With sync=disabled it does not commit. */
fbt:zfs:zfs_fsync:entry
{
	self->in_fsync = timestamp;
	self->os = (uint64_t)((znode_t *)arg0)->z_zfsvfs->z_os;
	self->commits = 0;
}

fbt:zfs:zil_commit:entry,
fbt:zfs:zil_commit_flags:entry
/self->in_fsync/
{
	self->commits = 1;
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned/
{
	@commits = sum(1);
	seen_commit = 1;
	this->writeback = self->in_fsync && self->called ? self->start - self->called : 0;
	this->total = this->writeback + self->since - self->start;
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && this->total >= MIN_MS * 1000000/
{
	/* when it began */
	this->wall = walltimestamp - this->total;
	/* the date of this->wall, in ns since 1970, in the Gregorian calendar: years begin in March */
	this->s = this->wall / 1000000000;
	this->days = this->s / 86400 + 719468;
	this->era = this->days / 146097;
	this->doe = this->days % 146097;
	this->yoe = (this->doe - this->doe / 1460 + this->doe / 36524 - this->doe / 146096) / 365;
	this->doy = this->doe - (365 * this->yoe + this->yoe / 4 - this->yoe / 100);
	this->mp = (5 * this->doy + 2) / 153;
	this->day = this->doy - (153 * this->mp + 2) / 5 + 1;
	this->month = this->mp < 10 ? this->mp + 3 : this->mp - 9;
	this->year = this->yoe + this->era * 400 + (this->month <= 2 ? 1 : 0);
	printf("{\"schema\":1,\"type\":\"commit\",\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06dZ\"",
	    this->year, this->month, this->day, this->s / 3600 % 24, this->s / 60 % 60, this->s % 60,
	    this->wall / 1000 % 1000000);
	printf(",\"pid\":%d,\"tid\":%d,\"comm\":\"%s\"", pid, tid,
	    index(execname, "\"") < 0 && index(execname, "\\") < 0 && index(execname, "\n") < 0 &&
	    index(execname, "\r") < 0 ? execname : "?");
	printf(",\"pool\":\"%s\",\"dataset\":null,\"objset\":%d,\"object\":%d,\"total_ns\":%d",
	    stringof(((zilog_t *)self->zilog)->zl_spa->spa_name),
	    ((zilog_t *)self->zilog)->zl_os->os_dsl_dataset->ds_object, self->object, this->total);
	printf(",\"stages\":{\"writeback\":%d", this->writeback);
	printf(",\"async_to_sync\":%d,\"tx_assign\":%d,\"issuer_lock\":%d,\"issue\":%d",
	    self->part[1], self->part[2], self->part[3], self->part[4]);
	printf(",\"batch_wait\":%d,\"log_write\":%d,\"flush\":%d,\"wakeup\":%d",
	    self->part[5], self->part[6], self->part[7], self->part[8]);
	printf(",\"txg_fallback\":%d,\"device_wait\":%d},\"txg_state\":null,\"kind\":\"%s\"}\n",
	    self->part[9], self->part[10], self->in_fsync ? "fsync" : "other");
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && !self->assigned/
{
	this->objset = ((zilog_t *)self->zilog)->zl_os->os_dsl_dataset->ds_object;
	@past[stringof(((zilog_t *)self->zilog)->zl_spa->spa_name), this->objset] = count();
	@past_ns[stringof(((zilog_t *)self->zilog)->zl_spa->spa_name), this->objset] =
	    sum(timestamp - self->start);
	@past_max[stringof(((zilog_t *)self->zilog)->zl_spa->spa_name), this->objset] =
	    max(timestamp - self->start);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start/
{
	self->start = 0;
	self->since = 0;
	self->stage = 0;
	self->assigned = 0;
	self->zilog = 0;
	self->object = 0;
	self->part[1] = 0;
	self->part[2] = 0;
	self->part[3] = 0;
	self->part[4] = 0;
	self->part[5] = 0;
	self->part[6] = 0;
	self->part[7] = 0;
	self->part[8] = 0;
	self->part[9] = 0;
	self->part[10] = 0;
}

dtrace:::BEGIN
{
	@lost = sum(0);
	@bypassed = sum(0);
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

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

fbt:zfs:zfs_fsync:return
/self->in_fsync && !self->commits &&
    (WANTED == "" || WANTED == stringof(((objset_t *)self->os)->os_spa->spa_name))/
{
	this->objset = ((objset_t *)self->os)->os_dsl_dataset->ds_object;
	@past[stringof(((objset_t *)self->os)->os_spa->spa_name), this->objset] = count();
	@past_ns[stringof(((objset_t *)self->os)->os_spa->spa_name), this->objset] =
	    sum(timestamp - self->in_fsync);
	@past_max[stringof(((objset_t *)self->os)->os_spa->spa_name), this->objset] =
	    max(timestamp - self->in_fsync);
	@bypassed = sum(1);
}

fbt:zfs:zfs_fsync:return
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
	    seen_commit ? "" : "\"fbt:zfs:zil_commit:return\",",
	    saw_written ? "" : "\"fbt:zfs:zil_lwb_write_done:entry\",",
	    saw_flushed ? "" : "\"fbt:zfs:zil_lwb_flush_vdevs_done:entry\",",
	    saw_told ? "" : "\"fbt:kernel:cv_broadcastpri:entry\",");
}
