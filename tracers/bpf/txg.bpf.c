// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Follows the transaction groups of every pool. The stubs trace_zfs_txg__*(dp,
 * txg) mark their states (module/zfs/txg.c); up to three are active, so those
 * of a pool are kept by txg & 3, as in ZFS.
 */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "trace.h"
#include "config.bpf.h"
#include "hist.bpf.h"
#include "pool.bpf.h"
#include "probe.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TXG_SIZE 4	 /* include/sys/txg.h */
#define TXG_DEFER_SIZE 2 /* likewise */

struct pool_txgs {
	__u64 open_txg; /* 0 until one has closed */
	__u64 last_syncing;
	__u64 wanted_txg; /* the last one that was requested to close, and why */
	__u32 wanted_reason;
	__u32 pad;
	struct zfstrace_txg row[TXG_SIZE];
};

#define POOLS 64
/* How long a pool that has no txg keeps its place when another needs one. A pool that is imported
 * has one every zfs_txg_timeout, 5 s by default. */
#define IDLE_NS (600ULL * 1000000000)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POOLS);
	__type(key, __u32);
	__type(value, struct pool_txgs);
} pools SEC(".maps");

/* Whose they are, by spa, and when each had its last event. */
__u64 pool_spas[POOLS];
__u64 pool_seen[POOLS];

/* The verifier must see the bound at the access: the key of a map is a variable on the stack. */
static __always_inline __u64 *pool_entry(__u64 *of, __u32 i)
{
	i &= POOLS - 1;
	barrier_var(i);
	return &of[i];
}

/* Threads inside spa_sync, by tid. */
struct syncing {
	__u64 spa;
	__u64 txg;
	__u64 zil_sync_start;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct syncing);
} sync_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

/* 0, which the verifier does not know: it would follow what comes after a search once for each
 * place that might be found. */
static __always_inline __u32 some_zero(__u64 any)
{
	__u64 same = any;

	barrier_var(same);
	return any - same;
}

/* POOLS: it has none. */
static __noinline __u32 place_of(__u64 spa)
{
	__u32 found = POOLS, zero = some_zero(spa);

	for (__u32 i = 0; i < POOLS; i++)
		if (pool_spas[i] == spa)
			found = i + zero;
	return found;
}

static __noinline __u32 oldest_place(__u64 now)
{
	__u32 zero = some_zero(now), found = zero;

	for (__u32 i = 1; i < POOLS; i++)
		if (pool_seen[i] < *pool_entry(pool_seen, found))
			found = i + zero;
	return found;
}

static __always_inline struct pool_txgs *known_pool(__u64 spa)
{
	__u32 i = place_of(spa);

	return bpf_map_lookup_elem(&pools, &i);
}

/* The place of a pool that is no longer there, or has never been; NULL if there is none. */
static __always_inline struct pool_txgs *new_pool(__u64 spa, __u64 now)
{
	__u32 i = oldest_place(now);
	struct pool_txgs *p = bpf_map_lookup_elem(&pools, &i);
	__u64 *of = pool_entry(pool_spas, i), *seen = pool_entry(pool_seen, i), before = *of;

	if (!p || (*seen && now - *seen < IDLE_NS))
		return 0;
	if (__sync_val_compare_and_swap(of, before, spa) != before)
		return known_pool(spa); /* the same event on another CPU, or it goes without */
	*seen = now;
	p->open_txg = p->last_syncing = p->wanted_txg = 0;
	for (int n = 0; n < TXG_SIZE; n++)
		p->row[n].txg = 0; /* find_row() clears the rest */
	return p;
}

static __always_inline struct pool_txgs *find_pool(__u64 spa)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 i = place_of(spa);

	if (i >= POOLS)
		return new_pool(spa, now);
	*pool_entry(pool_seen, i) = now;
	return bpf_map_lookup_elem(&pools, &i);
}

/* The row of a txg, cleared of the txg four before it. */
static __always_inline struct zfstrace_txg *find_row(struct pool_txgs *p, __u64 txg)
{
	struct zfstrace_txg *row = &p->row[txg & (TXG_SIZE - 1)];

	if (row->txg != txg) {
		__builtin_memset(row, 0, sizeof(*row) - ZFSTRACE_POOL_LEN);
		row->txg = txg;
	}
	return row;
}

static __always_inline struct zfstrace_txg *row_of(__u64 dp, __u64 txg)
{
	struct pool_txgs *p;

	if (!enabled)
		return 0;
	p = find_pool(pool_spa(dp));
	return p ? find_row(p, txg) : 0;
}

static __always_inline void on_opened(__u64 dp, __u64 txg)
{
	struct zfstrace_txg *row = row_of(dp, txg);

	if (row)
		row->opened = bpf_ktime_get_ns();
}
AT_ENTRY(opened, (__u64 dp, __u64 txg), (dp, txg))

static __always_inline void on_quiescing(__u64 dp, __u64 txg)
{
	struct pool_txgs *p;
	struct zfstrace_txg *row;

	if (!enabled)
		return;
	p = find_pool(pool_spa(dp));
	if (!p)
		return;
	if (txg < p->open_txg) /* of another pool, with a spa_t where that of the old one was */
		p->wanted_txg = p->last_syncing = 0;
	row = find_row(p, txg);
	row->quiescing = bpf_ktime_get_ns();
	row->last_syncing = p->last_syncing;
	if (!row->reason && txg <= p->wanted_txg)
		row->reason = p->wanted_reason;
	p->open_txg = txg + 1;
}
AT_ENTRY(quiescing, (__u64 dp, __u64 txg), (dp, txg))

