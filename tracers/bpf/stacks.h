/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Shared by the kernel side and the user side of the "stacks" tracer: the sums
 * and losses.
 */
#ifndef ZFSTRACE_BPF_STACKS_H
#define ZFSTRACE_BPF_STACKS_H

#include "fsync.h"
#include "sleeper.h"

#define STACKS_HZ 99 /* not 100, to avoid running in step with periodic work */

#define STACK_DEPTH 127 /* kernel.perf_event_max_stack */

/* Return addresses, leaf first, as the map "stacks" has them by their hash. */
struct stack {
	unsigned long long n;
	unsigned long long ip[STACK_DEPTH];
};

#define STACK_PREEMPTED 1 /* it could have continued to run */
#define STACK_WOKEN 2	  /* by a waker that was seen */

#define STACK_IN_USER 1 /* instead of a stack: the thread was in user mode */

/* A sum of the map "sums". Stack 0 could not be taken. */
struct stack_key {
	unsigned long long spa; /* in "pools", 0 = unknown */
	unsigned long long stack;
	unsigned long long waker;
	unsigned int dev; /* of the file, where the pool is unknown */
	unsigned short stage;
	unsigned short flags;
	char comm[ZFSTRACE_COMM_LEN];
	char waker_comm[ZFSTRACE_COMM_LEN];
};

struct stack_sum {
	unsigned long long ns; /* 0 on-CPU */
	unsigned long long count;
};

/* See struct zfstrace_stack_losses. */
struct stack_losses {
	unsigned long long no_stack;
	unsigned long long stacks_full;
	unsigned long long sums_full;
	unsigned long long lost_ns;
	unsigned long long sleepers_full;
	/* no losses: the threads asleep in an fsync, and the sum of the times since when */
	unsigned long long asleep;
	unsigned long long asleep_since;
};

#endif
