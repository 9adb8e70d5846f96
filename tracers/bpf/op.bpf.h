/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A thread inside an operation, and how its wait for a log block divides into
 * stages. The fsync tracer fills the maps; the stacks tracer reads them.
 */
#ifndef ZFSTRACE_BPF_OP_H
#define ZFSTRACE_BPF_OP_H

#include "file.bpf.h"
#include "fsync.h"
#include "known.bpf.h"
#include "layout.bpf.h"
#include "places.bpf.h"
#include "sleeper.h"

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

/* Not a stage: waiting for the log block, split among stages when it ends. */
#define CUR_WAIT STAGE_COUNT

struct op {
	struct place place;
	__u64 start;
	__u64 since; /* when the current stage began */
	__u64 stage_ns[STAGE_COUNT];
	__u64 object;
	__u64 zilog;
	__u64 commit_start;
	__u64 lwb;  /* waited for; 0: the waiter had no log block */
	__u64 file; /* struct file of an fsync, else 0 */
	__u32 slot;
	__u32 commits;
	__u32 tid;   /* of the thread that began it: see places.bpf.h */
	__u8 active; /* counted, and what is in it is its own */
	__u8 in_fsync;
	__u8 in_commit;
	__u8 reached_impl;
	__u8 kind;
	__u8 cur;	      /* enum fsync_stage or CUR_WAIT */
	__u8 outer;	      /* the stage around the commit */
	__u8 before;	      /* the stage around a lock or throttle wait */
	struct sleeper sleep; /* the stacks tracer's */
	/* what follows outlives the operation: it is the place's */
	struct known known;
	__u64 unsampled_ns; /* slept since the last sample of the stacks tracer */
};
PLACES(op)

static __always_inline __u64 clamp(__u64 v, __u64 lo, __u64 hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

/*
 * Fills in when the log block that op waits for was issued, written and flushed, each clamped to
 * from..now; false if it was not issued yet. A commit without a record of its own joins a block
 * that is under way (zil_prune_commit_list()): the one in the table is that one if it ended after
 * `since`, before which the wait had not begun, and else an earlier one with the same address.
 */
static __always_inline bool lwb_cut(const struct op *op, __u64 from, __u64 now, __u64 since,
				    struct lwb_times *cut)
{
	struct lwb_times *t = lwb_find(op->lwb);

	if (!t || (t->issued < op->commit_start && t->written < since && t->flushed < since))
		return false;
	cut->issued = clamp(t->issued, from, now);
	cut->written = t->written ? clamp(t->written, cut->issued, now) : now;
	cut->flushed = t->flushed ? clamp(t->flushed, cut->written, now) : now;
	return true;
}

#endif
