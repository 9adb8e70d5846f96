// SPDX-License-Identifier: BSD-2-Clause
/*
 * Unit tests of the programs that time commits and log blocks, run as functions, with the part of
 * libzfstrace that reads what they count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "internal.h"
#include "shim.h"
/* So few that threads meet */
#define PLACES_BITS 1
#include "../../tracers/bpf/commit.bpf.c"
#include "../../tracers/bpf/commit.h"

/* A dataset as the programs meet it. */
struct world {
	char pool[ZFSTRACE_POOL_LEN];
	struct zilog zilog;
	struct objset objset;
	struct dsl_dataset dataset;
	__u64 lwb[32];
	struct zio zio;
};

static void make_world(struct world *w, const char *pool, unsigned int number)
{
	memset(w, 0, sizeof(*w));
	snprintf(w->pool, sizeof(w->pool), "%s", pool);
	w->dataset.ds_object = number;
	w->objset.os_dsl_dataset = &w->dataset;
	w->zilog.zl_spa = w->pool;
	w->zilog.zl_os = &w->objset;
	w->lwb[0] = (__u64)&w->zilog;
	w->zio.io_private = w->lwb;
}

static struct zfstrace *start(const char *pool, unsigned long long slow_ns)
{
	struct zfstrace *t = calloc(1, sizeof(*t));
	struct trace_config *c = (struct trace_config *)(uintptr_t)&config;

	shim_reset();
	memset(c, 0, sizeof(*c));
	snprintf(c->pool, sizeof(c->pool), "%s", pool);
	c->slow_ns = slow_ns;
	c->slots = 8;
	c->lanes = 2;
	enabled = 1;
	spare_slot = 0;
	shim_cpu = 0;
	shim_size(&slots, 8);
	shim_size(&slot_data, 16);
	shim_size(&counters, 64);
	t->config = *c;
	t->cpus = 64;
	shim_session(t, "commit",
		     (struct shim_table[]) { { "slots", shim_array(&slots) },
					     { "slot_data", shim_array(&slot_data) },
					     { "free_slots", shim_array(&free_slots) },
					     { "counters", shim_array(&counters) },
					     {} });
	room_begin(t);
	CHECK(datasets_begin(t) == 0);
	return t;
}

static void end(struct zfstrace *t)
{
	datasets_free(t);
	free(t);
}

static void issue(struct world *w)
{
	fentry_add_block(NULL, (__u64)w->lwb, (__u64)w->lwb + 64); /* a block of a record */
	fentry_add_block(NULL, (__u64)w->lwb, (__u64)w->lwb + 8);
}

static void done(struct world *w)
{
	fentry_write_done(NULL, &w->zio);
	fentry_flush_done(NULL, &w->zio);
}

static void commit(struct world *w, bool write)
{
	fentry_zil_commit(NULL, (__u64)&w->zilog);
	if (write) {
		issue(w);
		done(w);
	}
	fentry_zil_commit_return(NULL);
}

static const struct zfstrace_commits *find(const struct zfstrace *t, uint64_t objset)
{
	for (unsigned int i = 1; i < zfstrace_datasets(t); i++)
		if (zfstrace_commits(t, i)->objset == objset)
			return zfstrace_commits(t, i);
	return NULL;
}

/* Each commit and each log block is in one distribution of its dataset. */
static void test_counts(void)
{
	struct zfstrace *t = start("", 0);
	const struct zfstrace_commits *d;
	static struct world w[2];

	make_world(&w[0], "tank", 54);
	make_world(&w[1], "tank", 55);
	for (int i = 0; i < 10; i++) {
		commit(&w[0], true);
		commit(&w[1], i < 3);
	}
	CHECK(datasets_refresh(t, 0) == 0);
	d = find(t, 54);
	CHECK(d && strcmp(d->pool, "tank") == 0);
	CHECK(d && d->total.count == 10 && d->log_write.count == 10 && d->flush.count == 10);
	CHECK(d && d->total.sum_ns > d->log_write.sum_ns + d->flush.sum_ns);
	d = find(t, 55);
	CHECK(d && d->total.count == 10 && d->log_write.count == 3 && d->flush.count == 3);
	end(t);
}

/* A log block may end after the commit that issued it, in another thread, and a txg's sync issues
 * some: those belong to no dataset. */
static void test_log_blocks(void)
{
	struct zfstrace *t = start("", 0);
	static struct world w;

	make_world(&w, "tank", 54);
	done(&w); /* issued before the trace began */
	fentry_zil_commit(NULL, (__u64)&w.zilog);
	issue(&w);
	fentry_zil_commit_return(NULL);
	done(&w);
	issue(&w);
	done(&w);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find(t, 54) && find(t, 54)->log_write.count == 1);
	end(t);
}

