#!/usr/sbin/dtrace -Zs
/*
 * Linux. Generated from source/fsyncstack.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * fsyncstack.d  Kernel stacks of threads inside an fsync on OpenZFS: where they were off CPU, in ns,
 *               what woke them, and where they were on CPU, in samples.
 *
 * USAGE: fsyncstack.d [MIN_US [PID [POOL [READER]]]]
 *
 * Times off CPU shorter than MIN_US are left out. Each stack follows its pool, stage and program.
 * The script ends with process READER. See fsyncstack.d(8).
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option aggsize=8m
#pragma D option dynvarsize=8m
#pragma D option stackframes=40
#pragma D option strsize=64

inline uint64_t MIN_NS = $1 * 1000;
inline int64_t WANTED_PID = $2;
inline string WANTED = $$3;

self uint64_t fsync;
self uint64_t off;
self uint64_t before;
self string pool;
self int wanted;
self int commits;
uint64_t slept_at[uint64_t];
uint64_t slept_for[uint64_t];
string slept_pool[uint64_t];
string slept_stage[uint64_t];
string slept_comm[uint64_t];

dtrace:::BEGIN
{
	printf("Tracing threads in fsync(2)... Hit Ctrl-C to end.\n");
	@fsyncs = sum(0);
	@fsync_ns = sum(0);
	@off_ns = sum(0);
	@before_ns = sum(0);
	@asleep = sum(0);
}

fbt::zpl_fsync:entry
/self->fsync/
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

fbt::zpl_fsync:entry
/!WANTED_PID || pid == WANTED_PID/
{
	self->fsync = timestamp;
	self->off = 0;
	self->before = 0;
	self->pool = "[unknown]";
	self->wanted = WANTED == "";
	self->commits = 0;
}

/* (zilog_t *, uint64_t object): from here on the pool is known. */
fbt::zil_commit:entry,
fbt::zil_commit_flags:entry
/self->fsync && (WANTED == "" || WANTED == stringof(((zfs`zilog_t *)arg0)->zl_spa->spa_name))/
{
	self->pool = stringof(((zfs`zilog_t *)arg0)->zl_spa->spa_name);
	self->wanted = 1;
	self->commits = 1;
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
fbt::zil_commit:entry,
fbt::zil_commit_flags:entry
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
fbt::zfs_fsync:entry
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
fbt::zil_commit:entry,
fbt::zil_commit_flags:entry
/WANTED == "" || WANTED == stringof(((zfs`zilog_t *)arg0)->zl_spa->spa_name)/
{
	self->start = timestamp;
	self->since = self->start;
	self->stage = 1;
	self->zilog = arg0;
	self->object = arg1;
}

/* Where a stage may end. The clauses below decide whether it does, and which is next. */
fbt::dmu_tx_assign:entry,
fbt::dmu_tx_assign:return,
fbt::__mutex_lock_slowpath:entry,
fbt::__mutex_lock_slowpath:return,
fbt::cv_timedwait_hires:entry,
fbt::__cv_wait:entry,
fbt::zil_lwb_write_issue:entry,
fbt::zio_alloc_zil:entry,
fbt::txg_wait_synced:entry,
fbt::txg_wait_synced_flags:entry,
fbt::zil_commit_flags:return,
fbt::zil_commit:return
/self->start/
{
	this->next = 0;
}

fbt::dmu_tx_assign:entry
/self->start && self->stage != 2/
{
	this->next = 2;
	self->assigned = 1;
}

fbt::dmu_tx_assign:return
/self->start && self->stage == 2/
{
	this->next = 4;
}

/* A mutex of the ZIL: they are in the first KiB of the zilog_t. */
fbt::__mutex_lock_slowpath:entry
/self->start && (self->stage == 4 || self->stage == 5) &&
    arg0 >= self->zilog && arg0 < self->zilog + 1024/
{
	this->next = 3;
}

fbt::__mutex_lock_slowpath:return
/self->start && self->stage == 3/
{
	this->next = 4;
}

/* A commit waiter's mutex follows its condition variable; elsewhere it precedes it. */
fbt::cv_timedwait_hires:entry
/self->start && self->stage >= 3 && arg1 > arg0 && arg1 < arg0 + 256/
{
	this->next = 5;
}

fbt::__cv_wait:entry
/self->start && self->stage >= 3 && arg1 > arg0 && arg1 < arg0 + 256/
{
	this->next = 6;
}

/* What follows a wait, whose return probe is not reliable. */
fbt::zil_lwb_write_issue:entry,
fbt::zio_alloc_zil:entry
/self->start && (self->stage == 5 || self->stage == 9)/
{
	this->next = 4;
}

/* Inside dmu_tx_assign it is part of tx_assign. */
fbt::txg_wait_synced:entry,
fbt::txg_wait_synced_flags:entry
/self->start && self->stage != 2 && self->stage != 9/
{
	this->next = 9;
}

fbt::zil_commit_flags:return,
fbt::zil_commit:return
/self->start/
{
	this->next = 11;
}

fbt::dmu_tx_assign:entry,
fbt::dmu_tx_assign:return,
fbt::__mutex_lock_slowpath:entry,
fbt::__mutex_lock_slowpath:return,
fbt::cv_timedwait_hires:entry,
fbt::__cv_wait:entry,
fbt::zil_lwb_write_issue:entry,
fbt::zio_alloc_zil:entry,
fbt::txg_wait_synced:entry,
fbt::txg_wait_synced_flags:entry,
fbt::zil_commit_flags:return,
fbt::zil_commit:return
/self->start && this->next && self->stage != 6/
{
	this->now = timestamp;
	self->part[self->stage] += this->now - self->since;
	self->since = this->now;
	self->stage = this->next;
}

/* The end of a wait for the device, divided by the times that the I/O pipeline recorded below. */
fbt::cv_timedwait_hires:entry,
fbt::__cv_wait:entry,
fbt::txg_wait_synced:entry,
fbt::txg_wait_synced_flags:entry,
fbt::zil_commit_flags:return,
fbt::zil_commit:return
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

fbt::__cv_wait:entry
/self->start && this->next == 6/
{
	self->waiter = arg0;
	waiting[arg0] = 1;
}

/* In threads of the I/O pipeline: (zio_t *), which leads to the log block. */
fbt::zil_lwb_write_done:entry
{
	lwb_written[(uint64_t)((zfs`zio_t *)arg0)->io_private] = timestamp;
	saw_written = 1;
}

