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

{{FSYNC_ENTRY}}
/self->fsync/
{
{{include commit-lost.d}}
}

{{FSYNC_ENTRY}}
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
fbt:{{ZFS}}:zil_commit:entry,
fbt:{{ZFS}}:zil_commit_flags:entry
/self->fsync && (WANTED == "" || WANTED == stringof((({{ZILOG_T}} *)arg0)->zl_spa->spa_name))/
{
	self->pool = stringof((({{ZILOG_T}} *)arg0)->zl_spa->spa_name);
	self->wanted = 1;
	self->commits = 1;
}

{{include commit.d}}

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
/slept_at[(uint64_t){{WAKEUP_TID}}]/
{
	this->tid = (uint64_t){{WAKEUP_TID}};
	this->now = timestamp;
	this->off = slept_at[this->tid];
	this->done = slept_for[this->tid] ? done_at[slept_for[this->tid]] : 0;
	this->done = this->done > this->off ? this->done : 0;
	this->mid = this->done ? written_at[slept_for[this->tid]] : 0;
	this->mid = this->mid > this->off ? this->mid : this->off;
	this->enough = this->now - this->off >= MIN_NS;
}

sched:::wakeup
/slept_at[(uint64_t){{WAKEUP_TID}}] && this->enough && !this->done/
{
	@woken[slept_pool[this->tid], slept_stage[this->tid], slept_comm[this->tid], {{THREAD}},
	    stack()] = sum(this->now - this->off);
}

sched:::wakeup
/slept_at[(uint64_t){{WAKEUP_TID}}] && this->enough && this->done && this->mid > this->off/
{
	@woken[slept_pool[this->tid], "log_write", slept_comm[this->tid], {{THREAD}}, stack()] =
	    sum(this->mid - this->off);
}

sched:::wakeup
/slept_at[(uint64_t){{WAKEUP_TID}}] && this->enough && this->done/
{
	@woken[slept_pool[this->tid], "flush", slept_comm[this->tid], {{THREAD}}, stack()] =
	    sum(this->now - this->mid);
}

sched:::wakeup
/slept_at[(uint64_t){{WAKEUP_TID}}]/
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

{{include commit-end.d}}

{{FSYNC_RETURN}}
/self->fsync && self->wanted/
{
	@fsyncs = sum(1);
	@fsync_ns = sum(timestamp - self->fsync);
	@before_ns = sum(self->before);
}

{{FSYNC_RETURN}}
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
	printf("Never fired: {{FSYNC_RETURN}}; was there an fsync?\n");
}