/* Both times of a block, or none. */
static void test_a_write_that_was_not_seen(void)
{
	struct zfstrace *t = start("", 0);
	static struct world w;

	make_world(&w, "tank", 54);
	fentry_zil_commit(NULL, (__u64)&w.zilog);
	issue(&w);
	done(&w);
	issue(&w); /* at the same address */
	fentry_flush_done(NULL, &w.zio);
	fentry_zil_commit_return(NULL);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find(t, 54) && find(t, 54)->log_write.count == 1 && find(t, 54)->flush.count == 1);
	end(t);
}

/* What could not be allocated is not issued: it ends like a block, at the address of an earlier
 * one. */
static void test_a_block_that_could_not_be_had(void)
{
	struct zfstrace *t = start("", 0);
	static struct world w;

	make_world(&w, "tank", 54);
	commit(&w, true);
	shim_now += 600000000000;
	done(&w);
	fentry_flush_done(NULL, &w.zio);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find(t, 54) && find(t, 54)->log_write.count == 1 && find(t, 54)->flush.count == 1);
	CHECK(find(t, 54) && find(t, 54)->log_write.max_ns < 600000000000);
	end(t);
}

/* Without BTF the log block of a zio is not known until one was seen to be issued. */
static void test_log_blocks_from_before(void)
{
	struct zfstrace *t = start("", 0);
	static union {
		struct zio zio;
		__u64 words[100]; /* that are searched */
	} block;

	shim_btf = 0;
	off_io_private = 0;
	fentry_write_done(NULL, &block.zio);
	fentry_flush_done(NULL, &block.zio);
	shim_btf = 1;
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(zfstrace_commits(t, 0)->log_write.count == 0);
	CHECK(zfstrace_commits(t, 0)->flush.count == 0);
	end(t);
}

static void test_only_what_is_wanted(void)
{
	struct zfstrace *t = start("tank", 0);
	static struct world w[2];

	make_world(&w[0], "tank", 54);
	make_world(&w[1], "dozer", 54);
	commit(&w[0], true);
	commit(&w[1], true);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(zfstrace_datasets(t) == 2 && find(t, 54)->total.count == 1);
	CHECK(find(t, 54)->log_write.count == 1);
	end(t);
}

static void test_slow(void)
{
	struct zfstrace *t = start("", 1);
	const struct slow_commit *e = (void *)shim_event;
	static struct world w;

	make_world(&w, "tank", 54);
	commit(&w, true);
	CHECK(e->total_ns > 0 && e->pid == 100 && e->life == 1);
	end(t);
}

/* What is not in a slot any more is in that of the next dataset with this address only if it is its
 * own. */
static void test_a_dataset_that_goes(void)
{
	struct zfstrace *t = start("", 0);
	static struct world w;

	make_world(&w, "tank", 54);
	commit(&w, true);
	fentry_zil_free(NULL, (__u64)&w.zilog);
	w.dataset.ds_object = 60;
	commit(&w, true);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find(t, 54) && find(t, 54)->total.count == 1);
	CHECK(find(t, 60) && find(t, 60)->total.count == 1);
	end(t);
}

static void test_a_return_that_was_missed(void)
{
	struct zfstrace *t = start("", 0);
	const struct counters *c = maps_find(t, "counters");
	static struct world w;

	make_world(&w, "tank", 54);
	fentry_zil_commit(NULL, (__u64)&w.zilog);
	commit(&w, false);
	fentry_zil_commit_return(NULL);
	CHECK(c->started == 2 && c->finished == 1 && c->lost_return == 1);
	/* another thread at the same address, of a process that is not traced */
	((struct trace_config *)(uintptr_t)&config)->pid = 100;
	fentry_zil_commit(NULL, (__u64)&w.zilog);
	shim_tid += SHIM_THREADS;
	shim_tgid++;
	commit(&w, false);
	shim_tid = shim_tgid = 100;
	CHECK(c->started == 3 && c->finished == 1 && c->lost_return == 2);
	end(t);
}

/* Both sides agree about the bounds of buckets. */
static void test_buckets(void)
{
	for (unsigned int bit = 0; bit < 64; bit++)
		for (unsigned int i = 0; i < 3 * HIST_SUB; i++) {
			__u64 v = (1ULL << bit) + ((1ULL << bit) * i >> 5);

			CHECK(hist_bucket(v) == zfstrace_hist_index(v));
			CHECK(hist_bucket(v - 1) == zfstrace_hist_index(v - 1));
		}
}

