#!/usr/sbin/dtrace -Zs
/*
 * Linux. Generated from source/zfsthrottle-json.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * zfsthrottle-json.d  Writers that OpenZFS delays, as JSON objects.
 *
 * USAGE: zfsthrottle-json.d [POOL]
 *
 * One line for each wait. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=4m
#pragma D option aggsize=256k
#pragma D option dynvarsize=4m
#pragma D option strsize=64
#pragma D option switchrate=10hz
#pragma D option aggrate=10hz

inline string WANTED = $$1;

self uint64_t tx;
self uint64_t dirty;
self uint64_t delay;
self int dirty_wait;

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"zfsthrottle\"}\n");
}

dtrace:::BEGIN
{
	@waits = sum(0);
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

/* (dmu_tx_t *) */
fbt::dmu_tx_wait:entry
{
	saw_begin = 1;
	self->tx = arg0;
	self->delay = 0;
	self->dirty_wait = (int)((zfs`dmu_tx_t *)arg0)->tx_wait_dirty;
	self->dirty = ((zfs`dmu_tx_t *)arg0)->tx_pool->dp_dirty_total;
}

/* (dmu_tx_t *, uint64_t dirty, uint64_t ns): the thread is about to sleep this long. */
fbt::trace_zfs_delay__mintime:entry
/self->tx == arg0/
{
	self->delay = arg2;
}

/* (spa_t *, uint64_t ns): how long it took. A spa_t begins with the pool's name. */
fbt::spa_tx_assign_add_nsecs:entry
/WANTED == "" || WANTED == stringof((char *)arg0)/
{
	@waits = sum(1);
	printf("{\"schema\":1,\"type\":\"throttle_wait\",\"pool\":\"%s\",\"pid\":%d,\"comm\":\"%s\"",
	    stringof((char *)arg0), pid,
	    index(execname, "\"") < 0 && index(execname, "\\") < 0 && index(execname, "\n") < 0 &&
	    index(execname, "\r") < 0 ? execname : "?");
	printf(",\"wall_ns\":%d,\"ns\":%d,\"dirty_wait\":%s", walltimestamp, arg1,
	    self->tx ? (self->dirty_wait || self->delay ? "true" : "false") : "null");
	printf(",\"dirty_bytes\":%s,\"delay_ns\":%d}\n",
	    self->tx ? lltostr(self->dirty) : "null", self->delay);
}

fbt::spa_tx_assign_add_nsecs:entry
{
	self->tx = 0;
	self->dirty = 0;
	self->delay = 0;
	self->dirty_wait = 0;
}

profile:::tick-500ms
{
	printa("{\"schema\":1,\"type\":\"trace_state\",\"count\":%@u,\"errors\":%@u}\n", @waits, @errors);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"zfsthrottle\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"count\":%@u", @waits);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[%snull]}\n", saw_begin ? "" : "\"fbt::dmu_tx_wait:entry\",");
}
