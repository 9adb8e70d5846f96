/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libzfstrace: measures on a running Linux system, by BPF, what OpenZFS spends time on.
 *
 * A session runs one tracer, from zfstrace_start() to zfstrace_close():
 *
 *	"fsync"    every fsync and other ZIL commit, stage by stage and dataset by dataset:
 *	           zfstrace_refresh(), zfstrace_dataset(); the slow ones singly: zfstrace_poll()
 *	"txg"      each transaction group as it ends: zfstrace_events(), struct zfstrace_txg
 *	"throttle" writers that are held up, by process: the table "waiters"
 *	"device"   I/Os of leaf vdevs, by class: the table "vdevs"
 *	"arc"      waits for eviction: the table "arc"
 *	"stacks"   kernel stacks in which threads wait or run: zfstrace_stacks()
 *
 *	struct zfstrace_opts opts = { .size = sizeof(opts) };
 *	struct zfstrace *t;
 *
 *	if (zfstrace_start("fsync", &opts, &t))
 *		errx(1, "%s", zfstrace_error(t));
 *	...
 *	zfstrace_refresh(t);
 *	for (unsigned int i = 0; i < zfstrace_datasets(t); i++)
 *		show(zfstrace_dataset(t, i));
 *	zfstrace_close(t);
 *
 * Functions that can fail return 0, or a count, and otherwise a negative errno; zfstrace_error()
 * then says in one line what failed and why. Only -EINTR, after a signal, has no line of its own.
 *
 * It takes root, or CAP_SYS_ADMIN and CAP_DAC_OVERRIDE. One thread at a time may use a session;
 * several threads may have sessions of their own. Times are in nanoseconds, moments are readings of
 * CLOCK_MONOTONIC. The library installs a print function for libbpf (libbpf_set_print()), which is
 * silent unless ZFSTUNE_DEBUG is in the environment.
 */
#ifndef ZFSTRACE_H
#define ZFSTRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zfstrace_tables.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. Another number means that structures are laid out otherwise; it is also the
 * number in the library's file name. */
#define ZFSTRACE_ABI 4
#define ZFSTRACE_KINDS 6
#define ZFSTRACE_MERGES 3

#pragma GCC visibility push(default)

/**
 * zfstrace_abi() - The ABI of the library in use
 *
 * Return: ZFSTRACE_ABI of the header with which the library was built.
 */
int zfstrace_abi(void);

/**
 * zfstrace_stage_name() - The name of a stage of an fsync
 * @i: 0 to ZFSTRACE_STAGES - 1, in the order in which stages happen
 *
 * Return: "writeback" ... "other", a constant; NULL when @i is out of range.
 */
const char *zfstrace_stage_name(unsigned int i);

/**
 * zfstrace_kind_name() - The name of a kind of operation
 * @i: 0 to ZFSTRACE_KINDS - 1
 *
 * Return: "fsync", "fdatasync", "o_sync", "msync", "zvol" or "other", a constant; NULL when @i is
 * out of range.
 */
const char *zfstrace_kind_name(unsigned int i);

/* ---- sessions ----------------------------------------------------------- */

struct zfstrace;

/* What to trace. With 0 in all members but size: everything. */
struct zfstrace_opts {
	size_t size; /* sizeof(struct zfstrace_opts) */
	/* "fsync", "throttle", "stacks": only this process (tgid), 0 = all */
	uint32_t pid;
	/* How many datasets ("fsync"), processes ("throttle") or vdevs ("device") get an entry of
	 * their own at a time; the others are summed. 0 = 32, 255 or 63. At most 1023, and no more
	 * than fit into 256 MiB of kernel memory. */
	uint32_t max_entries;
	/* "fsync": report operations that took at least this, 0 = none */
	uint64_t slow_ns;
	/* bytes of the ring buffer for these reports, 0 = 1 MiB */
	uint32_t slow_buffer;
	/* "stacks": ZFSTRACE_STACKS_*, one of each group */
	uint32_t mode;
	/* all but "arc": only this pool, NULL = all */
	const char *pool;
	/* "fsync": only this dataset of the pool, by its property objsetid, 0 = all. If it is
	 * mounted, give its device number, too, as stat(2) has it: with sync=disabled nothing else
	 * tells to which dataset a file belongs. 0:0 = not mounted. */
	uint64_t objset;
	uint32_t dev_major;
	uint32_t dev_minor;
	/* use kprobes even where fentry is possible */
	bool no_fentry;
};