#define THREADS 40
#define WORLDS 3

/* What a thread does, and when its commit began. */
struct thread {
	struct world *in;
	bool missed; /* the return of its last commit */
	__u64 began;
};

static struct {
	uint64_t lost, commits[WORLDS], ns[WORLDS], blocks[WORLDS];
} wanted;

static void begin(struct thread *thread, struct world *w)
{
	wanted.lost += thread->missed;
	*thread = (struct thread) { .in = w };
	fentry_zil_commit(NULL, (__u64)&w->zilog);
	thread->began = shim_now;
}

static void finish(struct thread *thread, unsigned int number)
{
	fentry_zil_commit_return(NULL);
	wanted.commits[number]++;
	wanted.ns[number] += shim_now - thread->began;
	thread->in = NULL;
}

static void step(struct thread *thread, struct world *w)
{
	unsigned int what = (unsigned int)random() % 8, number = (unsigned int)random() % WORLDS;

	if (thread->in)
		number = (unsigned int)(thread->in - w);
	if (what < 2 && !thread->missed) { /* a block that no commit issues is of no dataset */
		issue(&w[number]);
		done(&w[number]);
		wanted.blocks[number] += thread->in ? 1 : 0;
	} else if (!thread->in) {
		begin(thread, &w[number]);
	} else if (what == 7) {
		thread->in = NULL;
		thread->missed = true;
	} else {
		finish(thread, number);
	}
}

/* Threads for which there is no place but their storage, whatever order they come and go in, and
 * whatever is missed: each commit and each block is counted once, where it belongs. */
static void test_threads_that_meet(void)
{
	struct zfstrace *t = start("", 0);
	const struct counters *c = maps_find(t, "counters");
	static struct thread threads[THREADS];
	static struct world w[WORLDS];
	uint64_t commits = 0;

	memset(&wanted, 0, sizeof(wanted));
	for (unsigned int i = 0; i < WORLDS; i++)
		make_world(&w[i], "tank", i + 1);
	srandom(1);
	for (int n = 0; n < 20000; n++) {
		shim_tid = (__u64)random() % THREADS;
		step(&threads[shim_tid], w);
	}
	for (shim_tid = 0; shim_tid < THREADS; shim_tid++) {
		if (!threads[shim_tid].in)
			begin(&threads[shim_tid], w);
		finish(&threads[shim_tid], (unsigned int)(threads[shim_tid].in - w));
	}
	shim_tid = 100;
	CHECK(datasets_refresh(t, 0) == 0);
	for (unsigned int i = 0; i < WORLDS; i++) {
		const struct zfstrace_commits *d = find(t, i + 1);

		CHECK(d && d->total.count == wanted.commits[i] && d->total.sum_ns == wanted.ns[i]);
		CHECK(d && d->log_write.count == wanted.blocks[i]);
		CHECK(d && d->flush.count == wanted.blocks[i]);
		commits += wanted.commits[i];
	}
	CHECK(wanted.lost > 100 && c->lost_return == wanted.lost && c->lost_start == 0);
	CHECK(c->finished == commits && c->started == commits + wanted.lost);
	for (__u32 i = 0; i < 1 << PLACES_BITS; i++) {
		const struct commit *place = bpf_map_lookup_elem(&commit_places, &i);

		CHECK(!place->place.task && !place->place.crowded);
	}
	end(t);
}

/* Another thread is in its place, and there is no memory. */
static void test_no_memory(void)
{
	struct zfstrace *t = start("", 0);
	const struct counters *c = maps_find(t, "counters");
	struct commit *place = commit_place((__u64)shim_task());
	static struct world w;

	make_world(&w, "tank", 54);
	place->place.task = 1;
	shim_full = 1;
	commit(&w, false);
	shim_full = 0;
	CHECK(c->started == 0 && c->finished == 0 && c->lost_start == 1);
	CHECK(place->place.task == 1 && !place->place.crowded);
	commit(&w, false);
	CHECK(c->started == 1 && c->finished == 1 && !place->place.crowded);
	end(t);
}

int main(void)
{
	test_buckets();
	test_counts();
	test_log_blocks();
	test_a_write_that_was_not_seen();
	test_a_block_that_could_not_be_had();
	test_log_blocks_from_before();
	test_only_what_is_wanted();
	test_slow();
	test_a_dataset_that_goes();
	test_a_return_that_was_missed();
	test_threads_that_meet();
	test_no_memory();
	return checked("BPF unit tests (commit)");
}
