/*
 * zfsflush-json.d  Log writes of OpenZFS and cache flushes of its disks, as JSON objects.
 *
 * USAGE: zfsflush-json.d
 *
 * It prints when it is interrupted. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option dynvarsize=4m
#pragma D option strsize=64

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"zfsflush\"}\n");
}

{{include flush.d}}

fbt::zil_lwb_write_done:entry
/this->began/
{
	@count["log_write"] = count();
	@sum["log_write"] = sum(timestamp - this->began);
	@max["log_write"] = max(timestamp - this->began);
}

fbt::zil_lwb_flush_vdevs_done:entry
/this->began/
{
	@count["log_flush"] = count();
	@sum["log_flush"] = sum(timestamp - this->began);
	@max["log_flush"] = max(timestamp - this->began);
}

{{DISK_FLUSHED}}
/this->began/
{
	@disk_count[{{BIO_DISK}}] = count();
	@disk_sum[{{BIO_DISK}}] = sum(timestamp - this->began);
	@disk_max[{{BIO_DISK}}] = max(timestamp - this->began);
}

dtrace:::END
{
	printa("{\"schema\":1,\"type\":\"log_block\",\"name\":\"%s\",\"count\":%@u,\"total_ns\":%@u,\"max_ns\":%@u}\n",
	    @count, @sum, @max);
	printa("{\"schema\":1,\"type\":\"device\",\"pool\":null,\"vdev\":\"%s\",\"flushes\":%@u,\"flush_ns\":%@u,\"flush_max_ns\":%@u}\n",
	    @disk_count, @disk_sum, @disk_max);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"zfsflush\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"unknown\":%@u", @unknown);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[%s%s%snull]}\n",
	    saw_issued ? "" : "\"fbt::zil_lwb_add_block:entry\",",
	    saw_written ? "" : "\"fbt::zil_lwb_write_done:entry\",",
	    saw_flushed ? "" : "\"fbt::zil_lwb_flush_vdevs_done:entry\",");
}
