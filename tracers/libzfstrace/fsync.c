// SPDX-License-Identifier: BSD-2-Clause
/* The tracer of fsyncs: merges its histograms, hands on its slow operations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../bpf/fsync.h"
#include "internal.h"

_Static_assert(STAGE_COUNT == ZFSTRACE_STAGES, "header and BPF disagree");
_Static_assert((int)KIND_COUNT == ZFSTRACE_KINDS, "header and BPF disagree");

static const char *const stage_names[] = {
	"writeback", "async_to_sync", "tx_assign", "issuer_lock",  "issue", "batch_wait",
	"log_write", "flush",	      "wakeup",	   "txg_fallback", "other",
};
_Static_assert(ARRAY_SIZE(stage_names) == STAGE_COUNT, "a stage has no name");

static const char *const kind_names[] = {
	"fsync", "fdatasync", "o_sync", "msync", "zvol", "other"
};
_Static_assert(ARRAY_SIZE(kind_names) == KIND_COUNT, "a kind has no name");

const char *zfstrace_stage_name(unsigned int i)
{
	return i < STAGE_COUNT ? stage_names[i] : NULL;
}

const char *zfstrace_kind_name(unsigned int i)
{
	return i < KIND_COUNT ? kind_names[i] : NULL;
}

int zfstrace_open(const struct zfstrace_opts *opts, struct zfstrace **t)
{
	return zfstrace_start("fsync", opts, t);
}

static void add_hist(struct zfstrace_hist *sum, const struct hist *h)
{
	sum->sum_ns += h->sum;
	if (h->max > sum->max_ns)
		sum->max_ns = h->max;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++) {
		sum->bucket[i] += h->bucket[i];
		/* not counted apart: operations go on meanwhile, and both shall agree */
		sum->count += h->bucket[i];
	}
}

static int read_slot(struct zfstrace *t, const struct slot *slots,
		     const struct slot_data *slot_data, uint32_t i)
{
	const struct slot *slot = &slots[i];
	struct zfstrace_dataset *d = t->datasets[i];

	if (!d) {
		d = t->datasets[i] = calloc(1, sizeof(*d));
		if (!d)
			return fail(t, -ENOMEM, "out of memory");
	}
	memset(d, 0, sizeof(*d));
	memcpy(d->pool, slot->pool, sizeof(d->pool));
	d->objset = slot->objset;
	d->dev_major = slot->dev >> 20; /* the kernel's own encoding of dev_t */
	d->dev_minor = slot->dev & 0xfffff;
	d->rest = i == 0;
	for (int cpu = 0; cpu < t->cpus; cpu++) {
		const struct slot_data *data = &slot_data[(uint32_t)cpu * t->config.slots + i];

		d->commits += data->commits;
		d->errors += data->errors;
		d->no_zil += data->no_zil;
		for (unsigned int k = 0; k < KIND_COUNT; k++)
			d->kinds[k] += data->kind[k];
		add_hist(&d->total, &data->hist[STAGE_TOTAL]);
		for (unsigned int s = 0; s < STAGE_COUNT; s++)
			add_hist(&d->stages[s], &data->hist[s]);
	}
	return 0;
}

int fsync_refresh(struct zfstrace *t)
{
	const struct slot_data *slot_data = session_map(t, "slot_data");
	const struct slot *slots = session_map(t, "slots");

	if (!t->datasets)
		t->datasets = calloc(t->config.slots, sizeof(*t->datasets));
	if (!t->datasets)
		return fail(t, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < t->config.slots && (i == 0 || slots[i].used); i++) {
		int err = read_slot(t, slots, slot_data, i);

		if (err)
			return err;
		t->dataset_count = i + 1;
	}
	return 0;
}

void fsync_free(struct zfstrace *t)
{
	if (t->datasets)
		for (unsigned int i = 0; i < t->config.slots; i++)
			free(t->datasets[i]);
	free(t->datasets);
}

unsigned int zfstrace_datasets(const struct zfstrace *t)
{
	return t->dataset_count;
}

const struct zfstrace_dataset *zfstrace_dataset(const struct zfstrace *t, unsigned int i)
{
	return i < t->dataset_count ? t->datasets[i] : NULL;
}

struct slow_call {
	zfstrace_slow_fn fn;
	void *ctx;
};

static void on_slow(const void *data, size_t size, void *ctx)
{
	const struct slow_event *e = data;
	struct slow_call *call = ctx;
	struct zfstrace_slow s;

	if (size < sizeof(*e))
		return;
	s = (struct zfstrace_slow) {
		.start_ns = e->start_ns,
		.total_ns = e->total_ns,
		.dirty_bytes = e->dirty_bytes,
		.object = e->object,
		.dataset = e->slot,
		.pid = e->pid,
		.tid = e->tid,
		.kind = e->kind,
	};
	for (unsigned int i = 0; i < STAGE_COUNT; i++)
		s.stage_ns[i] = e->stage_ns[i];
	memcpy(s.comm, e->comm, sizeof(s.comm));
	s.comm[sizeof(s.comm) - 1] = '\0';
	call->fn(&s, call->ctx);
}

int zfstrace_poll(struct zfstrace *t, int timeout_ms, zfstrace_slow_fn fn, void *ctx)
{
	struct slow_call call = { fn, ctx };

	return zfstrace_events(t, timeout_ms, on_slow, &call);
}