/**
 * zfstrace_start() - Load a tracer and attach it
 * @name: "fsync", "txg", "throttle", "device", "arc" or "stacks"
 * @opts: what to trace; not needed after the call
 * @t: where the session goes
 *
 * Counting begins when all probes are attached. A probe that this kernel lacks is no error unless
 * nothing can be measured without it: see zfstrace_probe().
 *
 * After a failure *@t is a session for zfstrace_error(), zfstrace_probe() and zfstrace_close()
 * only; it has to be closed as well. It is NULL only with -ENOMEM.
 *
 * Return: 0, or
 *   -EPERM    the privileges do not suffice
 *   -ENOENT   ZFS is not loaded, or lacks a symbol without which nothing can be measured
 *   -ENOTSUP  the kernel has no BTF
 *   -EINVAL   there is no such tracer, @opts is of another version of the header, or the name of
 *             the pool is too long
 *   -ENOMEM   no memory
 *   -EIO      a probe that is required cannot be attached
 * or another negative errno with which the kernel has refused maps or programs.
 */
int zfstrace_start(const char *name, const struct zfstrace_opts *opts, struct zfstrace **t);

/**
 * zfstrace_survey() - Look which probes of all tracers there are
 * @t: where the session goes
 *
 * Nothing is loaded or attached, and no privilege is needed. The session is for zfstrace_probe(),
 * zfstrace_layout(), zfstrace_error() and zfstrace_close() only. It has to be closed, after a
 * failure as well; it is NULL only with -ENOMEM.
 *
 * Return: 0, or -ENOENT: ZFS is not loaded; -ENOTSUP: the kernel has no BTF; -ENOMEM; or another
 * negative errno of reading /proc/kallsyms.
 */
int zfstrace_survey(struct zfstrace **t);

/**
 * zfstrace_close() - Detach a session and free it
 * @t: the session; NULL does nothing
 *
 * What the session has handed out - strings, datasets, tables - is gone after this.
 */
void zfstrace_close(struct zfstrace *t);

/**
 * zfstrace_error() - What went wrong last
 * @t: the session; NULL stands for one for which there was no memory
 *
 * Return: one line without a newline, "" when nothing has failed. It is valid until another
 * function fails on this session, or it is closed.
 */
const char *zfstrace_error(const struct zfstrace *t);

/* How a probe is attached. */
enum zfstrace_how {
	ZFSTRACE_MISSING = 0,
	ZFSTRACE_FENTRY = 1,
	ZFSTRACE_KPROBE = 2,
	ZFSTRACE_TRACEPOINT = 3,
	ZFSTRACE_FOUND = 4,    /* zfstrace_survey(): it could be attached */
	ZFSTRACE_SAMPLING = 5, /* by the clock of every CPU */
};

struct zfstrace_probe {
	const char *tracer; /* whose it is */
	const char *name;   /* what it watches, such as "zil_commit:return" */
	const char *symbol; /* the symbol chosen here, such as "zil_commit_flags" */
	int32_t how;	    /* enum zfstrace_how */
	bool required;	    /* nothing is measured without it */
	const char *cost;   /* what its absence costs, in words; "" when merges says it */
	const char *why;    /* why it is missing, or a kprobe where fentry is possible, or "" */
	/* A stage that cannot be told from others without the probe, and the one or two of which
	 * its time is part then; NULL: there is none. */
	const char *merges[ZFSTRACE_MERGES];
};

