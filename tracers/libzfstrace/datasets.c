// SPDX-License-Identifier: BSD-2-Clause
/*
 * The counts of datasets, for the tracers "fsync" and "read": sums what the CPUs have counted in
 * the slots of datasets that come and go.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* How many datasets of a session have distributions, even when they are gone; the others are
 * summed in the first. Each takes 117 KB in a trace of fsyncs, 29 KB in one of reads. */
#define DATASETS_MAX 1024
#define NO_DATASET UINT32_MAX
/* How long the slot of a dataset that is gone stays unused, so that threads that still hold it can
 * leave. */
#define GRACE_NS 1000000000
/* Often enough that no counter wraps: see struct small_hist. */
#define READ_NS 60000000000

/* What struct zfstrace_dataset and struct zfstrace_reads begin with; the counts and then the
 * distributions of the tracer follow, as many as its definition says. */
struct head {
	char pool[ZFSTRACE_POOL_LEN];
	uint64_t objset;
	uint32_t dev_major;
	uint32_t dev_minor;
	bool rest;
	uint64_t changes;
	uint64_t counts[];
};
#define SAME(struct_name, member, of)                                                              \
	_Static_assert(offsetof(struct struct_name, member) == offsetof(struct head, of),          \
		       "the header differs")
SAME(zfstrace_dataset, objset, objset);
SAME(zfstrace_dataset, dev_minor, dev_minor);
SAME(zfstrace_dataset, rest, rest);
SAME(zfstrace_dataset, commits, counts);
SAME(zfstrace_reads, objset, objset);
SAME(zfstrace_reads, dev_minor, dev_minor);
SAME(zfstrace_reads, rest, rest);
SAME(zfstrace_reads, bytes, counts);
SAME(zfstrace_commits, objset, objset);
SAME(zfstrace_commits, dev_minor, dev_minor);
SAME(zfstrace_commits, rest, rest);
SAME(zfstrace_commits, total, counts);

struct dataset {
	bool in_use; /* has a slot */
	struct head sums;
};

/* What is known of a slot: an entry of "slot_data" has distributions and then counts. */
struct slot_state {
	uint64_t gone_ns;	 /* when it was found gone, 0 = in use */
	struct small_hist *last; /* its entry, summed, at the last reading */
};

struct dataset_sums {
	struct dataset *datasets[DATASETS_MAX];
	unsigned int dataset_count;
	struct slot_state slots[SLOTS_MAX];
	uint32_t *lives; /* by the life of a slot: the index of its dataset */
	uint32_t life_count;
	struct small_hist *now;
	uint64_t read_ns;
};

static size_t entry_bytes(const struct zfstrace *t)
{
	return t->def->hists * sizeof(struct small_hist) + t->def->counts * sizeof(uint64_t);
}

static uint64_t *counts_of(const struct zfstrace *t, struct small_hist *entry)
{
	return (uint64_t *)(void *)(entry + t->def->hists);
}

static struct zfstrace_hist *hists_of(const struct zfstrace *t, struct head *sums)
{
	return (struct zfstrace_hist *)(void *)(sums->counts + t->def->counts);
}

static struct slot *slots_of(const struct zfstrace *t)
{
	return maps_find(t, "slots");
}

static struct small_hist *lane_of(const struct zfstrace *t, uint32_t lane, uint32_t slot)
{
	char *data = maps_find(t, "slot_data");

	return (void *)&data[(lane * t->config.slots + slot) * entry_bytes(t)];
}

/* ---- slots -------------------------------------------------------------- */

static void give_back(struct zfstrace *t, uint32_t i, uint32_t dataset)
{
	struct slot_state *state = &t->datasets->slots[i];

	if (dataset != NO_DATASET && dataset)
		t->datasets->datasets[dataset]->in_use = false;
	free(state->last);
	memset(state, 0, sizeof(*state));
	for (uint32_t lane = 0; lane < t->config.lanes; lane++)
		memset(lane_of(t, lane, i), 0, entry_bytes(t));
	memset(&slots_of(t)[i], 0, sizeof(struct slot));
	room_give(t, i);
}

/* ---- datasets ----------------------------------------------------------- */

static bool remember(struct dataset_sums *f, uint32_t life, uint32_t dataset)
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

static uint32_t known_dataset(const struct dataset_sums *f, uint32_t life)
{
	return life < f->life_count ? f->lives[life] : NO_DATASET;
}

static void name_dataset(struct head *d, const struct slot *slot)
{
	memcpy(d->pool, slot->pool, sizeof(d->pool));
	d->objset = slot->objset;
	d->dev_major = dev_major(slot->dev);
	d->dev_minor = dev_minor(slot->dev);
}

