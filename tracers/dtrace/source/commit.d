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
fbt:{{ZFS}}:zil_commit:entry,
fbt:{{ZFS}}:zil_commit_flags:entry
/self->assigned/
{
{{include commit-lost.d}}
}

/* The same, before an operation that may not commit at all. */
{{COMMIT_CALLER}}
/self->start/
{
{{include commit-lost.d}}
}

/* (zilog_t *, uint64_t object). From 2.4 on one calls the other: the later one counts. */
fbt:{{ZFS}}:zil_commit:entry,
fbt:{{ZFS}}:zil_commit_flags:entry
/WANTED == "" || WANTED == stringof((({{ZILOG_T}} *)arg0)->zl_spa->spa_name)/
{
	self->start = timestamp;
	self->since = self->start;
	self->stage = 1;
	self->zilog = arg0;
	self->object = arg1;
}

/* Where a stage may end. The clauses below decide whether it does, and which is next. */
{{include commit-events.d}}
/self->start/
{
	this->next = 0;
}

fbt:{{ZFS}}:dmu_tx_assign:entry
/self->start && self->stage != 2/
{
	this->next = 2;
	self->assigned = 1;
}

fbt:{{ZFS}}:dmu_tx_assign:return
/self->start && self->stage == 2/
{
	this->next = 4;
}

/* A mutex of the ZIL: they are in the first KiB of the zilog_t. */
{{LOCK_ENTRY}}
/self->start && (self->stage == 4 || self->stage == 5) &&
    arg0 >= self->zilog && arg0 < self->zilog + 1024/
{
	this->next = 3;
}

{{LOCK_RETURN}}
/self->start && self->stage == 3/
{
	this->next = 4;
}

/* A commit waiter's mutex follows its condition variable; elsewhere it precedes it. */
{{CV_TIMEDWAIT}}
/self->start && self->stage >= 3 && arg1 > arg0 && arg1 < arg0 + 256/
{
	this->next = 5;
}

{{CV_WAIT}}
/self->start && self->stage >= 3 && arg1 > arg0 && arg1 < arg0 + 256/
{
	this->next = 6;
}

/* What follows a wait, whose return probe is not reliable. */
fbt:{{ZFS}}:zil_lwb_write_issue:entry,
fbt:{{ZFS}}:zio_alloc_zil:entry
/self->start && (self->stage == 5 || self->stage == 9)/
{
	this->next = 4;
}

/* Inside dmu_tx_assign it is part of tx_assign. */
fbt:{{ZFS}}:txg_wait_synced:entry,
fbt:{{ZFS}}:txg_wait_synced_flags:entry
/self->start && self->stage != 2 && self->stage != 9/
{
	this->next = 9;
}

{{COMMIT_RETURN}}
/self->start/
{
	this->next = 11;
}

{{include commit-events.d}}
/self->start && this->next && self->stage != 6/
{
	this->now = timestamp;
	self->part[self->stage] += this->now - self->since;
	self->since = this->now;
	self->stage = this->next;
}

/* The end of a wait for the device, divided by the times that the I/O pipeline recorded below. */
{{CV_TIMEDWAIT}},
{{CV_WAIT}},
fbt:{{ZFS}}:txg_wait_synced:entry,
fbt:{{ZFS}}:txg_wait_synced_flags:entry,
{{COMMIT_RETURN}}
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

{{CV_WAIT}}
/self->start && this->next == 6/
{
	self->waiter = arg0;
	waiting[arg0] = 1;
}

/* In threads of the I/O pipeline: (zio_t *), which leads to the log block. */
fbt:{{ZFS}}:zil_lwb_write_done:entry
{
	lwb_written[(uint64_t)(({{ZIO_T}} *)arg0)->io_private] = timestamp;
	saw_written = 1;
}

fbt:{{ZFS}}:zil_lwb_flush_vdevs_done:entry
{
	self->written = lwb_written[(uint64_t)(({{ZIO_T}} *)arg0)->io_private];
	lwb_written[(uint64_t)(({{ZIO_T}} *)arg0)->io_private] = 0;
	saw_flushed = 1;
}

/* The waiters of the block are woken. */
{{CV_BROADCAST}}
/waiting[arg0]/
{
	done_at[arg0] = timestamp;
	written_at[arg0] = self->written;
	saw_told = 1;
}

/* Past the log: sync=disabled, or the log is suspended. */
{{COMMIT_RETURN}}
/self->start && !self->assigned/
{
	@bypassed = sum(1);
}
