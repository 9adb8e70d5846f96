/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Shared by the kernel side and the user side of the tracer of reads and writes. */
#ifndef ZFSTRACE_BPF_READ_H
#define ZFSTRACE_BPF_READ_H

#include "trace.h"

/* Operations that moved data, each with a histogram of its own. */
enum read_op {
	READ_HIT,  /* did not wait for an I/O */
	READ_MISS, /* did */
	READ_WRITE,
	READ_OPS,
};

/* Of one dataset in one lane. The order of the counts is that of struct zfstrace_reads. */
struct read_data {
	struct small_hist hist[READ_OPS];
	unsigned long long bytes[READ_OPS];
	unsigned long long errors; /* operations that returned an error; in nothing else */
	unsigned long long held;   /* writes that a transaction held up: throttle or txg */
	unsigned long long held_ns;
};

#endif
