// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Times every wait of a transaction, dmu_tx_wait() (module/zfs/dmu_tx.c), and
 * determines the limit. A wait for dirty data has tx_wait_dirty; a computed
 * sleep calls the stub delay__mintime(tx, dirty, ns).
 */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "throttle.h"

#include "config.bpf.h"
#include "dirty.bpf.h"
#include "free.bpf.h"
#include "hist.bpf.h"
#include "pool.bpf.h"
#include "probe.bpf.h"
#include "zfs_views.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The results of searches without BTF; 0 = not found yet. */
unsigned int off_tx_pool;
unsigned int off_tx_start;

struct wait {
	__u64 start;
	__u64 tx;
	__u64 dirty;	/* 0 = unknown */
	__u64 delay_ns; /* of the computed sleep */
	__u8 dirty_wait;
	__u8 known; /* whether dirty_wait is */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32); /* tid */
	__type(value, struct wait);
} waits SEC(".maps");

/* The processes that have an entry: never more than there are entries. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS_MAX);
	__type(key, struct waiter_key);
	__type(value, __u32);
} waiter_index SEC(".maps");

/* libzfstrace sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct zfstrace_waiter);
} waiters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct zfstrace_throttle_params);
} params SEC(".maps");

static __always_inline struct zfstrace_throttle_params *get_params(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&params, &zero);
}

/* ---- layouts ------------------------------------------------------------ */

/* tx_pool without BTF: the first word that points to a pointer to a pool's name;
 * tx_objset and tx_dir before it begin differently. */
static __always_inline __u64 tx_pool(__u64 tx)
{
	struct dmu_tx *t = (struct dmu_tx *)tx;

	if (bpf_core_field_exists(t->tx_pool))
		return (__u64)BPF_CORE_READ(t, tx_pool);
	for (int off = 24; off <= 64 && !off_tx_pool; off += 8)
		if (is_spa(pool_spa(read_u64(tx + off))))
			off_tx_pool = off;
	return off_tx_pool ? read_u64(tx + off_tx_pool) : 0;
}

/*
 * tx_wait_dirty without BTF: it follows tx_start, the only word of a dmu_tx_t
 * that is a time of the last minute. ZFS's clock (MONOTONIC_RAW) and ours
 * drift apart slowly.
 */
static __always_inline bool tx_wait_dirty(__u64 tx, __u64 now, bool *known)
{
	struct dmu_tx *t = (struct dmu_tx *)tx;

	*known = true;
	if (bpf_core_field_exists(t->tx_wait_dirty))
		return BPF_CORE_READ(t, tx_wait_dirty);
	for (int off = 64; off <= 240 && !off_tx_start; off += 8) {
		__u64 start = read_u64(tx + off);

		/* after the first second, or a txg's number would match */
		if (start > 1000000000 && now + 60000000000 - start < 120000000000)
			off_tx_start = off;
	}
	*known = off_tx_start;
	return off_tx_start && read_u32(tx + off_tx_start + 8) == 1;
}

/* ---- probes ------------------------------------------------------------- */

static __always_inline void on_tx_wait(__u64 tx)
{
	struct wait w = { .tx = tx };
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 dp;
	bool known;

	if (!enabled || (config.pid && config.pid != bpf_get_current_pid_tgid() >> 32))
		return;
	w.start = bpf_ktime_get_ns();
	w.dirty_wait = tx_wait_dirty(tx, w.start, &known);
	w.known = known;
	dp = tx_pool(tx);
	if (dp)
		w.dirty = pool_dirty(dp);
	if (bpf_map_update_elem(&waits, &tid, &w, BPF_ANY))
		COUNT(lost_start);
	else
		COUNT(started);
}
AT_ENTRY(tx_wait, (__u64 tx), (tx))

static __always_inline void on_delay(__u64 tx, __u64 dirty, __u64 ns)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct wait *w = bpf_map_lookup_elem(&waits, &tid);

	if (!w || w->tx != tx)
		return;
	w->delay_ns = ns;
	w->known = w->dirty_wait = 1;
	/* after a hard wait it is less than at the beginning, which determines the kind */
	if (!w->dirty)
		w->dirty = dirty;
}
AT_ENTRY(delay, (__u64 tx, __u64 dirty, __u64 ns), (tx, dirty, ns))

