/*
 * sysctlwrite-json.d  Which processes set a sysctl below vfs, where the module parameters of
 *                     OpenZFS are, as JSON objects.
 *
 * USAGE: sysctlwrite-json.d [PID]
 *
 * The script ends with process PID. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=256k
#pragma D option aggsize=256k
#pragma D option dynvarsize=1m
#pragma D option strsize=128
#pragma D option switchrate=10hz

dtrace:::BEGIN
{
	began = timestamp;
	@errors = sum(0);
	@writes = sum(0);
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"sysctlwrite\"}\n");
}

dtrace:::ERROR
{
	@errors = sum(1);
}

/* (int *oid, u_int length, void *old, size_t *oldlen, const void *new, size_t newlen) */
syscall::__sysctl:entry
/arg4 && arg1 >= 3 && arg1 <= 6/
{
	self->oid = arg0;
	self->length = arg1;
}

/* (const char *name, size_t length, ...), from FreeBSD 13 on; the rest is the same. */
syscall::__sysctlbyname:entry
/arg4/
{
	self->name = arg0;
}

/* The kernel has just read it, so it is in memory. Only for writes, which are rare. */
syscall::__sysctl:return
/self->oid && arg0 == 0/
{
	self->vfs = *(int *)copyin(self->oid, 4) == 3;	/* CTL_VFS */
}

syscall::__sysctl:return
/self->oid && self->vfs/
{
	self->asked = strjoin(strjoin("3.", lltostr(*(int *)copyin(self->oid + 4, 4))),
	    strjoin(".", lltostr(*(int *)copyin(self->oid + 8, 4))));
}

syscall::__sysctl:return
/self->oid && self->vfs && self->length > 3/
{
	self->asked = strjoin(self->asked,
	    strjoin(".", lltostr(*(int *)copyin(self->oid + 12, 4))));
}

syscall::__sysctl:return
/self->oid && self->vfs && self->length > 4/
{
	self->asked = strjoin(self->asked,
	    strjoin(".", lltostr(*(int *)copyin(self->oid + 16, 4))));
}

syscall::__sysctl:return
/self->oid && self->vfs && self->length > 5/
{
	self->asked = strjoin(self->asked,
	    strjoin(".", lltostr(*(int *)copyin(self->oid + 20, 4))));
}

syscall::__sysctlbyname:return
/self->name && arg0 == 0/
{
	self->asked = copyinstr(self->name);
	self->vfs = substr(self->asked, 0, 4) == "vfs.";
}

syscall::__sysctl:return,
syscall::__sysctlbyname:return
/self->vfs/
{
	@writes = sum(1);
	this->wall = walltimestamp;
{{include utc.d}}
	printf("{\"schema\":1,\"type\":\"sysctl_write\",\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06dZ\"",
	    this->year, this->month, this->day, this->s / 3600 % 24, this->s / 60 % 60, this->s % 60,
	    this->wall / 1000 % 1000000);
	printf(",\"pid\":%d,\"comm\":\"%s\",\"name\":\"%s\"}\n", pid,
	    index(execname, "\"") < 0 && index(execname, "\\") < 0 && index(execname, "\n") < 0 &&
	    index(execname, "\r") < 0 ? execname : "?", self->asked);
}

syscall::__sysctl:return,
syscall::__sysctlbyname:return
{
	self->oid = 0;
	self->name = 0;
	self->length = 0;
	self->vfs = 0;
	self->asked = 0;
}

proc:::exit
/pid == $1/
{
	exit(0);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"sysctlwrite\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"count\":%@u", @writes);
	printa(",\"errors\":%@u}\n", @errors);
}
