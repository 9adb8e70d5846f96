/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libzfstrace: times the fsync path of OpenZFS on Linux, stage by stage.
 *
 *	struct zfstrace_opts opts = { .size = sizeof(opts) };
 *	struct zfstrace *t = NULL;
 *	int err = zfstrace_start("fsync", &opts, &t); // loads and attaches
 *	...
 *	zfstrace_tidy(t);			// every second or so
 *	zfstrace_poll(t, 1000, on_slow, ctx);	// slow operations as they end
 *	zfstrace_refresh(t);			// merge the per-CPU maps
 *	for (i = 0; i < zfstrace_datasets(t); i++)
 *		zfstrace_dataset(t, i, &d);
 *	zfstrace_close(t);			// detaches
 *
 * Functions that can fail return 0 or a negative errno; zfstrace_error() then
 * has one line on what and why. A session belongs to one thread. All times
 * are nanoseconds; clock readings are CLOCK_MONOTONIC.
 */
#ifndef ZFSTRACE_H
#define ZFSTRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZFSTRACE_ABI 3
#define ZFSTRACE_STAGES 11
#define ZFSTRACE_KINDS 6
#define ZFSTRACE_HIST_BUCKETS 1216
#define ZFSTRACE_POOL_LEN 256
#define ZFSTRACE_COMM_LEN 16

#pragma GCC visibility push(default)

struct zfstrace;

/* The ABI version of the library in use; compare with ZFSTRACE_ABI. */
int zfstrace_abi(void);

/*
 * Names, NULL when i is out of range. Stages come in the order in which they
 * happen ("writeback" ... "other"); kinds are "fsync", "fdatasync", "o_sync",
 * "msync", "zvol", "other".
 */
const char *zfstrace_stage_name(unsigned int i);
const char *zfstrace_kind_name(unsigned int i);

struct zfstrace_opts {
	size_t size;	       /* sizeof(struct zfstrace_opts) */
	uint32_t pid;	       /* only this process (tgid), 0 = all */
	uint32_t max_datasets; /* separate histograms for so many at a time, 0 = 32, but in no
				* more than 256 MiB of the kernel's; others are summed */
	uint64_t slow_ns;      /* report operations that took at least this, 0 = none */
	uint32_t slow_buffer;  /* bytes of the ring buffer, 0 = 1 MiB */
	uint32_t objset_dev;   /* device number of the mounted dataset, 0 = none */
	const char *pool;      /* only this pool, NULL = all */
	uint64_t objset;       /* only this dataset of the pool, 0 = all */
	bool no_fentry;	       /* use kprobes even where fentry is possible */
	uint32_t mode;	       /* a tracer's own: see its header in tracers/bpf */
};

/* Loads a tracer and attaches what this kernel has: "fsync", and those whose tables
 * and events are read as they are, by the structures of tracers/bpf/NAME.h. On
 * failure *t is still a session, for zfstrace_error() and zfstrace_probe(); close it. It
 * is NULL only with -ENOMEM. -EPERM: not privileged; -ENOENT: ZFS is not
 * loaded or a symbol without which nothing can be measured is missing;
 * -ENOTSUP: the kernel has no BTF or is too old; -EINVAL: no such tracer. */
int zfstrace_start(const char *name, const struct zfstrace_opts *opts, struct zfstrace **t);
void zfstrace_close(struct zfstrace *t);
const char *zfstrace_error(const struct zfstrace *t);

/* A table that the kernel side writes to, mapped: it is always of now. NULL
 * when the tracer has none of that name. */
void *zfstrace_table(const struct zfstrace *t, const char *name, unsigned int *entries,
		     size_t *entry_bytes);

/* Waits up to timeout_ms for events and hands each to fn. Returns how many, or
 * a negative errno; -EINTR when a signal came. */
typedef void (*zfstrace_event_fn)(const void *event, size_t bytes, void *ctx);
int zfstrace_events(struct zfstrace *t, int timeout_ms, zfstrace_event_fn fn, void *ctx);

/* How a probe was attached. */
enum zfstrace_how {
	ZFSTRACE_MISSING = 0,
	ZFSTRACE_FENTRY = 1,
	ZFSTRACE_KPROBE = 2,
	ZFSTRACE_TRACEPOINT = 3,
	ZFSTRACE_FOUND = 4,    /* zfstrace_survey: could be attached */
	ZFSTRACE_SAMPLING = 5, /* by the clock of every CPU */
};

struct zfstrace_probe {
	const char *tracer; /* whose it is */
	const char *name;   /* what it watches, e.g. "zil_commit:return" */
	const char *symbol; /* the symbol chosen here, e.g. "zil_commit_flags" */
	int32_t how;	    /* enum zfstrace_how */
	bool required;	    /* without it nothing is measured */
	const char *cost;   /* what its absence costs, in words */
	const char *why;    /* why it is missing, or a kprobe where fentry is possible, or "" */
};

/* The probes of a session; false when i is out of range. Strings live as
 * long as the session. */
bool zfstrace_probe(const struct zfstrace *t, unsigned int i, struct zfstrace_probe *p);

/* Looks which probes there are, of all tracers: nothing is loaded or attached
 * (for `zfstune doctor`). */
int zfstrace_survey(struct zfstrace **t);

/* Whether the module's BTF is used for struct layouts ("btf"), or they are
 * found by a self-checking search at run time ("search"). */
