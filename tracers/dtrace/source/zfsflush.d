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

{{include flush.d}}

fbt:{{ZFS}}:zil_lwb_write_done:entry
/this->began && timestamp - this->began >= MIN_NS/
{
	@log_us["log_write"] = quantize((timestamp - this->began) / 1000);
}

fbt:{{ZFS}}:zil_lwb_flush_vdevs_done:entry
/this->began && timestamp - this->began >= MIN_NS/
{
	@log_us["log_flush"] = quantize((timestamp - this->began) / 1000);
}

{{DISK_FLUSHED}}
/this->began && timestamp - this->began >= MIN_NS/
{
	@disk_us[{{BIO_DISK}}] = quantize((timestamp - this->began) / 1000);
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