fbt::zil_lwb_flush_vdevs_done:entry
{
	self->written = lwb_written[(uint64_t)((zfs`zio_t *)arg0)->io_private];
	lwb_written[(uint64_t)((zfs`zio_t *)arg0)->io_private] = 0;
	saw_flushed = 1;
}

/* The waiters of the block are woken. */
fbt::__cv_broadcast:entry
/waiting[arg0]/
{
	done_at[arg0] = timestamp;
	written_at[arg0] = self->written;
	saw_told = 1;
}

/* Past the log: sync=disabled, or the log is suspended. */
fbt::zil_commit_flags:return,
fbt::zil_commit:return
/self->start && !self->assigned/
{
	@bypassed = sum(1);
}

/* Of a thread inside an fsync. While it waits for a log block the block's progress is the stage. */
inline string STAGE =
    self->stage == 1 ? "async_to_sync" :
    self->stage == 2 ? "tx_assign" :
    self->stage == 3 ? "issuer_lock" :
    self->stage == 4 ? "issue" :
    self->stage == 5 ? "batch_wait" :
    self->stage == 6 ? (done_at[self->waiter] ? "wakeup" : "device_wait") :
    self->stage == 9 ? "txg_fallback" :
    self->commits ? "other" : "writeback";

sched:::off-cpu
/self->fsync/
{
	self->off = timestamp;
}

sched:::off-cpu
/self->fsync && self->wanted/
{
	slept_at[tid] = self->off;
	slept_for[tid] = self->stage == 6 ? self->waiter : 0;
	slept_pool[tid] = self->pool;
	slept_stage[tid] = STAGE;
	slept_comm[tid] = execname;
	@asleep = sum(1);
}

/* In the thread that wakes it, which has recorded the block's progress. */
sched:::wakeup
/slept_at[(uint64_t)args[0]->pr_lwpid]/
{
	this->tid = (uint64_t)args[0]->pr_lwpid;
	this->now = timestamp;
	this->off = slept_at[this->tid];
	this->done = slept_for[this->tid] ? done_at[slept_for[this->tid]] : 0;
	this->done = this->done > this->off ? this->done : 0;
	this->mid = this->done ? written_at[slept_for[this->tid]] : 0;
	this->mid = this->mid > this->off ? this->mid : this->off;
	this->enough = this->now - this->off >= MIN_NS;
}

sched:::wakeup
/slept_at[(uint64_t)args[0]->pr_lwpid] && this->enough && !this->done/
{
	@woken[slept_pool[this->tid], slept_stage[this->tid], slept_comm[this->tid], execname,
	    stack()] = sum(this->now - this->off);
}

