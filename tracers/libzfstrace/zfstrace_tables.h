/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The tables and events of libzfstrace as the kernel writes them. zfstrace.h includes this file.
 * The BPF programs include it, too: it has plain C types only, so that both compilers agree.
 *
 * The kernel writes to a table while it is read. A member has either its old or its new value, but
 * two members may be from different points in time: a count may be one ahead of the buckets of its
 * distribution. Counts, sums and maxima only grow during a session, so what happened in an interval
 * is the difference between two copies.
 *
 * Entry 0 of a table with many entries is the rest, the sum of all that has no entry. Other entries
 * are valid only if `used` is not 0, and may be so only for a moment. Members called `pad` mean
 * nothing. Strings end with a 0.
 */
#ifndef ZFSTRACE_TABLES_H
#define ZFSTRACE_TABLES_H

#define ZFSTRACE_POOL_LEN 256 /* a pool's name with the 0 (ZFS_MAX_DATASET_NAME_LEN) */
#define ZFSTRACE_COMM_LEN 16  /* a thread's name with the 0 (TASK_COMM_LEN) */

/*
 * Distributions are log-linear: 32 buckets for each power of two, so a bucket is at most 1/32 of
 * its values wide. Values below 64 have a bucket each; those of 2^42 ns (73 minutes) and above
 * share the last. zfstrace_hist_low() has the bounds.
 */
#define ZFSTRACE_HIST_BUCKETS 1216

/* A distribution in a table, in ns; zfstrace_hist_copy() counts it. */
struct zfstrace_table_hist {
	unsigned long long sum_ns;
	unsigned long long max_ns;
	unsigned long long bucket[ZFSTRACE_HIST_BUCKETS];
};

/* ---- "txg": events ------------------------------------------------------ */

/* Why a transaction group was closed before zfs_txg_timeout. */
enum zfstrace_txg_reason {
	ZFSTRACE_TXG_REASON_NONE,   /* no reason seen */
	ZFSTRACE_TXG_REASON_DIRTY,  /* too much dirty data: txg_kick() */
	ZFSTRACE_TXG_REASON_WAITER, /* a thread: txg_wait_synced(), txg_wait_open() */
};

/* A transaction group whose sync has ended. Points in time are CLOCK_MONOTONIC, 0 = not seen. */
struct zfstrace_txg {
	unsigned long long txg;
	unsigned long long opened;
	unsigned long long quiescing;
	unsigned long long quiesced;
	unsigned long long syncing;
	unsigned long long synced;
	unsigned long long last_syncing; /* of the previous txg, when this one closed */
	unsigned long long zil_sync_ns;	 /* of the sync, in zil_sync() */
	unsigned long long delay_ns;	 /* total wait of transactions for it */
	unsigned int delayed;		 /* how many waited */
	unsigned int passes;		 /* of its sync */
	unsigned int reason;		 /* enum zfstrace_txg_reason */
	unsigned int pad;
	char pool[ZFSTRACE_POOL_LEN];
};

/* ---- "throttle": the tables "waiters" and "params" ---------------------- */

/* The limit that made a transaction wait. */
enum zfstrace_wait {
	ZFSTRACE_WAIT_DIRTY_DELAY, /* zfs_delay_min_dirty_percent: a computed sleep */
	ZFSTRACE_WAIT_DIRTY_HARD,  /* zfs_dirty_data_max: until something is written */
	ZFSTRACE_WAIT_WRLOG,	   /* zfs_wrlog_data_max: a computed sleep for log data */
	ZFSTRACE_WAIT_TXG,	   /* any other, such as a suspended pool */
	ZFSTRACE_WAIT_UNKNOWN,	   /* a probe is missing */
	ZFSTRACE_WAITS,
};

/* An entry of "waiters": one process on one pool. When the process has ended,
 * zfstrace_release() frees its entry. */
struct zfstrace_waiter {
	unsigned long long count[ZFSTRACE_WAITS];
	unsigned long long total_ns[ZFSTRACE_WAITS];
	unsigned long long max_ns[ZFSTRACE_WAITS];
	unsigned long long dirty_bytes; /* of the pool at the last wait, 0 = unknown */
	unsigned long long last_start;	/* of the last wait, CLOCK_MONOTONIC; while the kernel */
	unsigned long long last_end;	/* writes, the end may be that of the previous wait */
	unsigned long long spa;		/* identifies the pool, nothing else */
	struct zfstrace_table_hist latency;
	unsigned int pid;
	unsigned int used;
	unsigned int life; /* differs from process to process in this entry; never 0 */
	unsigned int pad;
	char comm[ZFSTRACE_COMM_LEN];
	char pool[ZFSTRACE_POOL_LEN];
};

