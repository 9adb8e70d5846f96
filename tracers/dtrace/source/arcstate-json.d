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

{{include arc.d}}

dtrace:::BEGIN
{
	@misses = sum(0);
	@shrinks = sum(0);
	@shrink_bytes = sum(0);
	@waits = sum(0);
	@wait_ns = sum(0);
	@wait_max = max(0);
}

{{ARC_MISS}}
{
	@misses = sum(1);
}

fbt:{{ZFS}}:arc_reduce_target_size:entry
{
	@shrinks = sum(1);
	@shrink_bytes = sum(arg0);
}

fbt:{{ZFS}}:arc_wait_for_eviction:return
/self->waited/
{
	@waits = sum(1);
	@wait_ns = sum(timestamp - self->began);
	@wait_max = max(timestamp - self->began);
	printf("{\"schema\":1,\"type\":\"arc_wait\",\"ns\":%d}\n", timestamp - self->began);
}

{{include arc-end.d}}

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
