// SPDX-License-Identifier: BSD-2-Clause
/* The tracer of fsyncs: merges its histograms, reports slow operations. */
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

/* How many datasets of a session have distributions, even when they are gone; the others are
 * summed in the first. Each takes 117 KB. */
#define DATASETS_MAX 1024
#define NO_DATASET UINT32_MAX
/* How long the slot of a dataset that is gone stays unused, so that threads that still hold it can
 * leave. */
#define GRACE_NS 1000000000
/* Often enough that no counter wraps: see struct small_hist. */
#define READ_NS 60000000000

struct dataset {
	struct zfstrace_dataset sums;
	bool in_use; /* has a slot */
};

/* What is known of a slot. */
struct slot_state {
	uint64_t gone_ns;	/* when it was found gone, 0 = in use */
	struct slot_data *last; /* its counts at the last reading */
};

struct fsync_sums {
	struct dataset *datasets[DATASETS_MAX];
	unsigned int dataset_count;
	struct slot_state slots[SLOTS_MAX];
	uint32_t *lives; /* by the life of a slot: the index of its dataset */
	uint32_t life_count;
	struct slot_data now;
	uint64_t read_ns;
};

static struct slot *slots_of(const struct zfstrace *t)
{
	return maps_find(t, "slots");
}

static struct slot_data *lane_of(const struct zfstrace *t, uint32_t lane, uint32_t slot)
{
	struct slot_data *data = maps_find(t, "slot_data");

	return &data[lane * t->config.slots + slot];
}

/* ---- slots -------------------------------------------------------------- */

static void give_back(struct zfstrace *t, uint32_t i, uint32_t dataset)
{
	struct slot_state *state = &t->fsyncs->slots[i];

	if (dataset != NO_DATASET && dataset)
		t->fsyncs->datasets[dataset]->in_use = false;
	free(state->last);
	memset(state, 0, sizeof(*state));
	for (uint32_t lane = 0; lane < t->config.lanes; lane++)
		memset(lane_of(t, lane, i), 0, sizeof(struct slot_data));
	memset(&slots_of(t)[i], 0, sizeof(struct slot));
	room_give(t, i);
}

/* ---- datasets ----------------------------------------------------------- */

static bool remember(struct fsync_sums *f, uint32_t life, uint32_t dataset)
{
	if (life >= f->life_count) {
		uint32_t n = life < 64 ? 128 : life * 2;
		uint32_t *lives = realloc(f->lives, n * sizeof(*lives));

		if (!lives)
			return false;
		memset(lives + f->life_count, 0xff, (n - f->life_count) * sizeof(*lives));
		f->lives = lives;
		f->life_count = n;
	}
	f->lives[life] = dataset;
	return true;
}

static uint32_t known_dataset(const struct fsync_sums *f, uint32_t life)
{
	return life < f->life_count ? f->lives[life] : NO_DATASET;
}

static void name_dataset(struct zfstrace_dataset *d, const struct slot *slot)
{
	memcpy(d->pool, slot->pool, sizeof(d->pool));
	d->objset = slot->objset;
	d->dev_major = dev_major(slot->dev);
	d->dev_minor = dev_minor(slot->dev);
}

/* A dataset that was in use before, by its id: device numbers are reused. */
static uint32_t find_gone(const struct fsync_sums *f, const struct slot *slot)
{
	for (uint32_t i = 1; slot->objset && i < f->dataset_count; i++) {
		const struct dataset *d = f->datasets[i];

		if (!d->in_use && d->sums.objset == slot->objset &&
		    strcmp(d->sums.pool, slot->pool) == 0)
			return i;
	}
	return NO_DATASET;
}

/* The index of a slot's dataset, which may be a new one; NO_DATASET: out of memory. */
static uint32_t dataset_of(struct fsync_sums *f, const struct slot *slot)
{
	uint32_t i = known_dataset(f, slot->life);

	if (i == NO_DATASET) {
		i = slot->life ? find_gone(f, slot) : 0;
		if (i == NO_DATASET)
			i = f->dataset_count < DATASETS_MAX ? f->dataset_count : 0;
		if (i >= f->dataset_count) {
			f->datasets[i] = calloc(1, sizeof(struct dataset));
			if (!f->datasets[i])
				return NO_DATASET;
			f->dataset_count = i + 1;
		}
		if (!remember(f, slot->life, i))
			return NO_DATASET;
	}
	if (i) {
		f->datasets[i]->in_use = true;
		name_dataset(&f->datasets[i]->sums, slot);
	}
	return i;
}

int fsync_begin(struct zfstrace *t)
{
	t->fsyncs = calloc(1, sizeof(*t->fsyncs));
	if (!t->fsyncs || dataset_of(t->fsyncs, &slots_of(t)[0]) == NO_DATASET)
		return fail(t, -ENOMEM, "out of memory");
	t->fsyncs->datasets[0]->sums.rest = true;
	return 0;
}

/* ---- counts ------------------------------------------------------------- */

static void sum_lanes(const struct zfstrace *t, uint32_t slot, struct slot_data *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (uint32_t lane = 0; lane < t->config.lanes; lane++) {
		const struct slot_data *data = lane_of(t, lane, slot);

		for (unsigned int h = 0; h < HISTS_PER_SLOT; h++) {
			sum->hist[h].sum_ns += data->hist[h].sum_ns;
			if (data->hist[h].max_ns > sum->hist[h].max_ns)
				sum->hist[h].max_ns = data->hist[h].max_ns;
			for (unsigned int i = 0; i < ZFSTRACE_HIST_BUCKETS; i++)
				sum->hist[h].bucket[i] += data->hist[h].bucket[i];
		}
		sum->commits += data->commits;
		sum->errors += data->errors;
		sum->no_zil += data->no_zil;
		for (unsigned int k = 0; k < KIND_COUNT; k++)
			sum->kind[k] += data->kind[k];
	}
}