/* A dataset that was in use before, by its id: device numbers are reused. */
static uint32_t find_gone(const struct dataset_sums *f, const struct slot *slot)
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
static uint32_t dataset_of(const struct zfstrace *t, const struct slot *slot)
{
	size_t size = sizeof(struct dataset) + t->def->counts * sizeof(uint64_t) +
		      t->def->hists * sizeof(struct zfstrace_hist);
	struct dataset_sums *f = t->datasets;
	uint32_t i = known_dataset(f, slot->life);

	if (i == NO_DATASET) {
		i = slot->life ? find_gone(f, slot) : 0;
		if (i == NO_DATASET)
			i = f->dataset_count < DATASETS_MAX ? f->dataset_count : 0;
		if (i >= f->dataset_count) {
			f->datasets[i] = calloc(1, size);
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

int datasets_begin(struct zfstrace *t)
{
	t->datasets = calloc(1, sizeof(*t->datasets));
	if (t->datasets)
		t->datasets->now = malloc(entry_bytes(t));
	if (!t->datasets || !t->datasets->now || dataset_of(t, &slots_of(t)[0]) == NO_DATASET)
		return fail(t, -ENOMEM, "out of memory");
	t->datasets->datasets[0]->sums.rest = true;
	return 0;
}

/* ---- counts ------------------------------------------------------------- */

static void sum_lanes(const struct zfstrace *t, uint32_t slot, struct small_hist *sum)
{
	memset(sum, 0, entry_bytes(t));
	for (uint32_t lane = 0; lane < t->config.lanes; lane++) {
		struct small_hist *data = lane_of(t, lane, slot);

		for (unsigned int h = 0; h < t->def->hists; h++) {
			sum[h].sum_ns += data[h].sum_ns;
			if (data[h].max_ns > sum[h].max_ns)
				sum[h].max_ns = data[h].max_ns;
			for (unsigned int i = 0; i < ZFSTRACE_HIST_BUCKETS; i++)
				sum[h].bucket[i] += data[h].bucket[i];
		}
		for (unsigned int k = 0; k < t->def->counts; k++)
			counts_of(t, sum)[k] += counts_of(t, data)[k];
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

/* Returns how many operations they are. */
static uint64_t add_difference(const struct zfstrace *t, struct head *to, struct small_hist *now,
			       struct small_hist *last)
{
	struct zfstrace_hist *hists = hists_of(t, to);
	uint64_t before = 0, after = 0;

	for (unsigned int k = 0; k < t->def->counts; k++)
		to->counts[k] += counts_of(t, now)[k] - counts_of(t, last)[k];
	for (unsigned int h = 0; h < t->def->hists; h++) {
		/* in the slot's entry the one of whole operations may be the last */
		unsigned int from = (h + t->def->first_hist) % t->def->hists;

		if (h < t->def->wholes)
			before += hists[h].count;
		add_hist(&hists[h], &now[from], &last[from]);
		if (h < t->def->wholes)
			after += hists[h].count;
	}
	to->changes++;
	return after - before;
}

/* Adds what a slot has counted since the last time to its dataset, *dataset. */
static int read_slot(struct zfstrace *t, uint32_t i, uint32_t *dataset)
{
	struct dataset_sums *f = t->datasets;
	struct slot_state *state = &f->slots[i];
	const struct slot *slot = &slots_of(t)[i];
	uint64_t more;

	*dataset = known_dataset(f, slot->life);
	sum_lanes(t, i, f->now);
	if (!state->last)
		state->last = calloc(1, entry_bytes(t));
	if (!state->last)
		return -ENOMEM;
	/* a slot that has counted nothing needs no dataset */
	if (i && memcmp(f->now, state->last, entry_bytes(t)) == 0)
		return 0;
	*dataset = dataset_of(t, slot);
	if (*dataset == NO_DATASET)
		return -ENOMEM;
	more = add_difference(t, &f->datasets[*dataset]->sums, f->now, state->last);
	if (i && !*dataset)
		t->folded += more;
	memcpy(state->last, f->now, entry_bytes(t));
	return 0;
}

int datasets_refresh(struct zfstrace *t, uint64_t now_ns)
{
	struct dataset_sums *f = t->datasets;

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

bool datasets_due(const struct zfstrace *t, uint64_t now_ns)
{
	if (now_ns - t->datasets->read_ns >= READ_NS)
		return true;
	for (uint32_t i = 1; i < t->config.slots; i++)
		if (slots_of(t)[i].gone)
			return true;
	return false;
}

int datasets_tidy(struct zfstrace *t, uint64_t now_ns)
{
	return datasets_due(t, now_ns) ? datasets_refresh(t, now_ns) : 0;
}

void datasets_free(struct zfstrace *t)
{
	struct dataset_sums *f = t->datasets;

	if (!f)
		return;
	for (unsigned int i = 0; i < f->dataset_count; i++)
		free(f->datasets[i]);
	for (unsigned int i = 0; i < SLOTS_MAX; i++)
		free(f->slots[i].last);
	free(f->lives);
	free(f->now);
	free(f);
}

unsigned int zfstrace_datasets(const struct zfstrace *t)
{
	return t->datasets ? t->datasets->dataset_count : 0;
}

const void *datasets_sums(const struct zfstrace *t, unsigned int i)
{
	return i < zfstrace_datasets(t) ? &t->datasets->datasets[i]->sums : NULL;
}

/* The slot may have another dataset by the time it is asked for. */
uint32_t datasets_index(const struct zfstrace *t, uint32_t slot, uint32_t life)
{
	uint32_t i = known_dataset(t->datasets, life);

	if (i == NO_DATASET && slot < t->config.slots && slots_of(t)[slot].life == life)
		i = dataset_of(t, &slots_of(t)[slot]);
	return i == NO_DATASET ? 0 : i;
}
