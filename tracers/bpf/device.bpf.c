// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Times the I/Os of leaf vdevs, by vdev and class. ZFS itself times them
 * (io_delta: queue and device, io_delay: device; vdev_queue.c, zio.c), so one
 * look at a zio that is done is enough; only cache flushes, which do not
 * queue, are timed here. Their end is taken at the same place as that of the
 * others, in a thread of ZFS: their bio ends in an interrupt, where kprobes are
 * missed.
 */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "trace.h"
#include "config.bpf.h"
#include "free.bpf.h"
#include "hist.bpf.h"
#include "pool.bpf.h"
#include "probe.bpf.h"
#include "ways.bpf.h"
#include "zfs_views.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TYPE_WRITE 2 /* zio_type_t */
#define TYPE_FLUSH 5 /* until 2.3.0 (d7605ae77b) ioctl, with the flush as its only use */
#define VDEV_SPA 104 /* the same in every build of 2.1 to 2.4 seen */
#define VDEV_TOP 120
#define VDEV_GUID 8

#define NO_VDEV 0xffffffffU

/* The results of searches without BTF; 0 = not found yet. */
unsigned int off_vd;
unsigned int off_delta;
unsigned int off_type;
unsigned int off_priority;

/* The vdevs that have an entry: never more than there are entries. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS_MAX);
	__type(key, __u64); /* guid */
	__type(value, __u32);
} vdev_index SEC(".maps");

/* libzfstrace sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct zfstrace_vdev);
} vdevs SEC(".maps");

/* The same without a search: a vdev for each place, the first one that came, which keeps it. */
struct known_vdev {
	__u64 guid;
	__u32 number;
	__u32 taken;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct known_vdev);
} known_vdevs SEC(".maps");

/* The flushes under way: when each was sent, by its zio. */
#define FLUSH_SET_BITS 10
struct flush {
	__u64 zio; /* 0 = free */
	__u64 start;
};

struct flush_set {
	struct flush ways[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << FLUSH_SET_BITS);
	__type(key, __u32);
	__type(value, struct flush_set);
} flushes SEC(".maps");

/* ---- layouts ------------------------------------------------------------ */

static __always_inline bool has_btf(void)
{
	struct zio *z = 0;

	return bpf_core_field_exists(z->io_vd) && bpf_core_field_exists(z->io_delta);
}

static __always_inline bool is_vdev(__u64 vd)
{
	__u64 spa, top;

	if ((long long)vd >= 0) /* not a kernel address */
		return false;
	spa = read_u64(vd + VDEV_SPA);
	if ((long long)spa >= 0 || !is_spa(spa))
		return false;
	top = read_u64(vd + VDEV_TOP);
	return top && read_u64(top + VDEV_SPA) == spa;
}

/* io_delta without BTF: io_delay follows it, and io_timestamp is 24 bytes before it:
 * a time of the last minute, and two parts of what has passed since. A time must be
 * after the first second of the clock, or any 0 would match. */
static __always_inline void search_delta(__u64 zio, __u64 now)
{
	for (int i = 4; i <= 24 && !off_delta; i++) {
		__u32 off = off_vd + 8 * i;
		__u64 start = read_u64(zio + off - 24), delta = read_u64(zio + off);
		__u64 delay = read_u64(zio + off + 8);

		if (start > 1000000000 && delta && delay && delay <= delta &&
		    now + 60000000000 - (start + delta) < 120000000000)
			off_delta = off;
	}
}

/* io_type and io_priority without BTF: of the words before io_spa only these two are
 * small and not 0 in the zio of a leaf vdev (the priority of a sync read is 0: then the
 * next zio is tried). */
static __always_inline void search_type(__u64 zio, __u64 spa)
{
	__u32 type = 0, priority = 0, more = 0, at = 0;

	for (int off = 64; off <= 200 && !at; off += 8)
		if (read_u64(zio + off) == spa)
			at = off;
	if (!at)
		return;
	for (int off = 32; off >= 12; off -= 4) {
		__u32 v = read_u32(zio + at - off);

		if (!v || v > 0xff) /* above: io_reexecute and io_state, bytes */
			continue;
		if (!type)
			type = at - off;
		else if (!priority)
			priority = at - off;
		else
			more++;
	}
	if (!priority || more || read_u32(zio + type) > TYPE_WRITE ||
	    read_u32(zio + priority) >= ZFSTRACE_IO_UNKNOWN)
		return;
	off_type = type;
	off_priority = priority;
}