/* The kind of the last wait that was certain. */
__u32 last_told = ZFSTRACE_WAIT_DIRTY_DELAY;

/*
 * Which sleep dmu_tx_delay() took: the longer of the one for dirty data, which can
 * be recomputed, and the one for log data. Without a computed sleep, and with less
 * dirty data at the beginning than causes a delay (or an unknown amount), it may be
 * either, since dirty data drops at the end of a txg: it counts as the previous
 * kind.
 */
static __always_inline __u32 delay_kind(const struct wait *w,
					const struct zfstrace_throttle_params *p)
{
	__u64 min = p->dirty_data_max / 100 * p->delay_min_dirty_percent, ns = 0;

	if (!p->dirty_data_max)
		return ZFSTRACE_WAIT_DIRTY_DELAY;
	if (!w->delay_ns)
		return w->dirty > min ? ZFSTRACE_WAIT_DIRTY_DELAY : last_told;
	if (w->dirty > min)
		ns = p->delay_scale * (w->dirty - min) / (p->dirty_data_max - w->dirty);
	/* dirty data changed a little in between */
	last_told = w->delay_ns / 2 > ns ? ZFSTRACE_WAIT_WRLOG : ZFSTRACE_WAIT_DIRTY_DELAY;
	return last_told;
}

static __always_inline __u32 wait_kind(const struct wait *w)
{
	struct zfstrace_throttle_params *p = get_params();

	if (!w->known)
		return ZFSTRACE_WAIT_UNKNOWN;
	if (!w->dirty_wait)
		return ZFSTRACE_WAIT_TXG;
	if (p && p->dirty_data_max && w->dirty >= p->dirty_data_max)
		return ZFSTRACE_WAIT_DIRTY_HARD;
	return p ? delay_kind(w, p) : ZFSTRACE_WAIT_DIRTY_DELAY;
}

/* An entry for a new process; 0 when none is free, or the index has no room. */
static __always_inline __u32 new_waiter(const struct waiter_key *key)
{
	__u64 taken = slot_take();
	__u32 n = taken, *found;
	struct zfstrace_waiter *w = n ? bpf_map_lookup_elem(&waiters, &n) : 0;

	if (!w)
		return 0;
	w->spa = key->spa;
	w->pid = key->pid;
	w->life = taken >> 32;
	bpf_get_current_comm(w->comm, sizeof(w->comm));
	bpf_probe_read_kernel_str(w->pool, sizeof(w->pool), (void *)key->spa);
	w->used = 1;
	if (!bpf_map_update_elem(&waiter_index, key, &n, BPF_NOEXIST))
		return n;
	/* another of its threads was first, or there is no room */
	w->used = 0;
	if (!slot_put_back(taken))
		w->used = 1;
	found = bpf_map_lookup_elem(&waiter_index, key);
	return found ? *found : 0;
}

static __always_inline struct zfstrace_waiter *find_waiter(__u64 spa)
{
	struct waiter_key key = { .spa = spa, .pid = bpf_get_current_pid_tgid() >> 32 };
	__u32 *found = bpf_map_lookup_elem(&waiter_index, &key);
	__u32 n = found ? *found : new_waiter(&key);

	return bpf_map_lookup_elem(&waiters, &n);
}

/* Called at the end of every dmu_tx_wait(). */
static __always_inline void on_tx_waited(__u64 spa)
{
	__u32 tid = bpf_get_current_pid_tgid(), kind;
	struct wait *w = bpf_map_lookup_elem(&waits, &tid);
	struct zfstrace_waiter *to;
	__u64 ns;

	if (!w)
		return;
	ns = bpf_ktime_get_ns() - w->start;
	kind = wait_kind(w);
	to = pool_wanted(spa) ? find_waiter(spa) : 0;
	if (to) {
		if (!to->pid)
			COUNT(slots_overflow);
		to->last_start = w->start;
		to->last_end = w->start + ns;
		if (w->dirty)
			to->dirty_bytes = w->dirty;
		hist_add(&to->latency, ns);
		barrier_var(kind);
		if (kind < ZFSTRACE_WAITS) {
			ADD(to->count[kind], 1);
			ADD(to->total_ns[kind], ns);
			raise_to(&to->max_ns[kind], ns);
		}
	}
	bpf_map_delete_elem(&waits, &tid);
	COUNT(finished);
}
AT_ENTRY(tx_waited, (__u64 spa), (spa))
