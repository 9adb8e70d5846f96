/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The slots of datasets. */
#ifndef ZFSTRACE_BPF_SLOTS_H
#define ZFSTRACE_BPF_SLOTS_H

#include "config.bpf.h"
#include "file.bpf.h"
#include "free.bpf.h"
#include "hist.bpf.h"
#include "known.bpf.h"

#define NO_SLOT 0xffffffffU
#define SLOT_UNWANTED 0xfffffffeU

/* A dataset is identified by its zilog_t or, if it never commits, by the
 * superblock of a file. */
struct slot_key {
	__u64 ptr;
	__u64 dev;
};

/* The datasets that have a slot: never more than there are slots. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS_MAX);
	__type(key, struct slot_key);
	__type(value, __u32);
} slot_index SEC(".maps");

/* The datasets known not to be wanted, so that they are checked only once. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct slot_key);
	__type(value, __u32);
} unwanted SEC(".maps");

/* A slot that is filled in before it is known whether one is needed. A lazily preemptible kernel
 * may run another thread's program on this CPU meanwhile. */
struct slot_scratch {
	struct slot slot;
	__u64 busy;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_scratch);
} slot_scratch SEC(".maps");

/* libzfstrace sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* How many slots of zilogs have no object set yet: see learn_objset(). */
int nameless;

/* Of a slot in an array [lane][slot]. A CPU that came online later shares a lane; the others need
 * no division, which takes ten instructions. */
static __always_inline __u32 slot_entry(__u32 slot)
{
	__u32 lane = bpf_get_smp_processor_id();

	if (lane >= config.lanes)
		lane %= config.lanes;
	return lane * config.slots + slot;
}

/*
 * Whether a dataset is to be measured. What is still unknown passes; user
 * space filters by name, too. dev is the device of the operation's file.
 */
static __always_inline bool slot_wanted(const struct slot *s, __u32 dev)
{
	if (config.pool[0] && s->pool[0] && !same_pool(s->pool))
		return false;
	if (!config.objset)
		return true;
	if (s->objset)
		return s->objset == config.objset;
	return !dev || !config.objset_dev || dev == config.objset_dev;
}

/* Fills in a fresh slot; false when the dataset is not wanted. Each object has its own way. */
static __always_inline bool slot_fill(struct slot *s, __u64 zilog, __u64 file);

/*
 * Gives a new dataset a slot with the content of scratch; 0 when none is free, or the index has no
 * room. The slot is complete before the index leads to it.
 */
static __always_inline __u32 slot_new(const struct slot_key *key, struct slot *scratch)
{
	__u64 taken = slot_take();
	__u32 n = taken, *found;
	struct slot *s;

	if (!n)
		return 0;
	scratch->used = 1;
	scratch->life = taken >> 32;
	bpf_map_update_elem(&slots, &n, scratch, BPF_ANY);
	if (!bpf_map_update_elem(&slot_index, key, &n, BPF_NOEXIST)) {
		if (!key->dev && !scratch->objset)
			__sync_fetch_and_add(&nameless, 1);
		return n;
	}
	/* another CPU was first, or there is no room in the index */
	s = bpf_map_lookup_elem(&slots, &n);
	if (s)
		s->used = 0;
	if (!slot_put_back(taken) && s)
		s->used = s->gone = 1; /* user space gives it back */
	found = bpf_map_lookup_elem(&slot_index, key);
	return found ? *found : 0;
}

/*
 * The slot of a dataset, identified by its zilog or (zilog 0) the superblock
 * of a file; SLOT_UNWANTED if it is not to be measured, 0 if no slot is free.
 */
static __always_inline __u32 slot_get(__u64 zilog, __u64 file)
{
	struct slot_key key = { .ptr = zilog };
	__u32 zero = 0, yes = 1, *found, slot;
	struct slot_scratch *s;

	if (!zilog) {
		key.ptr = file_sb(file);
		key.dev = file_dev(file);
	}
	found = bpf_map_lookup_elem(&slot_index, &key);
	if (found)
		return *found;
	if (bpf_map_lookup_elem(&unwanted, &key))
		return SLOT_UNWANTED;
	if (!config.pool[0] && !config.objset && !slot_is_free())
		return 0; /* no need to identify it */
	s = bpf_map_lookup_elem(&slot_scratch, &zero);
	if (!s || __sync_val_compare_and_swap(&s->busy, 0, 1))
		return 0;
	__builtin_memset(&s->slot, 0, sizeof(s->slot));
	if (slot_fill(&s->slot, zilog, file)) {
		slot = slot_new(&key, &s->slot);
	} else {
		bpf_map_update_elem(&unwanted, &key, &yes, BPF_ANY);
		slot = SLOT_UNWANTED;
	}
	s->busy = 0;
	return slot;
}

/* Zilogs and superblocks are reused: what threads remember of them is good until the next one is
 * forgotten. */
__u32 forgets;

/* slot_get() by a thread that may have asked for the same dataset before. */
static __always_inline __u32 slot_again(struct known *known, __u64 zilog, __u64 file)
{
	__u64 dataset = zilog ? zilog : file_sb(file);
	__u32 now = forgets;

	if (known->dataset != dataset || known->forgets != now || !known->slot) {
		known->slot = slot_get(zilog, file);
		known->dataset = dataset;
		known->forgets = now;
	}
	return known->slot;
}

/* Called when a dataset is no longer in use: no operation can be in it. */
static __always_inline void slot_forget(const struct slot_key *key)
{
	__u32 *found = bpf_map_lookup_elem(&slot_index, key), n = found ? *found : 0;
	struct slot *s = n ? bpf_map_lookup_elem(&slots, &n) : 0;

	__sync_fetch_and_add(&forgets, 1);
	bpf_map_delete_elem(&slot_index, key);
	bpf_map_delete_elem(&unwanted, key);
	if (!s)
		return;
	if (!key->dev && !s->objset)
		__sync_fetch_and_add(&nameless, -1);
	s->gone = 1;
}

/* The same when a file system is unmounted. */
static __always_inline void slot_forget_sb(__u64 sb)
{
	struct slot_key key = { .ptr = sb };

	key.dev = BPF_CORE_READ((struct super_block *)sb, s_dev);
	slot_forget(&key);
}

#endif