static __always_inline __u64 zio_vd(struct zio *zio)
{
	for (int off = 480; off <= 640 && !off_vd; off += 8)
		if (is_vdev(read_u64((__u64)zio + off)))
			off_vd = off;
	return off_vd ? read_u64((__u64)zio + off_vd) : 0;
}

static __always_inline __u32 zio_priority(struct zio *zio, __u64 vd)
{
	if (!off_priority)
		search_type((__u64)zio, read_u64(vd + VDEV_SPA));
	return off_priority ? read_u32((__u64)zio + off_priority) : ZFSTRACE_IO_UNKNOWN;
}

/* What is read of a zio of a leaf vdev, by BTF or by search. */
struct io {
	__u64 vd;    /* 0: no vdev */
	__u64 guid;  /* of the vdev */
	__u64 delta; /* 0: not timed */
	__u64 delay;
	__u64 size;
	__u32 class;
	bool flush;
};

static __always_inline void read_io(bool typed, struct zio *zio, struct io *io)
{
	struct vdev *vd = MEMBER(typed, zio, io_vd);

	io->vd = (__u64)vd;
	if (!vd)
		return;
	io->guid = MEMBER(typed, vd, vdev_guid);
	io->flush = MEMBER(typed, zio, io_type) == TYPE_FLUSH;
	io->delta = MEMBER(typed, zio, io_delta);
	io->delay = MEMBER(typed, zio, io_delay);
	io->size = MEMBER(typed, zio, io_size);
	io->class = MEMBER(typed, zio, io_priority);
}

/* io_size is two words before io_vd. */
static __always_inline void search_io(struct zio *zio, struct io *io)
{
	io->vd = zio_vd(zio);
	if (!io->vd)
		return;
	io->guid = read_u64(io->vd + VDEV_GUID);
	io->flush = off_type && read_u32((__u64)zio + off_type) == TYPE_FLUSH;
	if (io->flush)
		return;
	if (!off_delta)
		search_delta((__u64)zio, bpf_ktime_get_ns());
	if (!off_delta)
		return;
	io->delta = read_u64((__u64)zio + off_delta);
	io->delay = read_u64((__u64)zio + off_delta + 8);
	io->size = read_u64((__u64)zio + off_vd - 16);
	io->class = zio_priority(zio, io->vd);
}

static __always_inline bool is_flush(bool typed, struct zio *zio)
{
	if (has_btf())
		return MEMBER(typed, zio, io_type) == TYPE_FLUSH;
	return off_type && read_u32((__u64)zio + off_type) == TYPE_FLUSH;
}

/* I/Os of a class at the device, including the current one, which has left; 0 when
 * that cannot be read. */
static __always_inline __u32 active(__u64 vd, __u32 priority)
{
	struct vdev *v = (struct vdev *)vd;
	__u64 offset;

	if (bpf_core_field_exists(v->vdev_queue.vq_cactive))
		return 1 + read_u32((__u64)&v->vdev_queue.vq_cactive + 4 * priority);
	if (bpf_core_field_exists(v->vdev_queue.vq_class) &&
	    bpf_core_field_exists(((struct vdev_queue_class *)0)->vqc_active)) {
		offset = priority * bpf_core_type_size(struct vdev_queue_class);
		/* Linux 6.1 knows no bound of a product, and a typed pointer takes no other */
		barrier_var(offset);
		return 1 + read_u32((__u64)&v->vdev_queue.vq_class + (offset & 0xfff));
	}
	return 0;
}

/* ---- probes ------------------------------------------------------------- */

/* An entry for a new vdev; 0 when none is free, or the index has no room. */
static __always_inline __u32 new_vdev(__u64 guid, __u64 spa)
{
	__u64 taken = slot_take();
	__u32 n = taken, *found;
	struct zfstrace_vdev *slot = n ? bpf_map_lookup_elem(&vdevs, &n) : 0;

	if (!slot)
		return 0;
	slot->guid = guid;
	bpf_probe_read_kernel_str(slot->pool, sizeof(slot->pool), (void *)spa);
	if (!bpf_map_update_elem(&vdev_index, &guid, &n, BPF_NOEXIST)) {
		slot->used = 1;
		return n;
	}
	/* another CPU was first, or there is no room; an entry that is not put back stays unused */
	slot_put_back(taken);
	found = bpf_map_lookup_elem(&vdev_index, &guid);
	return found ? *found : 0;
}

