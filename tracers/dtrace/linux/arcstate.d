#!/usr/sbin/dtrace -Zs
/*
 * Linux. Generated from source/arcstate.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * arcstate.d  The pressure on the ARC of OpenZFS, once a second: its target, what made it smaller,
 *             and which processes waited for memory from it.
 *
 * USAGE: arcstate.d [MIN_US]
 *
 * Waits shorter than MIN_US are left out. See arcstate.d(8).
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option aggsize=4m
#pragma D option dynvarsize=1m
#pragma D option strsize=64
#pragma D option switchrate=10hz
#pragma D option aggrate=10hz

inline uint64_t MIN_NS = $1 * 1000;

dtrace:::BEGIN
{
	printf("Tracing the ARC... Hit Ctrl-C to end.\n");
	printf("%-8s %10s %10s %8s %10s %8s %10s %10s\n", "UTC", "TARGET_MB", "MISSES", "SHRINKS",
	    "SHRINK_MB", "WAITS", "WAIT_MB", "MAXWAIT_US");
}

self uint64_t began;
self uint64_t waited;

dtrace:::BEGIN
{
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

/*
 * (uint64_t bytes, uint64_t evicted, uint64_t until): the thread is about to wait in
 * arc_wait_for_eviction. Not its entry: it is called for each new buffer, mostly returns at once, and
 * at that rate dtrace runs out of thread-local variables, which it cleans up now and then only.
 */
fbt::trace_zfs_arc__wait__for__eviction:entry
{
	self->began = timestamp;
	self->waited = arg0;
}

dtrace:::BEGIN,
profile:::tick-1s
{
	@misses = sum(0);
	@shrinks = sum(0);
	@shrink_mb = sum(0);
	@waits = sum(0);
	@wait_mb = sum(0);
	@wait_us = max(0);
}

fbt::trace_zfs_arc__miss:entry
{
	@misses = sum(1);
}

fbt::arc_reduce_target_size:entry
{
	@shrinks = sum(1);
	@shrink_mb = sum(arg0);
}

fbt::arc_wait_for_eviction:return
/self->waited && timestamp - self->began >= MIN_NS/
{
	@waits = sum(1);
	@wait_mb = sum(self->waited);
	@wait_us = max((timestamp - self->began) / 1000);
	@who[execname, pid] = quantize((timestamp - self->began) / 1000);
}

fbt::arc_wait_for_eviction:return
/self->waited/
{
	self->began = 0;
	self->waited = 0;
}

profile:::tick-1s
{
	this->s = walltimestamp / 1000000000;
	printf("%02d:%02d:%02d %10d", this->s / 3600 % 24, this->s / 60 % 60, this->s % 60,
	    ((zfs`arc_stats_t *)&zfs`arc_stats)->arcstat_c.value.ui64 >> 20);
	/* one request is often less than a MB */
	normalize(@shrink_mb, 1048576);
	normalize(@wait_mb, 1048576);
	printa(" %@10u %@8u %@10u %@8u %@10u %@10u\n", @misses, @shrinks, @shrink_mb, @waits, @wait_mb,
	    @wait_us);
	clear(@misses);
	clear(@shrinks);
	clear(@shrink_mb);
	clear(@waits);
	clear(@wait_mb);
	clear(@wait_us);
}

dtrace:::END
{
	printf("\nWaits for eviction by process, us:\n");
	printa(@who);
	printa("errors: %@u\n", @errors);
}