static __always_inline void on_quiesced(__u64 dp, __u64 txg)
{
	struct zfstrace_txg *row = row_of(dp, txg);

	if (row)
		row->quiesced = bpf_ktime_get_ns();
}
AT_ENTRY(quiesced, (__u64 dp, __u64 txg), (dp, txg))

static __always_inline void on_syncing(__u64 dp, __u64 txg)
{
	struct syncing thread = { .txg = txg };
	__u32 tid = bpf_get_current_pid_tgid();
	struct pool_txgs *p;

	if (!enabled)
		return;
	thread.spa = pool_spa(dp);
	p = find_pool(thread.spa);
	if (!p) { /* the other events of this txg are left out, too */
		COUNT(lost_start);
		return;
	}
	p->last_syncing = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&sync_threads, &tid, &thread, BPF_ANY)) {
		COUNT(lost_start); /* on_synced() leaves it out */
		return;
	}
	COUNT(started);
	find_row(p, txg)->syncing = p->last_syncing;
}
AT_ENTRY(syncing, (__u64 dp, __u64 txg), (dp, txg))

static __always_inline void on_pass(__u64 dp, __u64 txg)
{
	struct zfstrace_txg *row = row_of(dp, txg);

	if (row)
		row->passes++;
}
AT_ENTRY(pass, (__u64 dp, __u64 txg), (dp, txg))

static __always_inline struct syncing *this_sync(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&sync_threads, &tid);
}

static __always_inline void on_zil_sync(void)
{
	struct syncing *thread = this_sync();

	if (thread)
		thread->zil_sync_start = bpf_ktime_get_ns();
}
AT_ENTRY(zil_sync, (void *zilog), ())

static __always_inline void on_zil_sync_return(void)
{
	struct syncing *thread = this_sync();
	struct pool_txgs *p;

	if (!thread || !thread->zil_sync_start)
		return;
	p = known_pool(thread->spa);
	if (p)
		find_row(p, thread->txg)->zil_sync_ns +=
			bpf_ktime_get_ns() - thread->zil_sync_start;
	thread->zil_sync_start = 0;
}
AT_RETURN(zil_sync_return)

/* Ends the row; leaves out a txg whose sync began before the trace. */
static __always_inline void on_synced(__u64 dp, __u64 txg)
{
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 spa = pool_spa(dp);
	struct zfstrace_txg *row, *e;
	struct pool_txgs *p = known_pool(spa);

	bpf_map_delete_elem(&sync_threads, &tid);
	if (!p || !enabled)
		return;
	row = find_row(p, txg);
	if (!row->syncing)
		return;
	row->synced = bpf_ktime_get_ns();
	COUNT(finished);
	if (!pool_wanted(spa))
		return;
	bpf_probe_read_kernel_str(row->pool, sizeof(row->pool), (void *)spa);
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		COUNT(lost_event);
		return;
	}
	bpf_probe_read_kernel(e, sizeof(*e), row);
	bpf_ringbuf_submit(e, 0);
}
AT_ENTRY(synced, (__u64 dp, __u64 txg), (dp, txg))

/* A request to close all txgs up to `last`; the first one is the reason. */
static __always_inline void want_closed(__u64 dp, __u64 last, __u32 reason)
{
	struct pool_txgs *p;
	__u64 spa;

	if (!enabled)
		return;
	spa = pool_spa(dp);
	p = known_pool(spa);
	if (!p || !p->open_txg)
		return;
	if (last > p->open_txg + TXG_DEFER_SIZE)
		last = p->open_txg + TXG_DEFER_SIZE;
	/* the rows after these two still belong to txgs that sync */
	for (int i = 0; i < 2; i++) {
		struct zfstrace_txg *row = find_row(p, p->open_txg + i);

		if (row->txg <= last && !row->reason)
			row->reason = reason;
	}
	if (last > p->wanted_txg) {
		p->wanted_txg = last;
		p->wanted_reason = reason;
	}
}

static __always_inline void on_kick(__u64 dp, __u64 txg)
{
	want_closed(dp, txg, ZFSTRACE_TXG_REASON_DIRTY);
}
AT_ENTRY(kick, (__u64 dp, __u64 txg), (dp, txg))

/* txg 0 stands for the open one and those after it until it is on disk for good. */
static __always_inline void on_wait_synced(__u64 dp, __u64 txg)
{
	want_closed(dp, txg ? txg : ~0ULL, ZFSTRACE_TXG_REASON_WAITER);
}
AT_ENTRY(wait_synced, (__u64 dp, __u64 txg), (dp, txg))

/* Waits until txg is open; hurries that only with should_quiesce. */
static __always_inline void on_wait_open(__u64 dp, __u64 txg, int should_quiesce)
{
	if (should_quiesce)
		want_closed(dp, txg ? txg - 1 : 0, ZFSTRACE_TXG_REASON_WAITER);
}
AT_ENTRY(wait_open, (__u64 dp, __u64 txg, int should_quiesce), (dp, txg, should_quiesce))

/* The end of a dmu_tx_wait(): the transaction goes into the txg open now. */
static __always_inline void on_tx_waited(__u64 spa, __u64 ns)
{
	struct pool_txgs *p;
	struct zfstrace_txg *row;

	if (!enabled)
		return;
	p = known_pool(spa);
	if (!p || !p->open_txg)
		return;
	row = find_row(p, p->open_txg);
	ADD(row->delayed, 1);
	ADD(row->delay_ns, ns);
}
AT_ENTRY(tx_waited, (__u64 spa, __u64 ns), (spa, ns))
