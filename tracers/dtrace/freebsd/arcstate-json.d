#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/arcstate-json.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * arcstate-json.d  The pressure on the ARC of OpenZFS, once a second, as JSON objects.
 *
 * USAGE: arcstate-json.d
 *
 * Numbers are those so far. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=256k
#pragma D option aggsize=256k
#pragma D option dynvarsize=1m
#pragma D option strsize=64
#pragma D option switchrate=10hz
#pragma D option aggrate=10hz

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"arcstate\"}\n");
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
sdt:::arc-wait-for-eviction
{
	self->began = timestamp;
	self->waited = arg0;
}

dtrace:::BEGIN
{
	@misses = sum(0);
	@shrinks = sum(0);
	@shrink_bytes = sum(0);
	@waits = sum(0);
	@wait_ns = sum(0);
	@wait_max = max(0);
}

sdt:::arc-miss
{
	@misses = sum(1);
}

fbt:zfs:arc_reduce_target_size:entry
{
	@shrinks = sum(1);
	@shrink_bytes = sum(arg0);
}

fbt:zfs:arc_wait_for_eviction:return
/self->waited/
{
	@waits = sum(1);
	@wait_ns = sum(timestamp - self->began);
	@wait_max = max(timestamp - self->began);
	printf("{\"schema\":1,\"type\":\"arc_wait\",\"ns\":%d}\n", timestamp - self->began);
}

fbt:zfs:arc_wait_for_eviction:return
/self->waited/
{
	self->began = 0;
	self->waited = 0;
}

profile:::tick-1s
{
	printf("{\"schema\":1,\"type\":\"arc\",\"size\":null,\"target\":null");
	printa(",\"misses\":%@u,\"shrinks\":%@u,\"shrink_bytes\":%@u,\"waits\":%@u,\"wait_ns\":%@u,\"wait_max_ns\":%@u}\n",
	    @misses, @shrinks, @shrink_bytes, @waits, @wait_ns, @wait_max);
}

profile:::tick-500ms
{
	printa("{\"schema\":1,\"type\":\"trace_state\",\"errors\":%@u}\n", @errors);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"arcstate\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[null]}\n");
}