/**
 * zfstrace_probe() - A probe of a session
 * @t: the session, also one that failed to start, or a survey
 * @i: 0, 1, 2 ... until the function returns false
 * @p: where the probe goes; its strings are valid until the session is closed
 *
 * Return: false when there is no probe @i.
 */
bool zfstrace_probe(const struct zfstrace *t, unsigned int i, struct zfstrace_probe *p);

/**
 * zfstrace_layout() - How members of structures of ZFS are found
 * @t: the session
 *
 * Return: "btf": by the BTF of the module; "search": by a search at run time that checks what it
 * finds. A constant.
 */
const char *zfstrace_layout(const struct zfstrace *t);

/* What could not be measured, since the session began. */
struct zfstrace_losses {
	uint64_t start;	     /* no room for a thread's state: an operation is missing */
	uint64_t missed;     /* a probe did not fire: an operation is missing or coarse */
	uint64_t event;	     /* events dropped: the ring buffer was full */
	uint64_t log_block;  /* waits whose log block was unknown: counted in "other" */
	uint64_t overflow;   /* operations summed in the rest ("fsync" with opts.pool: left out):
			      * max_entries is too small */
	uint64_t unfinished; /* begun and not ended yet (not a loss) */
	uint64_t skipped;    /* lock waits not seen, by any thread: in the stage around */
};

/**
 * zfstrace_losses() - What a session has lost
 * @t: the session
 * @l: where the counts go, as of the last zfstrace_refresh()
 */
void zfstrace_losses(const struct zfstrace *t, struct zfstrace_losses *l);

/**
 * zfstrace_refresh() - Read what the kernel has counted
 * @t: the session, of any tracer
 *
 * Brings the datasets of "fsync" and the losses of all tracers up to date. Tables need no refresh.
 *
 * Return: 0, or -ENOMEM: then the datasets are as before, or some of them.
 */
int zfstrace_refresh(struct zfstrace *t);

/**
 * zfstrace_tidy() - Keep a session going while nobody calls zfstrace_refresh()
 * @t: the session, of any tracer
 *
 * To be called every few seconds; it costs next to nothing. It reads counters before they wrap, and
 * gives the room of datasets that are gone to others.
 *
 * Return: 0, or -ENOMEM.
 */
int zfstrace_tidy(struct zfstrace *t);

/* ---- distributions ------------------------------------------------------ */

/* Bucket i counts the values in [zfstrace_hist_low(i), zfstrace_hist_low(i + 1)). */
struct zfstrace_hist {
	uint64_t count;
	uint64_t sum_ns;
	uint64_t max_ns;
	uint64_t bucket[ZFSTRACE_HIST_BUCKETS];
};

/**
 * zfstrace_hist_copy() - Copy a distribution out of a table
 * @to: where it goes
 * @from: the one in the table, which the kernel may be writing to
 *
 * The count is that of the buckets, so that both agree.
 */
void zfstrace_hist_copy(struct zfstrace_hist *to, const struct zfstrace_table_hist *from);

/**
 * zfstrace_hist_index() - The bucket of a value
 * @value: any
 *
 * Return: 0 to ZFSTRACE_HIST_BUCKETS - 1.
 */
unsigned int zfstrace_hist_index(uint64_t value);

/**
 * zfstrace_hist_low() - The first value of a bucket
 * @index: a bucket
 *
 * Return: its lower bound; 2^42 for ZFSTRACE_HIST_BUCKETS and above.
 */
uint64_t zfstrace_hist_low(unsigned int index);

/**
 * zfstrace_hist_quantile() - A quantile of a distribution
 * @h: the distribution
 * @permille: 500 is the median
 *
 * Return: the value below which @permille/1000 of the values lie, interpolated in its bucket, at
 * most max_ns; 0 when there are no values.
 */
uint64_t zfstrace_hist_quantile(const struct zfstrace_hist *h, unsigned int permille);

