/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libzfstrace: measures on a running Linux system, by BPF, what OpenZFS spends time on.
 *
 * A session runs one tracer, from zfstrace_start() to zfstrace_close():
 *
 *	"fsync"    fsyncs and other ZIL commits, stage by stage and dataset by dataset:
 *	           zfstrace_refresh(), zfstrace_dataset(); slow ones individually: zfstrace_poll()
 *	"txg"      each transaction group as it ends: zfstrace_events(), struct zfstrace_txg
 *	"throttle" writers that ZFS delays, by process: the table "waiters"
 *	"device"   I/Os of leaf vdevs, by class: the table "vdevs"
 *	"arc"      waits for eviction: the table "arc"
 *	"commit"   ZIL commits and log blocks by dataset, and nothing of what is in between, for
 *	           little cost: zfstrace_commits()
 *	"read"     reads, hits and misses apart, and writes, by dataset: zfstrace_reads()
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
 * Functions that can fail return 0 or a count, otherwise a negative errno; zfstrace_error() then
 * says what failed, why, and what to do about it. Only -EINTR, after a signal, sets no error.
 *
 * Tracing needs root, or CAP_SYS_ADMIN and CAP_DAC_OVERRIDE; for kprobes alone CAP_BPF, CAP_PERFMON
 * and CAP_DAC_OVERRIDE do. One thread at a time may use a session; several threads may each have
 * their own. Times are in nanoseconds, points in time are readings of CLOCK_MONOTONIC. As it is
 * loaded, the library installs a print function for libbpf (libbpf_set_print()), which is silent
 * unless ZFSTUNE_DEBUG is in the environment.
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

/* Changes with the layout of structures; it is also the number in the library's file name. */
#define ZFSTRACE_ABI 6
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

/* What to trace: everything, if all members but size are 0. */
struct zfstrace_opts {
	size_t size; /* sizeof(struct zfstrace_opts) */
	/* "fsync", "commit", "read", "throttle", "stacks": only this process (tgid), 0 = all */
	uint32_t pid;
	/* How many datasets ("fsync", "commit", "read"), processes ("throttle") or vdevs ("device")
	 * have their own entry at a time; the others are summed. 0 = 32, 255 or 63. At most 1023,
	 * and no more than fit into 256 MiB of kernel memory. */
	uint32_t max_entries;
	/* "fsync": report operations that took at least this long, 0 = none */
	uint64_t slow_ns;
	/* bytes of the ring buffer for these reports, 0 = 1 MiB */
	uint32_t slow_buffer;
	/* "stacks": ZFSTRACE_STACKS_*, one of each group */
	uint32_t mode;
	/* all but "arc": only this pool, NULL = all */
	const char *pool;
	/* "fsync", "commit", "read": only this dataset of the pool, by its property objsetid, 0 =
	 * all. If it is mounted, give its device number, too, as in stat(2): with sync=disabled
	 * nothing else identifies a file's dataset. 0:0 = not mounted. */
	uint64_t objset;
	uint32_t dev_major;
	uint32_t dev_minor;
	/* use kprobes even where fentry is possible, and not only where the function has fentry
	 * programs already, of this or another process */
	bool no_fentry;
	/* kernel memory for the tables of datasets, processes or vdevs, in MiB, 0 = 256: with less,
	 * CPUs share counters, and then there is room for fewer entries */
	uint32_t table_mib;
};

/**
 * zfstrace_start() - Load a tracer and attach it
 * @name: "fsync", "commit", "txg", "throttle", "device", "arc", "read" or "stacks"
 * @opts: what to trace; not needed after the call
 * @t: set to the session
 *
 * Counting begins when all probes are attached. A probe that this kernel lacks is no error unless
 * nothing can be measured without it: see zfstrace_probe().
 *
 * After a failure, use *@t only for zfstrace_error() and zfstrace_probe(), then close it. It is
 * NULL only with -ENOMEM.
 *
 * Return: 0, or
 *   -EPERM    not privileged
 *   -ENOENT   ZFS is not loaded, or lacks a symbol without which nothing can be measured
 *   -ENOTSUP  the kernel has no BTF
 *   -EINVAL   no such tracer, @opts from another version of the header, or a pool name that is too
 *             long
 *   -ENOMEM   out of memory
 *   -EIO      a required probe cannot be attached
 * or another negative errno with which the kernel refused maps or programs.
 */
