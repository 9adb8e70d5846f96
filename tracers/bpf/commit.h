/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Shared by the kernel side and the user side of the tracer of commits. */
#ifndef ZFSTRACE_BPF_COMMIT_H
#define ZFSTRACE_BPF_COMMIT_H

#include "trace.h"

enum commit_hist {
	COMMIT_TOTAL,	  /* zil_commit, from its entry to its return */
	COMMIT_LOG_WRITE, /* of log blocks: from when it is issued until it is written */
	COMMIT_FLUSH,	  /* from then on until the caches are flushed; added with the one above */
	COMMIT_HISTS,
};

/* Of one dataset in one lane. */
struct commit_data {
	struct small_hist hist[COMMIT_HISTS];
};

/* A slow commit, through the ring buffer. */
struct slow_commit {
	unsigned long long start_ns; /* CLOCK_MONOTONIC */
	unsigned long long total_ns;
	unsigned int slot;
	unsigned int life; /* of the slot at that time */
	unsigned int pid;
	unsigned int tid;
	char comm[ZFSTRACE_COMM_LEN];
};

#endif
