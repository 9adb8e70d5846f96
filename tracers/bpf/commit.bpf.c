// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Times every ZIL commit and every log block, and nothing else: what can stay attached for weeks.
 * Where the time of a commit went is the fsync tracer's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "commit.h"
#include "config.bpf.h"
#include "hist.bpf.h"
#include "layout.bpf.h"
#include "places.bpf.h"
#include "probe.bpf.h"
#include "zilog.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* [lane][slot]; libzfstrace sets max_entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct commit_data);
} slot_data SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} slow_events SEC(".maps");

struct commit {
	struct place place;
	__u64 start;
	struct known known; /* outlives the commit */
};
PLACES(commit)

/* NULL if the dataset is not wanted. */
static __always_inline struct commit_data *data_of(__u32 slot)
{
	__u32 index = slot_entry(slot);

	if (slot >= SLOT_UNWANTED) /* or NO_SLOT */
		return 0;
	/* the rest does not distinguish pools */
	return slot || !config.pool[0] ? bpf_map_lookup_elem(&slot_data, &index) : 0;
}

static __always_inline void report_slow(__u64 start, __u64 total, __u32 slot)
{
	struct slow_commit *e = bpf_ringbuf_reserve(&slow_events, sizeof(*e), 0);
	__u64 id = bpf_get_current_pid_tgid();
	struct slot *s;

	if (!e) {
		COUNT(lost_event);
		return;
	}
	s = bpf_map_lookup_elem(&slots, &slot);
	e->start_ns = start;
	e->total_ns = total;
	e->slot = slot;
	e->life = s ? s->life : 0;
	e->pid = id >> 32;
	e->tid = (__u32)id;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	bpf_ringbuf_submit(e, 0);
}

/* ---- probes ------------------------------------------------------------- */

/* zil_commit does not nest: one that is found as another begins has not been left. */
static __always_inline void drop(void)
{
	struct commit *c = commit_here();

	if (!c)
		return;
	COUNT(lost_return);
	commit_leave(c);
}

static __always_inline void on_zil_commit(__u64 zilog)
{
	struct commit *c;
	bool left;

	if (!enabled || (config.pid && config.pid != bpf_get_current_pid_tgid() >> 32)) {
		drop();
		return;
	}
	c = commit_take(bpf_get_current_task_btf(), &left);
	if (!c) {
		COUNT(lost_start);
		return;
	}
	if (!left)
		COUNT(lost_return);
	COUNT(started);
	if (!slot_again(&c->known, zilog, 0))
		COUNT(slots_overflow);
	c->start = bpf_ktime_get_ns();
}
AT_ENTRY(zil_commit, (__u64 zilog), (zilog))

static __always_inline void on_zil_commit_return(void)
{
	struct commit *c = commit_here();
	struct commit_data *data;
	__u64 start, total;
	__u32 slot;

	if (!c)
		return;
	start = c->start;
	total = bpf_ktime_get_ns() - start;
	slot = c->known.slot;
	commit_leave(c);
	COUNT(finished);
	data = data_of(slot);
	if (!data)
		return;
	hist_add(&data->hist[COMMIT_TOTAL], total);
	if (config.slow_ns && total >= config.slow_ns)
		report_slow(start, total, slot);
}
AT_RETURN(zil_commit_return)

/* The block inside the lwb_t is the log block itself: see fsync.bpf.c. Its issuer commits, or syncs
 * a txg: then the dataset is not known. */
static __always_inline void on_add_block(__u64 lwb, __u64 bp)
{
	struct commit *c;
	struct lwb_times *t;

	if (bp != lwb + 8)
		return;
	c = commit_here();
	t = lwb_issue(lwb, bpf_ktime_get_ns());
	if (t)
		t->slot = c ? c->known.slot : NO_SLOT;
	if (!bpf_core_field_exists(((struct zilog *)0)->zl_os))
		learn_objset(lwb);
}
AT_ENTRY(add_block, (__u64 lwb, __u64 bp), (lwb, bp))

static __always_inline void on_write_done(bool typed, struct zio *zio)
{
	struct lwb_times *t = lwb_find(zio_lwb(zio, typed));

	if (t)
		t->written = bpf_ktime_get_ns();
}
AT_TYPED_ENTRY(write_done, (struct zio * zio), zio)

/* Every block that was written comes here, also if nothing is flushed, so that both of its times
 * can be added by one look at the dataset's. */
static __always_inline void on_flush_done(bool typed, struct zio *zio)
{
	struct lwb_times *t = lwb_find(zio_lwb(zio, typed));
	struct commit_data *data = t ? data_of(t->slot) : 0;
	__u64 issued, written;

	if (!data)
		return;
	issued = t->issued;
	written = t->written;
	/* a block that could not be had is never issued, ends here, and may be at this address */
	t->slot = NO_SLOT;
	if (written < issued) /* it was not seen, or the place has another block now */
		return;
	hist_add(&data->hist[COMMIT_LOG_WRITE], written - issued);
	hist_add(&data->hist[COMMIT_FLUSH], bpf_ktime_get_ns() - written);
}
AT_TYPED_ENTRY(flush_done, (struct zio * zio), zio)

static __always_inline void on_zil_free(__u64 zilog)
{
	struct slot_key key = { .ptr = zilog };

	slot_forget(&key);
}
AT_ENTRY(zil_free, (__u64 zilog), (zilog))
