/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The throttle tracer: what user space reads of it and tells it. */
#ifndef ZFSTRACE_BPF_THROTTLE_H
#define ZFSTRACE_BPF_THROTTLE_H

#include "trace.h"

enum wait_kind {
	WAIT_DIRTY_DELAY, /* over zfs_delay_min_dirty_percent: a sleep */
	WAIT_DIRTY_HARD,  /* at zfs_dirty_data_max: until something is written */
	WAIT_WRLOG,	  /* a sleep because of log data (zfs_wrlog_data_max) */
	WAIT_TXG,	  /* any other */
	WAIT_UNKNOWN,
	WAIT_KINDS,
};

/* One process on one pool; the table "waiters". Entry 0 is the rest. When the
 * process has ended user space gives its entry to another. */
struct waiter {
	unsigned long long count[WAIT_KINDS];
	unsigned long long total_ns[WAIT_KINDS];
	unsigned long long max_ns[WAIT_KINDS];
	unsigned long long dirty_bytes; /* of the pool at its last wait, 0 = not known */
	unsigned long long last_start;	/* of its last wait, CLOCK_MONOTONIC */
	unsigned long long last_end;
	unsigned long long spa;
	struct hist latency;
	unsigned int pid;
	unsigned int used;
	unsigned int life; /* tells one process from the next in this entry; never 0 */
	unsigned int pad;
	char comm[COMM_LEN];
	char pool[POOL_NAME_LEN];
};

struct waiter_key {
	unsigned long long spa;
	unsigned int pid;
	unsigned int pad;
};

/* The module's parameters as user space last read them, 0 = not known; the one
 * entry of the table "params", which it writes to. */
struct throttle_params {
	unsigned long long dirty_data_max;
	unsigned long long delay_min_dirty_percent;
	unsigned long long delay_scale;
};

#endif
