#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/zfsflush.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * zfsflush.d  How long OpenZFS waits for its log writes and for the cache flushes of disks.
 *
 * USAGE: zfsflush.d [MIN_US]
 *
 * log_write and log_flush are per log block, the rest per disk and cache flush, including those of
 * txg syncs. Times shorter than MIN_US are left out. See zfsflush.d(8).
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=1m
#pragma D option dynvarsize=4m
#pragma D option strsize=64

inline uint64_t MIN_NS = $1 * 1000;

dtrace:::BEGIN
{
	printf("Tracing log writes and cache flushes... Hit Ctrl-C to end.\n");
}

uint64_t issued[uint64_t];
uint64_t lwb_written[uint64_t];
uint64_t sent[uint64_t];

/*
 * (lwb_t *, blkptr_t *): called for the block pointer of the log block itself, which follows the
 * first word of the lwb, when the block is issued.
 */
fbt:zfs:zil_lwb_add_block:entry
/arg1 == arg0 + 8/
{
	issued[arg0] = timestamp;
	saw_issued = 1;
}

/* (zio_t *), which leads to the lwb. */
fbt:zfs:zil_lwb_write_done:entry
{
	this->lwb = (uint64_t)((zio_t *)arg0)->io_private;
	this->began = issued[this->lwb];
	issued[this->lwb] = 0;
	lwb_written[this->lwb] = timestamp;
	saw_written = 1;
}

/* Another zio of the same lwb. */
fbt:zfs:zil_lwb_flush_vdevs_done:entry
{
	this->lwb = (uint64_t)((zio_t *)arg0)->io_private;
	this->began = lwb_written[this->lwb];
	lwb_written[this->lwb] = 0;
	saw_flushed = 1;
}

/*
 * (zio_t *) of type 5, "ioctl" up to 2.2 and "flush" since. With zfs_nocacheflush it does not
 * complete, so the next zio at its address must not be taken for it.
 */
fbt:zfs:vdev_geom_io_start:entry
{
	sent[arg0] = ((zio_t *)arg0)->io_type == 5 ? timestamp : 0;
}

fbt:zfs:vdev_geom_io_intr:entry
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

fbt:zfs:zil_lwb_write_done:entry
/!this->began/
{
	@unknown = sum(1);
}

fbt:zfs:zil_lwb_write_done:entry
/this->began && timestamp - this->began >= MIN_NS/
{
	@log_us["log_write"] = quantize((timestamp - this->began) / 1000);
}

fbt:zfs:zil_lwb_flush_vdevs_done:entry
/this->began && timestamp - this->began >= MIN_NS/
{
	@log_us["log_flush"] = quantize((timestamp - this->began) / 1000);
}

fbt:zfs:vdev_geom_io_intr:entry
/this->began && timestamp - this->began >= MIN_NS/
{
	@disk_us[stringof(((struct bio *)arg0)->bio_to->name)] = quantize((timestamp - this->began) / 1000);
}

dtrace:::END
{
	printf("\nLog blocks, us:\n");
	printa(@log_us);
	printf("Cache flushes by disk, us:\n");
	printa(@disk_us);
	printa("Log blocks whose start was not seen: %@u", @unknown);
	printa(", errors: %@u\n", @errors);
}

dtrace:::END
/saw_written && !saw_issued/
{
	printf("Never fired: zil_lwb_add_block:entry; there is no log_write.\n");
}

dtrace:::END
/!saw_written || !saw_flushed/
{
	printf("No log block was seen to be written or flushed: was there an fsync?\n");
}