static __always_inline __u32 vdev_number(const struct io *io)
{
	__u32 at = io->guid & 255, n, *found;
	struct known_vdev *known = bpf_map_lookup_elem(&known_vdevs, &at);
	__u64 guid = io->guid, spa;

	if (known && known->guid == guid)
		return known->number;
	found = bpf_map_lookup_elem(&vdev_index, &guid);
	if (found) {
		n = *found;
	} else {
		spa = read_u64(io->vd + VDEV_SPA);
		if (!pool_wanted(spa))
			return NO_VDEV;
		n = new_vdev(guid, spa);
	}
	if (n && known && !__sync_val_compare_and_swap(&known->taken, 0, 1)) {
		known->number = n;
		(void)__sync_lock_test_and_set(&known->guid, guid); /* after the number */
	}
	return n;
}

static __always_inline struct zfstrace_io *find_class(const struct io *io, __u32 class)
{
	__u32 n = vdev_number(io);
	struct zfstrace_vdev *slot;

	if (n == NO_VDEV)
		return 0;
	slot = bpf_map_lookup_elem(&vdevs, &n);
	if (!n)
		COUNT(slots_overflow);
	barrier_var(class);
	return slot && class < ZFSTRACE_IO_CLASSES ? &slot->classes[class] : 0;
}

static __always_inline struct flush_set *flush_set(struct zio *zio)
{
	__u32 n = set_of((__u64)zio, FLUSH_SET_BITS);

	return bpf_map_lookup_elem(&flushes, &n);
}

static __always_inline void on_flushed(struct zio *zio, const struct io *io)
{
	struct flush_set *set = flush_set(zio);
	struct zfstrace_io *c;
	__u64 start = 0;

	for (int i = 0; set && i < WAYS; i++)
		if (set->ways[i].zio == (__u64)zio) {
			start = set->ways[i].start;
			set->ways[i].zio = 0;
			break;
		}
	if (!start)
		return;
	c = find_class(io, ZFSTRACE_IO_FLUSH);
	if (c) {
		ADD(c->count, 1);
		hist_add(&c->device, bpf_ktime_get_ns() - start);
	}
	COUNT(finished);
}

/* A step of every zio after its I/O, once; a flush is never retried (flag
 * ZIO_FLAG_DONT_RETRY; zio.c, 2.1 to 2.4). Of the others only those that were in the
 * queue of a leaf vdev have times. */
static __always_inline void on_io_assess(bool typed, struct zio *zio)
{
	struct io io = {};
	struct zfstrace_io *c;
	__u32 n;

	if (!enabled)
		return;
	if (has_btf())
		read_io(typed, zio, &io);
	else
		search_io(zio, &io);
	if (!io.vd)
		return;
	if (io.flush) {
		on_flushed(zio, &io);
		return;
	}
	if (!io.delta || !io.delay || io.delay > io.delta)
		return;
	if (io.class > ZFSTRACE_IO_UNKNOWN)
		io.class = ZFSTRACE_IO_UNKNOWN;
	c = find_class(&io, io.class);
	if (!c)
		return;
	ADD(c->count, 1);
	ADD(c->bytes, io.size);
	hist_add(&c->queue, io.delta - io.delay);
	hist_add(&c->device, io.delay);
	n = io.class < ZFSTRACE_IO_UNKNOWN ? active(io.vd, io.class) : 0;
	if (n) {
		ADD(c->active_sum, n);
		ADD(c->active_count, 1);
		raise_to(&c->active_max, n);
	}
}
AT_TYPED_ENTRY(io_assess, (struct zio * zio), zio)

static __always_inline void on_io_start(bool typed, struct zio *zio)
{
	struct flush_set *set;

	if (!enabled || !is_flush(typed, zio))
		return;
	set = flush_set(zio);
	for (int i = 0; set && i < WAYS; i++) {
		__u64 was = __sync_val_compare_and_swap(&set->ways[i].zio, 0, (__u64)zio);

		if (!was || was == (__u64)zio) { /* or its last end was not seen */
			set->ways[i].start = bpf_ktime_get_ns();
			COUNT(started);
			return;
		}
	}
	COUNT(lost_start);
}
AT_TYPED_ENTRY(io_start, (struct zio * zio), zio)