static void add_hist(struct zfstrace_hist *to, const struct small_hist *now,
		     const struct small_hist *last)
{
	to->sum_ns += now->sum_ns - last->sum_ns;
	if (now->max_ns > to->max_ns)
		to->max_ns = now->max_ns;
	for (unsigned int i = 0; i < ZFSTRACE_HIST_BUCKETS; i++) {
		uint32_t n = now->bucket[i] - last->bucket[i]; /* also if it has wrapped */

		to->bucket[i] += n;
		/* not counted separately: operations continue meanwhile, and both must agree */
		to->count += n;
	}
}

static void add_difference(struct zfstrace_dataset *to, const struct slot_data *now,
			   const struct slot_data *last)
{
	to->commits += now->commits - last->commits;
	to->errors += now->errors - last->errors;
	to->no_zil += now->no_zil - last->no_zil;
	for (unsigned int k = 0; k < KIND_COUNT; k++)
		to->kinds[k] += now->kind[k] - last->kind[k];
	add_hist(&to->total, &now->hist[STAGE_TOTAL], &last->hist[STAGE_TOTAL]);
	for (unsigned int s = 0; s < STAGE_COUNT; s++)
		add_hist(&to->stages[s], &now->hist[s], &last->hist[s]);
	to->changes++;
}

/* Adds what a slot has counted since the last time to its dataset, *dataset. */
static int read_slot(struct zfstrace *t, uint32_t i, uint32_t *dataset)
{
	struct fsync_sums *f = t->fsyncs;
	struct slot_state *state = &f->slots[i];
	const struct slot *slot = &slots_of(t)[i];
	struct zfstrace_dataset *d;
	uint64_t before;

	*dataset = known_dataset(f, slot->life);
	sum_lanes(t, i, &f->now);
	if (!state->last)
		state->last = calloc(1, sizeof(*state->last));
	if (!state->last)
		return -ENOMEM;
	/* a slot that has counted nothing needs no dataset */
	if (i && memcmp(&f->now, state->last, sizeof(f->now)) == 0)
		return 0;
	*dataset = dataset_of(f, slot);
	if (*dataset == NO_DATASET)
		return -ENOMEM;
	d = &f->datasets[*dataset]->sums;
	before = d->total.count;
	add_difference(d, &f->now, state->last);
	if (i && !*dataset)
		t->folded += d->total.count - before;
	*state->last = f->now;
	return 0;
}

int fsync_refresh(struct zfstrace *t, uint64_t now_ns)
{
	struct fsync_sums *f = t->fsyncs;

	for (uint32_t i = 0; i < t->config.slots; i++) {
		const struct slot *slot = &slots_of(t)[i];
		bool gone = slot->gone;
		uint32_t dataset;

		if (i && !slot->used)
			continue;
		if (read_slot(t, i, &dataset))
			return fail(t, -ENOMEM, "out of memory");
		if (gone && !f->slots[i].gone_ns)
			f->slots[i].gone_ns = now_ns;
		else if (gone && now_ns - f->slots[i].gone_ns >= GRACE_NS)
			give_back(t, i, dataset);
	}
	f->read_ns = now_ns;
	return 0;
}

bool fsync_due(const struct zfstrace *t, uint64_t now_ns)
{
	if (now_ns - t->fsyncs->read_ns >= READ_NS)
		return true;
	for (uint32_t i = 1; i < t->config.slots; i++)
		if (slots_of(t)[i].gone)
			return true;
	return false;
}

int fsync_tidy(struct zfstrace *t, uint64_t now_ns)
{
	return fsync_due(t, now_ns) ? fsync_refresh(t, now_ns) : 0;
}

void fsync_free(struct zfstrace *t)
{
	struct fsync_sums *f = t->fsyncs;

	if (!f)
		return;
	for (unsigned int i = 0; i < f->dataset_count; i++)
		free(f->datasets[i]);
	for (unsigned int i = 0; i < SLOTS_MAX; i++)
		free(f->slots[i].last);
	free(f->lives);
	free(f);
}

unsigned int zfstrace_datasets(const struct zfstrace *t)
{
	return t->fsyncs ? t->fsyncs->dataset_count : 0;
}

const struct zfstrace_dataset *zfstrace_dataset(const struct zfstrace *t, unsigned int i)
{
	return i < zfstrace_datasets(t) ? &t->fsyncs->datasets[i]->sums : NULL;
}

/* ---- slow operations ---------------------------------------------------- */

/* The slot may have another dataset by the time the event is read. */
uint32_t fsync_dataset(const struct zfstrace *t, uint32_t slot, uint32_t life)
{
	uint32_t i = known_dataset(t->fsyncs, life);

	if (i == NO_DATASET && slot < t->config.slots && slots_of(t)[slot].life == life)
		i = dataset_of(t->fsyncs, &slots_of(t)[slot]);
	return i == NO_DATASET ? 0 : i;
}

struct slow_call {
	const struct zfstrace *t;
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
		.dataset = fsync_dataset(call->t, e->slot, e->life),
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
	struct slow_call call = { t, fn, ctx };

	if (!t->fsyncs)
		return fail(t, -EINVAL, "cannot wait for slow operations: this session has none");
	return zfstrace_events(t, timeout_ms, on_slow, &call);
}
