/*
 * fsyncstack.d  Kernel stacks of threads inside an fsync on OpenZFS: where they were off CPU, in ns,
 *               and where on it, in samples.
 *
 * USAGE: fsyncstack.d [MIN_US [PID [POOL [READER]]]]
 *
 * Times off CPU shorter than MIN_US are left out. Each stack follows its pool and program. The
 * script ends with process READER. See fsyncstack.d(8).
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option aggsize=8m
#pragma D option dynvarsize=4m
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

dtrace:::BEGIN
{
	printf("Tracing threads in fsync(2)... Hit Ctrl-C to end.\n");
	@fsyncs = sum(0);
	@fsync_ns = sum(0);
	@off_ns = sum(0);
	@before_ns = sum(0);
	@asleep = sum(0);
	@lost = sum(0);
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

{{FSYNC_ENTRY}}
/self->fsync/
{
	@lost = sum(1);
}

{{FSYNC_ENTRY}}
/!WANTED_PID || pid == WANTED_PID/
{
	self->fsync = timestamp;
	self->off = 0;
	self->before = 0;
	self->pool = "[unknown]";
	self->wanted = WANTED == "";
}

/* (zilog_t *, uint64_t object): from here on the pool is known. */
fbt:{{ZFS}}:zil_commit:entry,
fbt:{{ZFS}}:zil_commit_flags:entry
/self->fsync && (WANTED == "" || WANTED == stringof((({{ZILOG_T}} *)arg0)->zl_spa->spa_name))/
{
	self->pool = stringof((({{ZILOG_T}} *)arg0)->zl_spa->spa_name);
	self->wanted = 1;
}

sched:::off-cpu
/self->fsync/
{
	self->off = timestamp;
}

sched:::off-cpu
/self->fsync && self->wanted/
{
	@asleep = sum(1);
}

sched:::on-cpu
/self->off && self->wanted/
{
	@asleep = sum(-1);
}

/* The thread continues where it left, so this is the stack in which it was off CPU. */
sched:::on-cpu
/self->off && self->wanted && timestamp - self->off >= MIN_NS/
{
	@off[self->pool, execname, stack()] = sum(timestamp - self->off);
	@off_ns = sum(timestamp - self->off);
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
}

/* arg0 is not 0 in the kernel. */
profile:::profile-97
/self->fsync && self->wanted && arg0/
{
	@on[self->pool, execname, stack()] = count();
}

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
	printa("\n  pool %s\n  comm %s%14k%16@u\n", @off);
	printf("\nOn CPU, samples at 97 Hz:\n");
	printa("\n  pool %s\n  comm %s%14k%16@u\n", @on);
	printa("\nNot in the stacks: %@u ns before the pool was known", @before_ns);
	printa(", %@d threads still asleep\n", @asleep);
	printa("%@u fsyncs", @fsyncs);
	printa(" of %@u ns", @fsync_ns);
	printa(", off CPU %@u ns", @off_ns);
	printa(", lost: %@u", @lost);
	printa(", errors: %@u\n", @errors);
}

dtrace:::END
/!saw_return/
{
	printf("Never fired: {{FSYNC_RETURN}}; was there an fsync?\n");
}
