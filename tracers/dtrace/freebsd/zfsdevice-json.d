#!/usr/sbin/dtrace -Zs
/*
 * FreeBSD. Generated from source/zfsdevice-json.d by generate.py: edit that file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */

/*
 * zfsdevice-json.d  I/O of the disks of OpenZFS pools, by vdev and class, as JSON objects.
 *
 * USAGE: zfsdevice-json.d [POOL]
 *
 * Prints its sums twice a second. See docs/dtrace-json.md.
 */

#pragma D option quiet
#pragma D option defaultargs
#pragma D option bufsize=256k
#pragma D option aggsize=4m
#pragma D option dynvarsize=4m
#pragma D option strsize=64
#pragma D option switchrate=10hz
#pragma D option aggrate=10hz

inline string WANTED = $$1;

dtrace:::BEGIN
{
	began = timestamp;
	printf("{\"schema\":1,\"type\":\"trace_begin\",\"tool\":\"zfsdevice\"}\n");
}

dtrace:::BEGIN
{
	@errors = sum(0);
}

dtrace:::ERROR
{
	@errors = sum(1);
}

/*
 * (zio_t *): a step of every zio after its I/O. Only those that were in the queue of a leaf have
 * times: io_delay at the device, io_delta with the queue before it.
 */
fbt:zfs:zio_vdev_io_assess:entry
{
	this->zio = (zio_t *)arg0;
	this->delta = this->zio->io_vd ? this->zio->io_delta : 0;
	this->delay = this->zio->io_delay;
	this->ours = this->delta && this->delay && this->delay <= this->delta &&
	    (WANTED == "" || WANTED == stringof(this->zio->io_spa->spa_name));
}

fbt:zfs:zio_vdev_io_assess:entry
/this->ours/
{
	saw_io = 1;
	this->guid = this->zio->io_vd->vdev_guid;
	this->class = this->zio->io_priority;
	this->ns = this->delta - this->delay;
	/* this->bucket of this->ns: 32 for each power of two (see tracers/zfstrace/hist.py) */
	this->v = this->ns;
	this->b = this->v >> 32 ? 32 : 0;
	this->v = this->v >> this->b;
	this->bits = this->b;
	this->b = this->v >> 16 ? 16 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 8 ? 8 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 4 ? 4 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 2 ? 2 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b + (this->v >> 1 ? 1 : 0);
	this->shift = this->bits > 5 ? this->bits - 5 : 0;
	this->bucket = this->ns < 64 ? this->ns : this->ns >> 42 ? 1215 :
	    this->shift * 32 + (this->ns >> this->shift);
	@count[stringof(this->zio->io_spa->spa_name), this->guid, this->class, "queue", this->bucket] = count();
	@sum[stringof(this->zio->io_spa->spa_name), this->guid, this->class, "queue", this->bucket] = sum(this->ns);
	@max[stringof(this->zio->io_spa->spa_name), this->guid, this->class, "queue", this->bucket] = max(this->ns);
	@size[stringof(this->zio->io_spa->spa_name), this->guid, this->class, "queue", this->bucket] = sum(0);
}

fbt:zfs:zio_vdev_io_assess:entry
/this->ours/
{
	this->ns = this->delay;
	/* this->bucket of this->ns: 32 for each power of two (see tracers/zfstrace/hist.py) */
	this->v = this->ns;
	this->b = this->v >> 32 ? 32 : 0;
	this->v = this->v >> this->b;
	this->bits = this->b;
	this->b = this->v >> 16 ? 16 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 8 ? 8 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 4 ? 4 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 2 ? 2 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b + (this->v >> 1 ? 1 : 0);
	this->shift = this->bits > 5 ? this->bits - 5 : 0;
	this->bucket = this->ns < 64 ? this->ns : this->ns >> 42 ? 1215 :
	    this->shift * 32 + (this->ns >> this->shift);
	@count[stringof(this->zio->io_spa->spa_name), this->guid, this->class, "device", this->bucket] = count();
	@sum[stringof(this->zio->io_spa->spa_name), this->guid, this->class, "device", this->bucket] = sum(this->ns);
	@max[stringof(this->zio->io_spa->spa_name), this->guid, this->class, "device", this->bucket] = max(this->ns);
	@size[stringof(this->zio->io_spa->spa_name), this->guid, this->class, "device", this->bucket] =
	    sum(this->zio->io_size);
}