/*
 * The only entry of "params": parameters of the zfs module, which the caller writes as soon as the
 * session has begun and whenever they change; 0 = unknown. Without them WAIT_DIRTY_HARD and
 * WAIT_WRLOG are counted as WAIT_DIRTY_DELAY.
 */
struct zfstrace_throttle_params {
	unsigned long long dirty_data_max;	    /* zfs_dirty_data_max */
	unsigned long long delay_min_dirty_percent; /* zfs_delay_min_dirty_percent */
	unsigned long long delay_scale;		    /* zfs_delay_scale */
};

/* ---- "device": the table "vdevs" ---------------------------------------- */

/* Classes of I/O: zio_priority_t, the same from 2.1.0 to 2.4.4 (include/sys/zio_priority.h, since
 * 2.3.1 include/sys/fs/zfs.h), and two more. */
enum zfstrace_io_class {
	ZFSTRACE_IO_SYNC_READ,
	ZFSTRACE_IO_SYNC_WRITE, /* log blocks */
	ZFSTRACE_IO_ASYNC_READ,
	ZFSTRACE_IO_ASYNC_WRITE, /* what a txg syncs */
	ZFSTRACE_IO_SCRUB,
	ZFSTRACE_IO_REMOVAL,
	ZFSTRACE_IO_INITIALIZING,
	ZFSTRACE_IO_TRIM,
	ZFSTRACE_IO_REBUILD,
	ZFSTRACE_IO_UNKNOWN, /* the class cannot be read */
	ZFSTRACE_IO_FLUSH,   /* a cache flush; it has no bytes and does not queue */
	ZFSTRACE_IO_CLASSES,
};

struct zfstrace_io {
	unsigned long long count;
	unsigned long long bytes;
	/* How many I/Os of this class were at the device when one of them ended, that one included:
	 * the sum over active_count ends; active_count is 0 if it cannot be read. */
	unsigned long long active_sum;
	unsigned long long active_count;
	unsigned long long active_max;
	struct zfstrace_table_hist queue;  /* in the queue of ZFS */
	struct zfstrace_table_hist device; /* from there to the end */
};

/* An entry of "vdevs": a leaf vdev, which keeps it. */
struct zfstrace_vdev {
	unsigned long long guid;
	unsigned long long used;
	char pool[ZFSTRACE_POOL_LEN];
	struct zfstrace_io classes[ZFSTRACE_IO_CLASSES];
};

/* ---- "arc": the table "arc" --------------------------------------------- */

/* Its only entry. */
struct zfstrace_arc {
	struct zfstrace_table_hist waits; /* of threads for eviction */
};

/* ---- "stacks" ----------------------------------------------------------- */

/* opts.mode: what is recorded, one of these, ... */
#define ZFSTRACE_STACKS_OFF_CPU 0x01 /* where threads wait, and for how long */
#define ZFSTRACE_STACKS_ON_CPU 0x02  /* where they run, by samples */
#define ZFSTRACE_STACKS_WAKEUP 0x04  /* as OFF_CPU, and what ended the wait */
/* ... and of which threads, one of these. */
#define ZFSTRACE_STACKS_OF_FSYNC 0x10	 /* in an fsync or another ZIL commit */
#define ZFSTRACE_STACKS_OF_TXG_SYNC 0x20 /* that sync a txg */
#define ZFSTRACE_STACKS_OF_PID 0x40	 /* of process opts.pid */
#define ZFSTRACE_STACKS_OF_ALL 0x80	 /* all; only the frames show which are in ZFS */

/* The stages of an fsync: zfstrace_stage_name() has their names. */
#define ZFSTRACE_STAGES 11

/* The stage of a stack whose thread is not in an fsync. */
enum {
	ZFSTRACE_STAGE_TXG_SYNC = ZFSTRACE_STAGES, /* the thread syncs a txg */
	ZFSTRACE_STAGE_OUTSIDE,
};

#endif