int zfstrace_start(const char *name, const struct zfstrace_opts *opts, struct zfstrace **t);

/**
 * zfstrace_survey() - Find the available probes of all tracers
 * @t: set to the session
 *
 * Nothing is loaded or attached, and no privilege is needed. Use the session only for
 * zfstrace_probe(), zfstrace_layout() and zfstrace_error(), then close it, even after a failure. It
 * is NULL only with -ENOMEM.
 *
 * Return: 0, or -ENOENT: ZFS is not loaded; -ENOTSUP: the kernel has no BTF; -ENOMEM; or another
 * negative errno of reading /proc/kallsyms.
 */
int zfstrace_survey(struct zfstrace **t);

/**
 * zfstrace_close() - Detach a session and free it
 * @t: the session; NULL does nothing
 *
 * Strings, datasets and tables of the session are invalid after this.
 */
void zfstrace_close(struct zfstrace *t);

/**
 * zfstrace_error() - What went wrong last
 * @t: the session, or NULL after -ENOMEM
 *
 * Return: "WHAT: WHY" or just "WHAT"; where there is something to do about it, a line break and a
 * hint follow, an imperative clause. No line break at the end. "" when nothing has failed. The
 * string is valid until another function fails on this session, or it is closed.
 */
const char *zfstrace_error(const struct zfstrace *t);

/* How a probe is attached; of zfstrace_survey() how it would be. */
enum zfstrace_how {
	ZFSTRACE_MISSING = 0,
	ZFSTRACE_FENTRY = 1,
	ZFSTRACE_KPROBE = 2,
	ZFSTRACE_TRACEPOINT = 3,
	ZFSTRACE_FOUND = 4,    /* not in use */
	ZFSTRACE_SAMPLING = 5, /* timer of every CPU */
};

struct zfstrace_probe {
	const char *tracer; /* the tracer that it belongs to */
	const char *name;   /* what it watches, such as "zil_commit:return" */
	const char *symbol; /* the symbol chosen here, such as "zil_commit_flags" */
	int32_t how;	    /* enum zfstrace_how */
	bool required;	    /* nothing is measured without it */
	const char *cost;   /* what its absence costs, a clause; "" when merges says it */
	const char *why;    /* why it is missing, or a kprobe where fentry is possible, or "" */
	/* A stage that is not measured without the probe, followed by the one or two that then
	 * include its time; NULL if there is none. */
	const char *merges[ZFSTRACE_MERGES];
};

/**
 * zfstrace_probe() - A probe of a session
 * @t: the session, also one that failed to start, or a survey
 * @i: 0, 1, 2 ... until the function returns false
 * @p: set to the probe; its strings are valid until the session is closed
 *
 * Return: false when there is no probe @i.
 */
bool zfstrace_probe(const struct zfstrace *t, unsigned int i, struct zfstrace_probe *p);

/**
 * zfstrace_layout() - How members of structures of ZFS are located
 * @t: the session
 *
 * Return: "btf": by the BTF of the module; "search": by a search at run time that verifies what it
 * finds. A constant.
 */
const char *zfstrace_layout(const struct zfstrace *t);

/* What could not be measured since the session began. */
struct zfstrace_losses {
	uint64_t start;	     /* no room for a thread's state: an operation is missing */
	uint64_t missed;     /* a probe did not fire: an operation is missing or coarse */
	uint64_t event;	     /* events dropped: the ring buffer was full */
	uint64_t log_block;  /* waits whose log block was unknown: counted in "other" */
	uint64_t overflow;   /* operations summed in the rest ("fsync" with opts.pool: left out):
			      * max_entries is too small */
	uint64_t unfinished; /* begun and not ended yet (not a loss) */
	uint64_t cut;	     /* under way when zfstrace_pause() did not wait for them */
	uint64_t skipped;    /* lock waits not seen, by any thread: in the stage around */
};

/**
 * zfstrace_losses() - What a session has lost
 * @t: the session
 * @l: set to the counts as of the last zfstrace_refresh()
 */
void zfstrace_losses(const struct zfstrace *t, struct zfstrace_losses *l);

