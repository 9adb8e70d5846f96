uint64_t issued[uint64_t];
uint64_t lwb_written[uint64_t];
uint64_t sent[uint64_t];

/*
 * (lwb_t *, blkptr_t *): called for the block pointer of the log block itself, which follows the
 * first word of the lwb, when the block is issued.
 */
fbt:{{ZFS}}:zil_lwb_add_block:entry
/arg1 == arg0 + 8/
{
	issued[arg0] = timestamp;
	saw_issued = 1;
}

/* (zio_t *), which leads to the lwb. */
fbt:{{ZFS}}:zil_lwb_write_done:entry
{
	this->lwb = (uint64_t)(({{ZIO_T}} *)arg0)->io_private;
	this->began = issued[this->lwb];
	issued[this->lwb] = 0;
	lwb_written[this->lwb] = timestamp;
	saw_written = 1;
}

/* Another zio of the same lwb. */
fbt:{{ZFS}}:zil_lwb_flush_vdevs_done:entry
{
	this->lwb = (uint64_t)(({{ZIO_T}} *)arg0)->io_private;
	this->began = lwb_written[this->lwb];
	lwb_written[this->lwb] = 0;
	saw_flushed = 1;
}

/*
 * (zio_t *) of type 5, "ioctl" up to 2.2 and "flush" since. With zfs_nocacheflush it does not
 * complete, so the next zio at its address must not be taken for it.
 */
{{DISK_START}}
{
	sent[arg0] = (({{ZIO_T}} *)arg0)->io_type == 5 ? timestamp : 0;
}

{{DISK_FLUSHED}}
{
	this->zio = {{BIO_ZIO}};
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

fbt:{{ZFS}}:zil_lwb_write_done:entry
/!this->began/
{
	@unknown = sum(1);
}
