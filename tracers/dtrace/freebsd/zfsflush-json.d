#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/zfsflush-json.d by generate.py: change that, not this.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

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

uint64_t issued[uint64_t];
uint64_t lwb_written[uint64_t];
uint64_t sent[uint64_t];

/*
 * (lwb_t *, blkptr_t *): the call for the block pointer of the log block itself, which follows the
 * first word of the lwb, is made as the block is issued.
 */
fbt::zil_lwb_add_block:entry
/arg1 == arg0 + 8/
{
	issued[arg0] = timestamp;
	saw_issued = 1;
}

/* (zio_t *), which leads to the lwb. */
fbt::zil_lwb_write_done:entry
{
	this->lwb = (uint64_t)((zio_t *)arg0)->io_private;
	this->began = issued[this->lwb];
	issued[this->lwb] = 0;
	lwb_written[this->lwb] = timestamp;
	saw_written = 1;
}

/* Another zio of the same lwb. */
fbt::zil_lwb_flush_vdevs_done:entry
{
	this->lwb = (uint64_t)((zio_t *)arg0)->io_private;
	this->began = lwb_written[this->lwb];
	lwb_written[this->lwb] = 0;
	saw_flushed = 1;
}

/*
 * (zio_t *) of type 5, "ioctl" up to 2.2 and "flush" since. With zfs_nocacheflush it does not come back,
 * so the next zio at its address must not be taken for it.
 */
fbt::vdev_geom_io_start:entry
{
	sent[arg0] = ((zio_t *)arg0)->io_type == 5 ? timestamp : 0;
}

fbt::vdev_geom_io_intr:entry
{
	this->zio = (uint64_t)((struct bio *)arg0)->bio_caller1;
	this->began = sent[this->zio];
	sent[this->zio] = 0;
}

dtrace:::BEGIN
{
	@unknown = sum(0);
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

fbt::zil_lwb_write_done:entry
/!this->began/
{
	@unknown = sum(1);
}

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

fbt::vdev_geom_io_intr:entry
/this->began/
{
	@disk_count[stringof(((struct bio *)arg0)->bio_to->name)] = count();
	@disk_sum[stringof(((struct bio *)arg0)->bio_to->name)] = sum(timestamp - this->began);
	@disk_max[stringof(((struct bio *)arg0)->bio_to->name)] = max(timestamp - this->began);
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