/**
 * zfstrace_pause() - Stop measuring for a while
 * @t: the session, of the tracer fsync
 * @now: do not wait for the operations that are under way
 *
 * Lets no operation begin any more and, once the last one has ended or with @now, detaches all
 * probes of operations; counts stay. Call it again until it returns 0.
 *
 * Return: 0 when the session is paused; how many operations are under way; or a negative errno:
 * -EINVAL for another tracer.
 */
int zfstrace_pause(struct zfstrace *t, bool now);

/**
 * zfstrace_resume() - Go on after zfstrace_pause()
 * @t: the session
 *
 * Return: 0, or a negative errno as of zfstrace_start().
 */
int zfstrace_resume(struct zfstrace *t);

/**
 * zfstrace_refresh() - Read what the kernel has counted
 * @t: the session, of any tracer
 *
 * Brings datasets, and the losses of all tracers, up to date. Tables need no refresh.
 *
 * Return: 0; -ENOMEM: some or all datasets are not up to date; -EIO if probes had to be attached in
 * another way, see zfstrace_tidy(), and that failed.
 */
int zfstrace_refresh(struct zfstrace *t);

/**
 * zfstrace_tidy() - Maintain a session between calls of zfstrace_refresh()
 * @t: the session, of any tracer
 *
 * Call it every few seconds; it costs next to nothing. It reads counters before they wrap, and
 * frees the entries of datasets that are gone. On a lazily preemptible kernel, which may skip
 * fentry programs, though seldom, it attaches kprobes instead as soon as that has happened.
 *
 * Return: as zfstrace_refresh(), or 1 if it has attached probes in another way than before.
 */
int zfstrace_tidy(struct zfstrace *t);

/* What the kernel has counted of a program since it was loaded, as far as it counted. */
struct zfstrace_cost {
	uint64_t runs;
	uint64_t run_ns; /* on all CPUs together */
};

/**
 * zfstrace_count_cost() - Let the kernel count what BPF programs cost
 * @t: the session, of any tracer
 *
 * It counts until zfstrace_end_cost(), or until the session is closed, for every program on this
 * host (BPF_ENABLE_STATS of bpf(2)), and reads a clock twice for each run. The way into a program,
 * such as the trap of a kprobe, is not in its time.
 *
 * Return: 0; -ENOTSUP: the kernel is older than Linux 5.8; -EPERM: not privileged; -EINVAL: the
 * session did not start.
 */
int zfstrace_count_cost(struct zfstrace *t);

/**
 * zfstrace_end_cost() - End what zfstrace_count_cost() has begun
 * @t: the session; may be called again
 *
 * The counts stay. The kernel goes on counting as long as another session lets it.
 */
void zfstrace_end_cost(struct zfstrace *t);

/**
 * zfstrace_cost() - What the program of a probe has cost
 * @t: the session
 * @i: as for zfstrace_probe()
 * @c: set to the counts; both are 0 for a missing probe
 *
 * Where the kernel counted before zfstrace_count_cost() (kernel.bpf_stats_enabled), these runs are
 * in it, too: only the difference of two calls says what happened between them.
 *
 * Return: 0, or -EINVAL: there is no probe @i, or the session did not start; or another negative
 * errno of bpf(2).
 */
int zfstrace_cost(struct zfstrace *t, unsigned int i, struct zfstrace_cost *c);

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
 * @to: the copy
 * @from: the one in the table, which the kernel may be writing to
 *
 * The count is the sum of the buckets, so that both agree.
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
 * Return: the value below which @permille/1000 of the values lie, interpolated within its bucket,
 * at most max_ns; 0 when there are no values.
 */
uint64_t zfstrace_hist_quantile(const struct zfstrace_hist *h, unsigned int permille);

/* ---- "fsync" ------------------------------------------------------------ */

/*
 * The counts of a dataset since the session began. They remain when it is no longer in use, and
 * continue if it is used again under the same objset. An operation is one fsync(2), fdatasync(2)
 * or msync(2), or one ZIL commit outside of these.
 */
