/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel side and the user side of the "stacks" tracer share: what is
 * recorded of whom, and the sums.
 */
#ifndef ZFSTRACE_BPF_STACKS_H
#define ZFSTRACE_BPF_STACKS_H

#include "fsync.h"

#define STACKS_HZ 99 /* not 100: nothing periodic shall run in step with it */

#define STACK_DEPTH 127 /* kernel.perf_event_max_stack */

/* Return addresses, leaf first, as the map "stacks" has them by their hash. */
struct stack {
	unsigned long long n;
	unsigned long long ip[STACK_DEPTH];
};

#define STACK_PREEMPTED 1 /* it could have run on */
#define STACK_WOKEN 2	  /* by a waker that was seen */

#define STACK_IN_USER 1 /* for a stack: the thread ran its own program */

/* A sum of the map "sums". Stack 0 could not be taken. */
struct stack_key {
	unsigned long long spa; /* in "pools", 0 = not known */
	unsigned long long stack;
	unsigned long long waker;
	unsigned int dev; /* of the file, where the pool is not known */
	unsigned short stage;
	unsigned short flags;
	char comm[ZFSTRACE_COMM_LEN];
	char waker_comm[ZFSTRACE_COMM_LEN];
};

struct stack_sum {
	unsigned long long ns; /* 0 on-CPU */
	unsigned long long count;
};

/* The map "sleepers": a thread that is off its CPU. */
struct sleeper {
	unsigned long long since;
	unsigned long long stack;
	unsigned long long waker;
	unsigned long long flags;
	char waker_comm[ZFSTRACE_COMM_LEN];
};

/* What went wrong, counted. */
struct stack_losses {
	unsigned long long no_stack;	  /* the kernel could not walk it */
	unsigned long long stacks_full;	  /* no room for another stack: neither shows */
	unsigned long long sums_full;	  /* no room for another sum: not in the output, */
	unsigned long long lost_ns;	  /* and its time */
	unsigned long long sleepers_full; /* likewise */
};

#endif
