#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/zilcommit.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

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

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[1]/
{
	@us["async_to_sync"] = quantize(self->part[1] / 1000);
	@sum_us["async_to_sync"] = sum(self->part[1] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[2]/
{
	@us["tx_assign"] = quantize(self->part[2] / 1000);
	@sum_us["tx_assign"] = sum(self->part[2] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[3]/
{
	@us["issuer_lock"] = quantize(self->part[3] / 1000);
	@sum_us["issuer_lock"] = sum(self->part[3] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[4]/
{
	@us["issue"] = quantize(self->part[4] / 1000);
	@sum_us["issue"] = sum(self->part[4] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[5]/
{
	@us["batch_wait"] = quantize(self->part[5] / 1000);
	@sum_us["batch_wait"] = sum(self->part[5] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[6]/
{
	@us["log_write"] = quantize(self->part[6] / 1000);
	@sum_us["log_write"] = sum(self->part[6] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[7]/
{
	@us["flush"] = quantize(self->part[7] / 1000);
	@sum_us["flush"] = sum(self->part[7] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[8]/
{
	@us["wakeup"] = quantize(self->part[8] / 1000);
	@sum_us["wakeup"] = sum(self->part[8] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[9]/
{
	@us["txg_fallback"] = quantize(self->part[9] / 1000);
	@sum_us["txg_fallback"] = sum(self->part[9] / 1000);
}

fbt:zfs:zil_commit_impl:return,
fbt:zfs:zil_commit_flags:return,
fbt:zfs:zil_commit:return,
fbt:zfs:zfs_fsync:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zvol_cdev_write:return,
fbt:zfs:zvol_cdev_ioctl:return
/self->start && self->assigned && self->part[10]/
{
	@us["device_wait"] = quantize(self->part[10] / 1000);
	@sum_us["device_wait"] = sum(self->part[10] / 1000);
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
	this->us = (self->since - self->start) / 1000;
	@commit_us = quantize(this->us);
	@sum_us["commits"] = sum(this->us);
	@commits = sum(1);
	seen_commit = 1;
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

dtrace:::END
/seen_commit && !saw_written/
{
	printf("Never fired: zil_lwb_write_done:entry; log_write and flush are in device_wait.\n");
}

dtrace:::END
/seen_commit && !saw_flushed/
{
	printf("Never fired: zil_lwb_flush_vdevs_done:entry; log_write and flush are in device_wait.\n");
}

dtrace:::END
/seen_commit && !saw_told/
{
	printf("Never fired: fbt:kernel:cv_broadcastpri:entry; wakeup is in device_wait.\n");
}

dtrace:::END
/!seen_commit/
{
	printf("No commit was seen: see REQUIREMENTS in the manual page.\n");
}