struct zfstrace_dataset {
	char pool[ZFSTRACE_POOL_LEN]; /* "" when unknown, for instance with sync=disabled */
	uint64_t objset;	      /* property objsetid; 0 when unknown: then use dev */
	uint32_t dev_major;	      /* of the mounted file system, as in stat(2); */
	uint32_t dev_minor;	      /* 0:0 when no file of it was seen */
	bool rest;		      /* sums the datasets without an entry */
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
 * Return: at least 1 in a session of "fsync", "commit" or "read", where the first is the rest; it
 * never shrinks. 0 in a session of another tracer.
 */
unsigned int zfstrace_datasets(const struct zfstrace *t);

/**
 * zfstrace_dataset() - A dataset as of the last zfstrace_refresh() or zfstrace_tidy()
 * @t: the session
 * @i: 0 to zfstrace_datasets() - 1; a dataset keeps its number
 *
 * Return: the dataset, valid until the next zfstrace_refresh() or zfstrace_tidy() writes to it;
 * NULL when @i is out of range, or in a session of another tracer than "fsync".
 */
const struct zfstrace_dataset *zfstrace_dataset(const struct zfstrace *t, unsigned int i);

/* A slow operation. */
struct zfstrace_slow {
	uint64_t start_ns; /* CLOCK_MONOTONIC */
	uint64_t total_ns;
	uint64_t stage_ns[ZFSTRACE_STAGES]; /* their sum is total_ns */
	uint64_t dirty_bytes;		    /* of the pool at its end, 0 = unknown */
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
 * @timeout_ms: how long to wait for the first, 0 = not at all, -1 = indefinitely
 * @fn: called with each
 * @ctx: passed to @fn
 *
 * Return: how many there were; -EINTR: a signal came; -EINVAL: not a session of "fsync"; or another
 * negative errno of mapping or polling the ring buffer.
 */
int zfstrace_poll(struct zfstrace *t, int timeout_ms, zfstrace_slow_fn fn, void *ctx);

/* ---- "read" ------------------------------------------------------------- */

/* Operations of files that moved data. */
enum zfstrace_read_op {
	ZFSTRACE_READ_HIT,  /* a read that did not wait for an I/O */
	ZFSTRACE_READ_MISS, /* a read that did */
	ZFSTRACE_READ_WRITE,
	ZFSTRACE_READ_OPS,
};

/*
 * The reads and writes of a dataset since the session began, by read(2), write(2) and what else
 * ends in the file system's own functions for them; not by mmap(2), and not of volumes. The first
 * members are those of struct zfstrace_dataset. Arrays have an element for each zfstrace_read_op.
 */
struct zfstrace_reads {
	char pool[ZFSTRACE_POOL_LEN];
	uint64_t objset;
	uint32_t dev_major;
	uint32_t dev_minor;
	bool rest;
	uint64_t changes;
	uint64_t bytes[ZFSTRACE_READ_OPS];
	uint64_t errors;  /* operations that returned an error, counted nowhere else */
	uint64_t held;	  /* writes that a transaction held up: by the throttle, or for a txg */
	uint64_t held_ns; /* how long in all */
	struct zfstrace_hist latency[ZFSTRACE_READ_OPS];
};

/**
 * zfstrace_reads() - The reads of a dataset as of the last zfstrace_refresh() or zfstrace_tidy()
 * @t: the session
 * @i: 0 to zfstrace_datasets() - 1; a dataset keeps its number
 *
 * Return: the dataset, valid until the next zfstrace_refresh() or zfstrace_tidy() writes to it;
 * NULL when @i is out of range, or in a session of another tracer than "read".
 */
const struct zfstrace_reads *zfstrace_reads(const struct zfstrace *t, unsigned int i);

/* ---- "commit" ----------------------------------------------------------- */

/* The ZIL commits of a dataset since the session began, and its log blocks. The first members are
 * those of struct zfstrace_dataset. */
struct zfstrace_commits {
	char pool[ZFSTRACE_POOL_LEN];
	uint64_t objset;
	uint32_t dev_major;
	uint32_t dev_minor;
	bool rest;
	uint64_t changes;
	struct zfstrace_hist total;	/* of zil_commit() */
	struct zfstrace_hist log_write; /* of log blocks: from their issue until they are written */
	struct zfstrace_hist flush;	/* and from then on until caches of disks are flushed */
};

/**
 * zfstrace_commits() - The commits of a dataset as of the last zfstrace_refresh() or
 *	zfstrace_tidy()
 * @t: the session
 * @i: 0 to zfstrace_datasets() - 1; a dataset keeps its number
 *
 * Return: the dataset, valid until the next zfstrace_refresh() or zfstrace_tidy() writes to it;
 * NULL when @i is out of range, or in a session of another tracer than "commit".
 */
const struct zfstrace_commits *zfstrace_commits(const struct zfstrace *t, unsigned int i);

/* ---- "txg" -------------------------------------------------------------- */

/* Called with an event, struct zfstrace_txg for "txg", which is valid during the call. */
typedef void (*zfstrace_event_fn)(const void *event, size_t bytes, void *ctx);

/**
 * zfstrace_events() - Wait for events
 * @t: a session of "txg" (for "fsync" there is zfstrace_poll())
 * @timeout_ms: how long to wait for the first, 0 = not at all, -1 = indefinitely
 * @fn: called with each
 * @ctx: passed to @fn
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
 * @entries: set to the number of entries; may be NULL
 * @entry_bytes: set to the size of an entry; may be NULL
 *
 * The table is memory-mapped, so reads are always current; zfstrace_tables.h says what may change
 * between two reads. Write only to "params".
 *
 * Return: the first entry, valid until the session is closed; NULL when there is no such table.
 */
void *zfstrace_table(const struct zfstrace *t, const char *name, unsigned int *entries,
		     size_t *entry_bytes);

/**
 * zfstrace_release() - Free the entry of a process that has ended
 * @t: a session of "throttle"
 * @i: the entry in "waiters", which the caller has read
 *
 * Return: 0, or -EINVAL: @i is not in use, is the rest, or the session has no such table.
 */
int zfstrace_release(struct zfstrace *t, unsigned int i);

/* ---- "stacks" ----------------------------------------------------------- */

/* A stack with its total, for one pool, stage and program. Kernel addresses, leaf first. */
struct zfstrace_stack {
	char pool[ZFSTRACE_POOL_LEN]; /* "" when unknown: then use dev */
	uint32_t dev_major;	      /* of the file's file system, */
	uint32_t dev_minor;	      /* 0:0 when the pool is known, or there is no file */
	uint32_t stage; /* of the fsync, ZFSTRACE_STAGE_TXG_SYNC or ZFSTRACE_STAGE_OUTSIDE */
	bool preempted; /* the thread could have continued to run */
	bool woken;	/* by the waker */
	bool in_user;	/* the thread was in user mode: there are no frames */
	char comm[ZFSTRACE_COMM_LEN];
	char waker_comm[ZFSTRACE_COMM_LEN];
	uint64_t ns;	/* 0 on-CPU */
	uint64_t count; /* of waits or samples */
	uint32_t frame_count;
	uint32_t waker_count;
	const uint64_t *frames; /* none if the kernel could not walk the stack */
	const uint64_t *waker;
};

struct zfstrace_stack_losses {
	uint64_t no_stack;	/* the kernel could not walk the stack */
	uint64_t stacks_full;	/* no room for another stack: counted without frames */
	uint64_t sums_full;	/* no room for another sum: missing, */
	uint64_t lost_ns;	/* with this time */
	uint64_t sleepers_full; /* no room for another thread: missing */
	uint64_t skipped;	/* the kernel did not run a program */
	uint64_t fsyncs;	/* fsyncs that were not recognized */
	uint64_t asleep;	/* threads still asleep (no loss), */
	uint64_t asleep_ns;	/* for this long so far: not in the sums */
};

/* Called with a sum, which is valid during the call, its frames included. */
typedef void (*zfstrace_stack_fn)(const struct zfstrace_stack *sum, void *ctx);

/**
 * zfstrace_stacks() - End the recording of stacks and read it
 * @t: a session of "stacks"
 * @fn: called with each sum, in no order
 * @ctx: passed to @fn
 * @losses: set to what is missing in the sums
 *
 * Return: 0; -EINVAL: not a session of "stacks"; -ENOMEM; or another negative errno of reading the
 * maps, when @fn may have been called with some sums.
 */
int zfstrace_stacks(struct zfstrace *t, zfstrace_stack_fn fn, void *ctx,
		    struct zfstrace_stack_losses *losses);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
