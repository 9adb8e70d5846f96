/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Shared by the kernel side and the user side of every tracer: histogram
 * shape, counters of losses, and the configuration. What the library's callers
 * read directly is in zfstrace_tables.h. Plain C types only, so that both
 * compilers agree.
 */
#ifndef ZFSTRACE_BPF_TRACE_H
#define ZFSTRACE_BPF_TRACE_H

#include "../libzfstrace/zfstrace_tables.h"

/* The shape of ZFSTRACE_HIST_BUCKETS. */
#define HIST_SUB_BITS 5
#define HIST_SUB (1 << HIST_SUB_BITS)
#define HIST_MAX_BITS 42

/* A smaller struct zfstrace_table_hist, used where there are many. The latter never wraps (2^64 ns
 * are 584 years of one thread's waiting); here a bucket wraps after 2^32 values, in 71 minutes at a
 * million per second. User space reads it more often and sums the differences. */
struct small_hist {
	unsigned long long sum_ns;
	unsigned long long max_ns;
	unsigned int bucket[ZFSTRACE_HIST_BUCKETS];
};

/* Global, per CPU: a cache line each. */
struct counters {
	unsigned long long started;
	unsigned long long finished;
	unsigned long long lost_start;	   /* no room for the state of an operation */
	unsigned long long lost_return;	   /* a return probe did not fire */
	unsigned long long lost_event;	   /* ring buffer full */
	unsigned long long lost_lwb;	   /* a wait whose log block is unknown */
	unsigned long long slots_overflow; /* operations counted in slot 0 */
	unsigned long long pad;
};

/*
 * A ring of free slots: user space increments `given` when it adds one, programs
 * increment `taken` when they take one. A slot is in it at most once, so it is
 * never full.
 */
#define SLOTS_MAX 1024
struct free_slots {
	unsigned long long taken;
	unsigned long long given;
	unsigned int slot[SLOTS_MAX];
};

/*
 * A dataset on the kernel side. Slot 0 collects what found no free slot.
 * objset is 0 until it is known; dev is the superblock's device number
 * (kernel encoding) if an operation came through a file, else 0. When its
 * dataset is no longer in use, a slot is gone: it stays unchanged until user
 * space has read it, and is then reused.
 */
struct slot {
	unsigned long long objset;
	unsigned int dev;
	unsigned int used;
	unsigned int gone;
	unsigned int life; /* differs from dataset to dataset in this slot; never 0 */
	char pool[ZFSTRACE_POOL_LEN];
};

/* Values of `enabled`: whose programs count. */
#define COUNT_FENTRY 1
#define COUNT_KPROBE 2

/* The configuration, written into the object before it is loaded. */
struct trace_config {
	unsigned int pid;   /* tgid, 0 = all */
	unsigned int slots; /* entries of the slot maps */
	unsigned int lanes; /* of a slot: CPU n adds to lane n modulo this */
	unsigned long long slow_ns;
	unsigned long long objset; /* 0 = all */
	unsigned int objset_dev;   /* device number, kernel encoding */
	unsigned int mode;	   /* a tracer's own */
	unsigned int lazy; /* kprobes may have to take over: `enabled` says whose turn it is */
	char pool[ZFSTRACE_POOL_LEN]; /* "" = all */
};

#endif
