/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Locates the few members of ZFS's structures that are read: by the module's
 * BTF, or else by a search that verifies what it finds. Has the table of log
 * blocks, against which one of the searches checks.
 */
#ifndef ZFSTRACE_BPF_LAYOUT_H
#define ZFSTRACE_BPF_LAYOUT_H

#include "pool.bpf.h"
#include "ways.bpf.h"
#include "zfs_views.h"

/* The results of searches; 0 = not found yet. See search_*(). */
unsigned int off_zl_spa;
unsigned int off_zcw_lwb;
unsigned int off_io_private;

/*
 * The progress of log blocks, by the address of the lwb_t. Addresses are reused: `issued`
 * distinguishes the blocks. In its set one replaces that which was issued first. With thousands of
 * blocks under way one is lost now and then, which is counted when a wait for it ends.
 */
struct lwb_times {
	__u64 lwb;
	__u64 issued;
	__u64 written;
	__u64 flushed;
	__u64 slot; /* the commit tracer's */
};

#define LWB_SET_BITS 12
struct lwb_set {
	struct lwb_times ways[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << LWB_SET_BITS);
	__type(key, __u32);
	__type(value, struct lwb_set);
} lwbs SEC(".maps");

static __always_inline struct lwb_set *lwb_set(__u64 lwb)
{
	__u32 n = set_of(lwb, LWB_SET_BITS);

	return bpf_map_lookup_elem(&lwbs, &n);
}

/* The address of no log block, and of no free place in the table, where it is 0. */
#define NO_LWB 1

/* NULL if it is not in the table. */
static __always_inline struct lwb_times *lwb_find(__u64 lwb)
{
	struct lwb_set *set = lwb_set(lwb);

	for (int i = 0; set && i < WAYS; i++)
		if (set->ways[i].lwb == lwb)
			return &set->ways[i];
	return 0;
}

/* Notes that a log block was issued. If another CPU takes the same place at this moment, one of the
 * two is not in the table. */
static __always_inline struct lwb_times *lwb_issue(__u64 lwb, __u64 now)
{
	struct lwb_set *set = lwb_set(lwb);
	struct lwb_times *to;

	if (!set)
		return 0;
	to = &set->ways[0];
	for (int i = 0; i < WAYS; i++) {
		struct lwb_times *way = &set->ways[i];

		if (way->lwb == lwb) {
			to = way;
			break;
		}
		if (way->issued < to->issued)
			to = way;
	}
	to->lwb = lwb;
	to->written = to->flushed = 0;
	to->issued = now;
	return to;
}

/*
 * zl_spa without BTF: in a zilog_t zl_dmu_pool and zl_spa are adjacent, after
 * its first lock; a dsl_pool_t begins with the pointer to its spa, and a spa_t
 * with the pool's name (all of 2.1 to 2.4). zl_os is two words further.
 */
static __always_inline __u32 search_zl_spa(__u64 zilog)
{
	for (int off = 32; off <= 160; off += 8) {
		__u64 dp = read_u64(zilog + off);
		__u64 spa = read_u64(zilog + off + 8);

		if (dp && spa && pool_spa(dp) == spa && is_spa(spa))
			return off + 8;
	}
	return 0;
}

static __always_inline __u64 zilog_spa(__u64 zilog)
{
	struct zilog *z = (struct zilog *)zilog;

	if (bpf_core_field_exists(z->zl_spa))
		return (__u64)BPF_CORE_READ(z, zl_spa);
	if (!off_zl_spa)
		off_zl_spa = search_zl_spa(zilog);
	return off_zl_spa ? read_u64(zilog + off_zl_spa) : 0;
}

static __always_inline __u64 zilog_pool(__u64 zilog)
{
	struct zilog *z = (struct zilog *)zilog;

	if (bpf_core_field_exists(z->zl_dmu_pool))
		return (__u64)BPF_CORE_READ(z, zl_dmu_pool);
	return off_zl_spa ? read_u64(zilog + off_zl_spa - 8) : 0;
}

/* 0 without BTF; then the first log block has it (on_add_block). */
static __always_inline __u64 zilog_objset(__u64 zilog)
{
	struct zilog *z = (struct zilog *)zilog;
	struct dsl_dataset *ds = 0;

	if (bpf_core_field_exists(z->zl_os) && bpf_core_field_exists(ds->ds_object))
		return BPF_CORE_READ(z, zl_os, os_dsl_dataset, ds_object);
	return 0;
}

/* The log block of a commit waiter; lwb_t begins with lwb_zilog, which
 * identifies the right word. */
static __always_inline __u64 zcw_lwb(__u64 zcw, __u64 lock, __u64 zilog)
{
	struct zil_commit_waiter *w = (struct zil_commit_waiter *)zcw;

	if (bpf_core_field_exists(w->zcw_lwb))
		return (__u64)BPF_CORE_READ(w, zcw_lwb);
	if (!off_zcw_lwb) {
		for (int off = 32; off <= 96; off += 8) {
			__u64 p = read_u64(lock + off);

			if (p && read_u64(p) == zilog) {
				off_zcw_lwb = lock + off - zcw;
				break;
			}
		}
	}
	return off_zcw_lwb ? read_u64(zcw + off_zcw_lwb) : 0;
}

/* io_private of a zio of a log block: without BTF the one word that is the
 * address of an issued block. NO_LWB until one was seen to be issued. */
static __always_inline __u64 zio_lwb(struct zio *zio, bool typed)
{
	if (bpf_core_field_exists(zio->io_private))
		return (__u64)MEMBER(typed, zio, io_private);
	if (!off_io_private) {
		for (int off = 200; off <= 600; off += 8) {
			__u64 p = read_u64((__u64)zio + off);

			if (p && lwb_find(p)) {
				off_io_private = off;
				break;
			}
		}
	}
	return off_io_private ? read_u64((__u64)zio + off_io_private) : NO_LWB;
}

#endif
