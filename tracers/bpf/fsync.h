/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Shared by the kernel side and the user side of the fsync tracer: stages,
 * kinds, and the layout of the maps.
 */
#ifndef ZFSTRACE_BPF_FSYNC_H
#define ZFSTRACE_BPF_FSYNC_H

#include "trace.h"

/* The stages of an fsync in the order in which they happen. */
enum fsync_stage {
	STAGE_WRITEBACK,
	STAGE_ASYNC_TO_SYNC,
	STAGE_TX_ASSIGN,
	STAGE_ISSUER_LOCK,
	STAGE_ISSUE,
	STAGE_BATCH_WAIT,
	STAGE_LOG_WRITE,
	STAGE_FLUSH,
	STAGE_WAKEUP,
	STAGE_TXG_FALLBACK,
	STAGE_OTHER,
	STAGE_COUNT,
	/* the histogram of whole operations, after those of the stages */
	STAGE_TOTAL = STAGE_COUNT,
	HISTS_PER_SLOT,
};

enum fsync_kind {
	KIND_FSYNC,
	KIND_FDATASYNC,
	KIND_O_SYNC,
	KIND_MSYNC,
	KIND_ZVOL,
	KIND_OTHER,
	KIND_COUNT,
};

/* Of one dataset in one lane: a histogram per stage and STAGE_TOTAL, and counts. */
struct slot_data {
	struct small_hist hist[HISTS_PER_SLOT];
	unsigned long long commits; /* calls that reached zil_commit_impl */
	unsigned long long errors;  /* fsyncs that returned an error */
	unsigned long long no_zil;  /* operations without any commit */
	unsigned long long kind[KIND_COUNT];
};

/* A slow operation, through the ring buffer. */
struct slow_event {
	unsigned long long start_ns; /* CLOCK_MONOTONIC */
	unsigned long long total_ns;
	unsigned long long stage_ns[STAGE_COUNT];
	unsigned long long dirty_bytes; /* of the pool at its end, 0 = unknown */
	unsigned long long object;
	unsigned int slot;
	unsigned int life; /* of the slot at that time */
	unsigned int pid;
	unsigned int tid;
	unsigned int kind; /* enum fsync_kind */
	unsigned int pad;
	char comm[ZFSTRACE_COMM_LEN];
};

#endif