/* ---- "fsync" ------------------------------------------------------------ */

/*
 * A dataset since the session began. It stays when it is no longer in use, and goes on if it is in
 * use again under the same objset. An operation is one fsync(2), fdatasync(2) or msync(2), or one
 * ZIL commit outside of these.
 */
struct zfstrace_dataset {
	char pool[ZFSTRACE_POOL_LEN]; /* "" when unknown, for instance with sync=disabled */
	uint64_t objset;	      /* property objsetid; 0 when unknown: then use dev */
	uint32_t dev_major;	      /* of the mounted file system, as stat(2) has it; */
	uint32_t dev_minor;	      /* 0:0 when no file of it was seen */
	bool rest;		      /* sums the datasets that found no entry */
	uint64_t changes;	      /* grows whenever anything below has grown */
	uint64_t commits;	      /* ZIL commits, as zil_commit_count of the kstat zil counts */
	uint64_t errors;	      /* fsyncs that returned an error */
	uint64_t no_zil;	      /* operations that needed no commit (sync=disabled) */
	uint64_t kinds[ZFSTRACE_KINDS];
	struct zfstrace_hist total;
	struct zfstrace_hist stages[ZFSTRACE_STAGES]; /* of operations with time in the stage */
};

/**
 * zfstrace_datasets() - How many datasets there are
 * @t: the session
 *
 * Return: at least 1 in a session of "fsync": the first is the rest. It never shrinks. 0 in a
 * session of another tracer.
 */
unsigned int zfstrace_datasets(const struct zfstrace *t);

/**
 * zfstrace_dataset() - A dataset as of the last zfstrace_refresh() or zfstrace_tidy()
 * @t: the session
 * @i: 0 to zfstrace_datasets() - 1; a dataset keeps its number
 *
 * Return: the dataset, for reading until the next refresh or tidying, which writes to it; NULL when
 * there is none.
 */
const struct zfstrace_dataset *zfstrace_dataset(const struct zfstrace *t, unsigned int i);

/* A slow operation. */
struct zfstrace_slow {
	uint64_t start_ns; /* CLOCK_MONOTONIC */
	uint64_t total_ns;
	uint64_t stage_ns[ZFSTRACE_STAGES]; /* their sum is total_ns */
	uint64_t dirty_bytes;		    /* of the pool as it ended, 0 = not known */
	uint64_t object;		    /* inode number, 0 = the whole dataset */
	uint32_t dataset;		    /* for zfstrace_dataset(), after the next refresh */
	uint32_t pid;
	uint32_t tid;
	uint32_t kind; /* for zfstrace_kind_name() */
	char comm[ZFSTRACE_COMM_LEN];
};

/* Called with a slow operation, which is valid during the call. */
typedef void (*zfstrace_slow_fn)(const struct zfstrace_slow *event, void *ctx);

/**
 * zfstrace_poll() - Wait for slow operations
 * @t: a session of "fsync" with opts.slow_ns
 * @timeout_ms: how long to wait for the first, 0 = not at all, -1 = without end
 * @fn: called with each
 * @ctx: for @fn
 *
 * Return: how many there were; -EINTR: a signal came; -EINVAL: the session is none of "fsync"; or
 * another negative errno of mapping or polling the ring buffer.
 */
int zfstrace_poll(struct zfstrace *t, int timeout_ms, zfstrace_slow_fn fn, void *ctx);

/* ---- "txg" -------------------------------------------------------------- */

/* Called with an event, struct zfstrace_txg for "txg", which is valid during the call. */
typedef void (*zfstrace_event_fn)(const void *event, size_t bytes, void *ctx);

/**
 * zfstrace_events() - Wait for events
 * @t: a session of "txg" (for "fsync" there is zfstrace_poll())
 * @timeout_ms: how long to wait for the first, 0 = not at all, -1 = without end
 * @fn: called with each
 * @ctx: for @fn
 *
 * Return: how many there were; -EINTR: a signal came; -EINVAL: the tracer has no events; or another
 * negative errno of mapping or polling the ring buffer.
 */