const char *zfstrace_layout(const struct zfstrace *t);

/* A distribution. bucket i counts the values in [low(i), low(i + 1)). */
struct zfstrace_hist {
	uint64_t count;
	uint64_t sum_ns;
	uint64_t max_ns;
	uint64_t bucket[ZFSTRACE_HIST_BUCKETS];
};

/* The bucket of a value; the first value of a bucket. low(BUCKETS) is 2^42. */
unsigned int zfstrace_hist_index(uint64_t value);
uint64_t zfstrace_hist_low(unsigned int index);
/* The value below which permille/1000 of the values lie, interpolated inside
 * its bucket, never above max_ns; 0 when there are none. */
uint64_t zfstrace_hist_quantile(const struct zfstrace_hist *h, unsigned int permille);

/*
 * One dataset since the session began, also when it is not in use any more; in use again
 * under the same objset it goes on. An operation is one fsync(2),
 * fdatasync(2) or msync(2), or one ZIL commit outside of those.
 */
struct zfstrace_dataset {
	char pool[ZFSTRACE_POOL_LEN]; /* "" when unknown, e.g. sync=disabled */
	uint64_t objset;	      /* 0 when unknown: then use dev */
	uint32_t dev_major;	      /* of the file system's superblock, */
	uint32_t dev_minor;	      /* 0:0 when none was seen */
	bool rest;		      /* sums the datasets that found no room */
	uint64_t changes;	      /* grows whenever anything below has grown */
	uint64_t commits;	      /* ZIL commits: equals zil_commit_count's change */
	uint64_t errors;	      /* fsyncs that returned an error */
	uint64_t no_zil;	      /* operations that needed no commit (sync=disabled) */
	uint64_t kinds[ZFSTRACE_KINDS];
	struct zfstrace_hist total;
	struct zfstrace_hist stages[ZFSTRACE_STAGES];
};

/* What could not be measured, since the session began. */
struct zfstrace_losses {
	uint64_t start;	     /* no room for a thread's state */
	uint64_t return_;    /* a probe did not fire: an operation is missing or coarse */
	uint64_t event;	     /* slow events dropped: ring buffer full */
	uint64_t log_block;  /* waits whose log block was unknown: counted in `other` */
	uint64_t overflow;   /* operations summed in the rest (with a filter: left out):
			      * max_datasets too small */
	uint64_t unfinished; /* begun and not ended yet (not a loss) */
	uint64_t skipped;    /* lock waits not seen, by any thread: in the stage around */
};

/* Merges the kernel's maps into the session. The accessors below show the
 * state as of the last refresh or tidying. */
int zfstrace_refresh(struct zfstrace *t);

/* Gives room of datasets that are gone to others, and reads what would wrap: to be called
 * every few seconds while there is no refresh. It costs next to nothing. */
int zfstrace_tidy(struct zfstrace *t);

/* Of "throttle": gives the entry of a process that has ended, and was read, to another. */
int zfstrace_release(struct zfstrace *t, unsigned int i);

/* A dataset keeps its index. */
unsigned int zfstrace_datasets(const struct zfstrace *t);
const struct zfstrace_dataset *zfstrace_dataset(const struct zfstrace *t, unsigned int i);
void zfstrace_losses(const struct zfstrace *t, struct zfstrace_losses *l);

/* A slow operation. dataset is an index as in zfstrace_dataset() (the next
 * refresh makes new ones visible there). */
struct zfstrace_slow {
	uint64_t start_ns;
	uint64_t total_ns;
	uint64_t stage_ns[ZFSTRACE_STAGES]; /* their sum is total_ns */
	uint64_t dirty_bytes;		    /* of the pool as it ended, 0 = not known */
	uint64_t object;		    /* inode number, 0 = the whole dataset */
	uint32_t dataset;
	uint32_t pid;
	uint32_t tid;
	uint32_t kind;
	char comm[ZFSTRACE_COMM_LEN];
};

typedef void (*zfstrace_slow_fn)(const struct zfstrace_slow *event, void *ctx);

/* Waits up to timeout_ms for slow operations and hands each to fn. Returns
 * how many, or a negative errno; -EINTR when a signal came. */
int zfstrace_poll(struct zfstrace *t, int timeout_ms, zfstrace_slow_fn fn, void *ctx);

/*
 * What the tracer "stacks" has summed up. opts.mode says what it records of
 * whom: see tracers/bpf/stacks.h. Addresses are the kernel's, leaf first.
 */
struct zfstrace_stack {
	char pool[ZFSTRACE_POOL_LEN]; /* "" when unknown: then use dev */
	uint32_t dev_major;
	uint32_t dev_minor;
	uint32_t stage; /* ZFSTRACE_STAGES: syncing a txg, + 1: in no fsync */
	bool preempted; /* it could have run on */
	bool woken;	/* by the waker */
	bool in_user;	/* it ran its own program: there are no frames */
	char comm[ZFSTRACE_COMM_LEN];
	char waker_comm[ZFSTRACE_COMM_LEN];
	uint64_t ns;	/* 0 on-CPU */
	uint64_t count; /* of spans or samples */
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

/* Ends the recording and hands each sum to fn. */
typedef void (*zfstrace_stack_fn)(const struct zfstrace_stack *sum, void *ctx);
int zfstrace_stacks(struct zfstrace *t, zfstrace_stack_fn fn, void *ctx,
		    struct zfstrace_stack_losses *losses);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
