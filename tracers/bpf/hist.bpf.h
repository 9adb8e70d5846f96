/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Counters and log-linear histograms, per CPU. */
#ifndef ZFSTRACE_BPF_HIST_H
#define ZFSTRACE_BPF_HIST_H

#include "trace.h"

/*
 * User space reads memory-mapped arrays: a look-up by system call keeps the
 * kernel from running kprobe programs on that CPU (bpf_disable_instrumentation),
 * on a preemptible kernel also those of other threads that run there meanwhile.
 * Per-CPU maps cannot be mapped, so there are arrays with an entry for each CPU,
 * or for several CPUs.
 *
 * Additions are atomic: CPUs may share an entry, and a preemptible kernel may
 * run another thread's program on this CPU in the middle of ours.
 */
#define ADD(counter, n) ((void)__sync_fetch_and_add(&(counter), (n)))

/* [CPU]; libzfstrace sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

#define COUNT(field)                                                                               \
	do {                                                                                       \
		__u32 cpu = bpf_get_smp_processor_id();                                            \
		struct counters *c = bpf_map_lookup_elem(&counters, &cpu);                         \
		if (c)                                                                             \
			ADD(c->field, 1);                                                          \
	} while (0)

/* The position of the highest bit of a byte that is set. */
#define TWICE(n) n, n
#define TIMES_4(n) TWICE(n), TWICE(n)
#define TIMES_16(n) TIMES_4(n), TIMES_4(n), TIMES_4(n), TIMES_4(n)
static const __u8 highest_bit[256] = {
	0,	     0,		  TWICE(1),    TIMES_4(2),  TIMES_4(3),	 TIMES_4(3),  TIMES_16(4),
	TIMES_16(5), TIMES_16(5), TIMES_16(6), TIMES_16(6), TIMES_16(6), TIMES_16(6), TIMES_16(7),
	TIMES_16(7), TIMES_16(7), TIMES_16(7), TIMES_16(7), TIMES_16(7), TIMES_16(7), TIMES_16(7),
};

/* What is usual is asked first: most values are microseconds to milliseconds. */
static __always_inline __u32 hist_bucket(__u64 v)
{
	__u32 shift = 0;

	if (v >> 24) {
		if (v >> HIST_MAX_BITS)
			return ZFSTRACE_HIST_BUCKETS - 1;
		shift = v >> 40 ? 40 : v >> 32 ? 32 : 24;
	} else if (v >> 16) {
		shift = 16;
	} else if (v >> 8) {
		shift = 8;
	} else if (v < 2 * HIST_SUB) {
		return v;
	}
	shift += highest_bit[(v >> shift) & 0xff] - HIST_SUB_BITS;
	return (shift << HIST_SUB_BITS) + (v >> shift);
}

static __always_inline void raise_to(__u64 *max, __u64 v)
{
	__u64 old = *max;

	/* each failure means that another thread has raised it meanwhile */
	for (int i = 0; i < 4 && v > old; i++) {
		__u64 seen = __sync_val_compare_and_swap(max, old, v);

		if (seen == old)
			break;
		old = seen;
	}
}

/* Adds to a struct zfstrace_table_hist or a struct small_hist. */
#define hist_add(h, v)                                                                             \
	do {                                                                                       \
		__typeof__(h) to_ = (h);                                                           \
		__u64 v_ = (v);                                                                    \
		__u32 b_ = hist_bucket(v_);                                                        \
		ADD(to_->sum_ns, v_);                                                              \
		raise_to(&to_->max_ns, v_);                                                        \
		barrier_var(b_);                                                                   \
		if (b_ < ZFSTRACE_HIST_BUCKETS)                                                    \
			ADD(to_->bucket[b_], 1);                                                   \
	} while (0)

#endif