int zfstrace_events(struct zfstrace *t, int timeout_ms, zfstrace_event_fn fn, void *ctx);

/* ---- "throttle", "device", "arc" ---------------------------------------- */

/**
 * zfstrace_table() - A table of a tracer
 * @t: the session
 * @name: "waiters" (struct zfstrace_waiter) or "params" (struct zfstrace_throttle_params) of
 *        "throttle", "vdevs" (struct zfstrace_vdev) of "device", "arc" (struct zfstrace_arc) of
 *        "arc"
 * @entries: where their number goes, or NULL
 * @entry_bytes: where the size of one goes, or NULL
 *
 * The table is mapped, so it is always up to date; zfstrace_tables.h says what may change between
 * two reads. Only "params" is to be written to.
 *
 * Return: the first entry, valid until the session is closed; NULL when there is no such table.
 */
void *zfstrace_table(const struct zfstrace *t, const char *name, unsigned int *entries,
		     size_t *entry_bytes);

/**
 * zfstrace_release() - Give the entry of a process that has ended to another
 * @t: a session of "throttle"
 * @i: the entry in "waiters"; the caller has read it, and knows that its process is gone
 *
 * Return: 0, or -EINVAL: @i is not in use, is the rest, or the session has no such table.
 */
int zfstrace_release(struct zfstrace *t, unsigned int i);

/* ---- "stacks" ----------------------------------------------------------- */

/* A sum: a stack with whose it is. Addresses are the kernel's, leaf first. */
struct zfstrace_stack {
	char pool[ZFSTRACE_POOL_LEN]; /* "" when unknown: then use dev */
	uint32_t dev_major;	      /* of the file's file system, */
	uint32_t dev_minor;	      /* 0:0 when the pool is known, or there is no file */
	uint32_t stage; /* of the fsync, ZFSTRACE_STAGE_TXG_SYNC or ZFSTRACE_STAGE_OUTSIDE */
	bool preempted; /* it could have run on */
	bool woken;	/* by the waker */
	bool in_user;	/* it ran its own program: there are no frames */
	char comm[ZFSTRACE_COMM_LEN];
	char waker_comm[ZFSTRACE_COMM_LEN];
	uint64_t ns;	/* 0 on-CPU */
	uint64_t count; /* of waits or samples */
	uint32_t frame_count;
	uint32_t waker_count;
	const uint64_t *frames; /* none: the stack could not be taken */
	const uint64_t *waker;
};

struct zfstrace_stack_losses {
	uint64_t no_stack;	/* the kernel could not walk the stack */
	uint64_t stacks_full;	/* no room for another stack: counted without frames */
	uint64_t sums_full;	/* no room for another sum: missing, */
	uint64_t lost_ns;	/* with this time */
	uint64_t sleepers_full; /* no room for another thread: missing */
	uint64_t skipped;	/* the kernel did not run a program */
	uint64_t fsyncs;	/* not known to be one */
	uint64_t asleep;	/* threads that sleep on (no loss) */
	uint64_t asleep_ns;	/* and for how long so far: not in the sums */
};

/* Called with a sum, which is valid during the call, its frames included. */
typedef void (*zfstrace_stack_fn)(const struct zfstrace_stack *sum, void *ctx);

/**
 * zfstrace_stacks() - End the recording of stacks and read it
 * @t: a session of "stacks"
 * @fn: called with each sum, in no order
 * @ctx: for @fn
 * @losses: where goes what is not in the sums
 *
 * Return: 0; -EINVAL: the session is none of "stacks"; -ENOMEM; or another negative errno of
 * reading the maps, after which some sums may have been handed out.
 */
int zfstrace_stacks(struct zfstrace *t, zfstrace_stack_fn fn, void *ctx,
		    struct zfstrace_stack_losses *losses);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