sched:::wakeup
/slept_at[(uint64_t)args[0]->pr_lwpid] && this->enough && this->done && this->mid > this->off/
{
	@woken[slept_pool[this->tid], "log_write", slept_comm[this->tid], execname, stack()] =
	    sum(this->mid - this->off);
}

sched:::wakeup
/slept_at[(uint64_t)args[0]->pr_lwpid] && this->enough && this->done/
{
	@woken[slept_pool[this->tid], "flush", slept_comm[this->tid], execname, stack()] =
	    sum(this->now - this->mid);
}

sched:::wakeup
/slept_at[(uint64_t)args[0]->pr_lwpid]/
{
	slept_at[this->tid] = 0;
}

sched:::on-cpu
/self->off && self->wanted/
{
	@asleep = sum(-1);
	this->now = timestamp;
	this->enough = this->now - self->off >= MIN_NS;
	/* of a wait for a log block: when it was written, and flushed */
	this->split = self->stage == 6 && done_at[self->waiter] && written_at[self->waiter];
	this->done = this->split ? done_at[self->waiter] : 0;
	this->done = this->done > self->off ? this->done : self->off;
	this->mid = this->split ? written_at[self->waiter] : 0;
	this->mid = this->mid > self->off ? this->mid : self->off;
	this->mid = this->mid < this->done ? this->mid : this->done;
}

/* The thread continues where it left, so this is the stack in which it was off CPU. */
sched:::on-cpu
/self->off && self->wanted && this->enough/
{
	@off_ns = sum(this->now - self->off);
}

sched:::on-cpu
/self->off && self->wanted && this->enough && !this->split/
{
	@off[self->pool, STAGE, execname, stack()] = sum(this->now - self->off);
}

sched:::on-cpu
/self->off && self->wanted && this->enough && this->split && this->mid > self->off/
{
	@off[self->pool, "log_write", execname, stack()] = sum(this->mid - self->off);
}

sched:::on-cpu
/self->off && self->wanted && this->enough && this->split && this->done > this->mid/
{
	@off[self->pool, "flush", execname, stack()] = sum(this->done - this->mid);
}

sched:::on-cpu
/self->off && self->wanted && this->enough && this->split && this->now > this->done/
{
	@off[self->pool, "wakeup", execname, stack()] = sum(this->now - this->done);
}

/* Whether it is on the wanted pool is only known at the commit. */
sched:::on-cpu
/self->off && !self->wanted && timestamp - self->off >= MIN_NS/
{
	self->before += timestamp - self->off;
}

sched:::on-cpu
/self->off/
{
	self->off = 0;
	slept_at[tid] = 0;
	slept_for[tid] = 0;
	slept_pool[tid] = 0;
	slept_stage[tid] = 0;
	slept_comm[tid] = 0;
}

/* arg0 is not 0 in the kernel. */
profile:::profile-97
/self->fsync && self->wanted && arg0/
{
	@on[self->pool, STAGE, execname, stack()] = count();
}

fbt::zil_commit_flags:return,
fbt::zil_commit:return
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

fbt::zpl_fsync:return
/self->fsync && self->wanted/
{
	@fsyncs = sum(1);
	@fsync_ns = sum(timestamp - self->fsync);
	@before_ns = sum(self->before);
}

fbt::zpl_fsync:return
/self->fsync/
{
	self->fsync = 0;
	self->off = 0;
	self->before = 0;
	self->pool = 0;
	self->wanted = 0;
	self->commits = 0;
	saw_return = 1;
}

/* It prints nothing until its end, so it would not notice that its reader is gone. */
proc:::exit
/$4 && pid == $4/
{
	exit(0);
}

dtrace:::END
{
	printf("\nOff CPU, ns:\n");
	printa("\n  pool %s\n  stage %s\n  comm %s%14k%16@u\n", @off);
	printf("\nUntil woken, ns:\n");
	printa("\n  pool %s\n  stage %s\n  comm %s\n  waker %s%14k%16@u\n", @woken);
	printf("\nOn CPU, samples at 97 Hz:\n");
	printa("\n  pool %s\n  stage %s\n  comm %s%14k%16@u\n", @on);
	printa("\nNot in the stacks: %@u ns before the pool was known", @before_ns);
	printa(", %@d threads still asleep\n", @asleep);
	printa("%@u fsyncs", @fsyncs);
	printa(" of %@u ns", @fsync_ns);
	printa(", off CPU %@u ns", @off_ns);
	printa(", lost: %@u", @lost);
	printa(", errors: %@u\n", @errors);
	trunc(@bypassed);
}

dtrace:::END
/!saw_return/
{
	printf("Never fired: fbt::zpl_fsync:return; was there an fsync?\n");
}