/* This one has left the queue's count of I/Os at the device. Classes from 9 on do not queue. */
fbt:zfs:zio_vdev_io_assess:entry
/this->ours && this->class < 9/
{
	this->active = 1 + this->zio->io_vd->vdev_queue.vq_cactive[this->class];
	@active[stringof(this->zio->io_spa->spa_name), this->guid, this->class] = sum(this->active);
	@active_max[stringof(this->zio->io_spa->spa_name), this->guid, this->class] = max(this->active);
}

/*
 * (zio_t *) of type 5, "ioctl" up to 2.2 and "flush" since: it does not queue. With
 * zfs_nocacheflush it does not complete, so the next zio at its address must not be taken for it.
 */
fbt:zfs:vdev_geom_io_start:entry
{
	sent[arg0] = ((zio_t *)arg0)->io_type == 5 ? timestamp : 0;
}

fbt:zfs:vdev_geom_io_intr:entry
{
	this->flush = (zio_t *)(uint64_t)((struct bio *)arg0)->bio_caller1;
	this->began = sent[(uint64_t)this->flush];
	sent[(uint64_t)this->flush] = 0;
}

fbt:zfs:vdev_geom_io_intr:entry
/this->began && (WANTED == "" || WANTED == stringof(this->flush->io_spa->spa_name))/
{
	saw_flush = 1;
	this->guid = this->flush->io_vd->vdev_guid;
	this->class = 10;
	this->ns = timestamp - this->began;
	/* this->bucket of this->ns: 32 for each power of two (see tracers/zfstrace/hist.py) */
	this->v = this->ns;
	this->b = this->v >> 32 ? 32 : 0;
	this->v = this->v >> this->b;
	this->bits = this->b;
	this->b = this->v >> 16 ? 16 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 8 ? 8 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 4 ? 4 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b;
	this->b = this->v >> 2 ? 2 : 0;
	this->v = this->v >> this->b;
	this->bits = this->bits + this->b + (this->v >> 1 ? 1 : 0);
	this->shift = this->bits > 5 ? this->bits - 5 : 0;
	this->bucket = this->ns < 64 ? this->ns : this->ns >> 42 ? 1215 :
	    this->shift * 32 + (this->ns >> this->shift);
	@count[stringof(this->flush->io_spa->spa_name), this->guid, this->class, "device", this->bucket] = count();
	@sum[stringof(this->flush->io_spa->spa_name), this->guid, this->class, "device", this->bucket] = sum(this->ns);
	@max[stringof(this->flush->io_spa->spa_name), this->guid, this->class, "device", this->bucket] = max(this->ns);
	@size[stringof(this->flush->io_spa->spa_name), this->guid, this->class, "device", this->bucket] = sum(0);
}

profile:::tick-500ms,
dtrace:::END
{
	printa("{\"schema\":1,\"type\":\"device_times\",\"pool\":\"%s\",\"guid\":%u,\"class\":%d,\"part\":\"%s\",\"bucket\":%d,\"count\":%@u,\"total_ns\":%@u,\"max_ns\":%@u,\"bytes\":%@u}\n",
	    @count, @sum, @max, @size);
	printa("{\"schema\":1,\"type\":\"device_active\",\"pool\":\"%s\",\"guid\":%u,\"class\":%d,\"sum\":%@u,\"max\":%@u}\n",
	    @active, @active_max);
	printa("{\"schema\":1,\"type\":\"trace_state\",\"errors\":%@u}\n", @errors);
}

dtrace:::END
{
	printf("{\"schema\":1,\"type\":\"trace_end\",\"tool\":\"zfsdevice\",\"duration_ns\":%d",
	    timestamp - began);
	printa(",\"errors\":%@u", @errors);
	printf(",\"never_fired\":[%s%snull]}\n",
	    saw_io ? "" : "\"fbt:zfs:zio_vdev_io_assess:entry\",",
	    saw_flush ? "" : "\"fbt:zfs:vdev_geom_io_intr:entry\",");
}
