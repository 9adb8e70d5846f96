/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a thread is in, an operation or a commit. Its storage has room for that, but a look at it
 * takes a hundred instructions, where the element of an array takes twenty. So it is in the place
 * of an array to which the thread's address leads and, while another thread is there, in the
 * storage.
 *
 * A thread whose return was missed stays in its place until its next operation. If it ends before,
 * the place is that of the next thread at its address, which has begun nothing.
 */
#ifndef ZFSTRACE_BPF_PLACES_H
#define ZFSTRACE_BPF_PLACES_H

#include "ways.bpf.h"

#ifndef PLACES_BITS /* a test has fewer places */
#define PLACES_BITS 10
#endif

/* What `place.crowded` is in the storage. */
#define STORED (~0ULL)

struct place {
	__u64 task;    /* whose it is, 0 = nobody's; only that thread writes what is in it */
	__u64 crowded; /* how many threads have to use their storage because of it */
};

/*
 * For `struct ID`, which has a member `struct place place`: two maps, and
 * ID_here(): what the current thread is in, or NULL;
 * ID_of(): the same of the thread task, whose address is also passed as a number; NULL stands for
 *	the current one;
 * ID_take(): a place for me, the current thread, or NULL if there is no memory; *left is false if
 *	it, or one before it at its address, has not left its last one;
 * ID_leave(): another thread may come at once, so the exchange is after all that was read.
 */
#define PLACES(id)                                                                                 \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(max_entries, 1 << PLACES_BITS);                                             \
		__type(key, __u32);                                                                \
		__type(value, struct id);                                                          \
	} id##_places SEC(".maps");                                                                \
                                                                                                   \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_TASK_STORAGE);                                           \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                              \
		__type(key, int);                                                                  \
		__type(value, struct id);                                                          \
	} id##_storage SEC(".maps");                                                               \
                                                                                                   \
	static __always_inline struct id *id##_place(__u64 task)                                   \
	{                                                                                          \
		__u32 n = set_of(task, PLACES_BITS);                                               \
                                                                                                   \
		return bpf_map_lookup_elem(&id##_places, &n);                                      \
	}                                                                                          \
                                                                                                   \
	static __always_inline struct id *id##_of(__u64 address, struct task_struct *task)         \
	{                                                                                          \
		struct id *at = id##_place(address);                                               \
                                                                                                   \
		if (!at || at->place.task == address)                                              \
			return at;                                                                 \
		if (!at->place.crowded)                                                            \
			return 0;                                                                  \
		at = bpf_task_storage_get(&id##_storage, task ?: bpf_get_current_task_btf(), 0,    \
					  0);                                                      \
		return at && at->place.task ? at : 0;                                              \
	}                                                                                          \
                                                                                                   \
	static __always_inline struct id *id##_here(void)                                          \
	{                                                                                          \
		return id##_of(bpf_get_current_task(), 0);                                         \
	}                                                                                          \
                                                                                                   \
	static __always_inline struct id *id##_take(struct task_struct *me, bool *left)            \
	{                                                                                          \
		__u64 task = (__u64)me, was;                                                       \
		struct id *at = id##_place(task), *stored;                                         \
                                                                                                   \
		*left = false;                                                                     \
		if (!at)                                                                           \
			return 0;                                                                  \
		if (at->place.crowded) {                                                           \
			stored = bpf_task_storage_get(&id##_storage, me, 0, 0);                    \
			if (stored && stored->place.task)                                          \
				return stored;                                                     \
		}                                                                                  \
		was = __sync_val_compare_and_swap(&at->place.task, 0, task);                       \
		*left = was != task;                                                               \
		if (!was || was == task)                                                           \
			return at;                                                                 \
		stored = bpf_task_storage_get(&id##_storage, me, 0,                                \
					      BPF_LOCAL_STORAGE_GET_F_CREATE);                     \
		if (!stored)                                                                       \
			return 0;                                                                  \
		__sync_fetch_and_add(&at->place.crowded, 1);                                       \
		stored->place.crowded = STORED;                                                    \
		stored->place.task = task;                                                         \
		return stored;                                                                     \
	}                                                                                          \
                                                                                                   \
	static __always_inline void id##_leave(struct id *at)                                      \
	{                                                                                          \
		if (at->place.crowded == STORED) {                                                 \
			struct id *full = id##_place(at->place.task);                              \
                                                                                                   \
			if (full)                                                                  \
				__sync_fetch_and_add(&full->place.crowded, -1);                    \
		}                                                                                  \
		(void)__sync_lock_test_and_set(&at->place.task, 0);                                \
	}

#endif
