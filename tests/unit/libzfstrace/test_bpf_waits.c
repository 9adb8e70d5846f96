// SPDX-License-Identifier: BSD-2-Clause
/*
 * Unit tests of the fsync tracer's programs: waits for log blocks that others have issued, and what
 * follows an fsync whose return was missed.
 */
#include "fsync_world.h"

#define MS 1000000ULL

/* A commit waiter, and the log block that it waits for. */
struct waiter {
	__u64 lwb;
	__u64 words[9];
	__u64 lock;
};

static uint64_t lost_blocks(const struct zfstrace *t)
{
	const struct counters *per_cpu = maps_find(t, "counters");
	uint64_t n = 0;

	for (int cpu = 0; cpu < t->cpus; cpu++)
		n += per_cpu[cpu].lost_lwb;
	return n;
}

/* The only dataset, its log block, a waiter for that, and the zio that writes it. */
static struct world w;
static struct waiter waiter;
static struct zio zio;

static struct zfstrace *start_world(void)
{
	make_world(&w, "tank", 54);
	waiter = (struct waiter) { .lwb = (__u64)w.lwb };
	zio = (struct zio) { .io_private = w.lwb };
	return start(8, 2);
}

static void issue(void)
{
	fentry_add_block(NULL, (__u64)w.lwb, (__u64)w.lwb + 8);
}

static void begin_commit(__u64 object)
{
	fentry_zil_commit(NULL, (__u64)&w.zilog, object);
	fentry_async_to_sync_return(NULL);
}

static void wait_for_it(void)
{
	fentry_cv_wait(NULL, (__u64)&waiter, (__u64)&waiter.lock);
}

static uint64_t about(const struct zfstrace_hist *h)
{
	return (h->sum_ns + MS / 2) / MS;
}

/* A commit that finds a block of another under way has the part of its times that it waited for. */
static void test_a_block_is_joined(void)
{
	struct zfstrace *t = start_world();
	const struct zfstrace_dataset *d;

	shim_tid = 1;
	begin_commit(8);
	issue();
	shim_now += 10 * MS;
	shim_tid = 2; /* while it is written */
	begin_commit(9);
	wait_for_it();
	shim_now += 5 * MS;
	fentry_write_done(NULL, &zio);
	shim_now += MS;
	shim_tid = 3; /* while caches are flushed */
	begin_commit(10);
	wait_for_it();
	shim_now += 2 * MS;
	fentry_flush_done(NULL, &zio);
	fentry_zil_commit_return(NULL);
	shim_tid = 2;
	fentry_zil_commit_return(NULL);
	shim_tid = 100;
	CHECK(datasets_refresh(t, 0) == 0);
	d = find_objset(t, 54);
	CHECK(d && d->total.count == 2 && lost_blocks(t) == 0);
	CHECK(d && about(&d->stages[STAGE_LOG_WRITE]) == 5);
	CHECK(d && about(&d->stages[STAGE_FLUSH]) == 3 + 2);
	CHECK(d && about(&d->stages[STAGE_BATCH_WAIT]) == 0 && about(&d->stages[STAGE_OTHER]) == 0);
	end(t);
}

/* It ends between the look at it and the sleep, so that this is short. */
static void test_a_block_ends_as_it_is_joined(void)
{
	struct zfstrace *t = start_world();

	issue();
	begin_commit(9);
	fentry_write_done(NULL, &zio);
	fentry_flush_done(NULL, &zio);
	wait_for_it();
	fentry_zil_commit_return(NULL);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find_objset(t, 54)->stages[STAGE_WAKEUP].count == 1 && lost_blocks(t) == 0);
	end(t);
}

/* An earlier block at the address says nothing about the one that is not issued yet. */
static void test_an_address_is_used_again(void)
{
	struct zfstrace *t = start_world();
	const struct zfstrace_dataset *d;

	issue();
	fentry_write_done(NULL, &zio);
	fentry_flush_done(NULL, &zio);
	shim_now += 100 * MS;
	begin_commit(9);
	wait_for_it();
	shim_now += 3 * MS;
	fentry_cv_timedwait(NULL, (__u64)&waiter, (__u64)&waiter.lock); /* woken for nothing */
	shim_now += 4 * MS;
	issue();
	shim_now += 5 * MS;
	fentry_write_done(NULL, &zio);
	fentry_flush_done(NULL, &zio);
	fentry_zil_commit_return(NULL);
	CHECK(datasets_refresh(t, 0) == 0);
	d = find_objset(t, 54);
	CHECK(d && about(&d->stages[STAGE_BATCH_WAIT]) == 3 + 4);
	CHECK(d && about(&d->stages[STAGE_LOG_WRITE]) == 5 && lost_blocks(t) == 0);
	end(t);
}

/* The return of an fsync was missed: O_SYNC writes of its thread to other files are no part of it.
 * Those to its own file are lost with it, as nothing tells them from its commits. */
static void test_writes_after_a_missed_return(void)
{
	for (int same = 0; same < 2; same++) {
		struct zfstrace *t = start_world();
		const struct counters *c = maps_find(t, "counters");
		const struct zfstrace_dataset *d;

		fentry_zpl_fsync(NULL, &w.file, 0, LLONG_MAX, 0);
		begin_commit(FILE_OBJECT);
		fentry_zil_commit_return(NULL);
		for (int i = 0; i < 100; i++) {
			begin_commit(same ? FILE_OBJECT : 9);
			fentry_zil_commit_return(NULL);
		}
		do_fsync(&w, true);
		CHECK(datasets_refresh(t, 0) == 0);
		d = find_objset(t, 54);
		CHECK(d && d->total.count == (same ? 1 : 101) && d->kinds[KIND_FSYNC] == 1);
		CHECK(c->lost_return == 1 && c->started == c->finished + 1);
		end(t);
	}
}

int main(void)
{
	test_a_block_is_joined();
	test_a_block_ends_as_it_is_joined();
	test_an_address_is_used_again();
	test_writes_after_a_missed_return();
	return checked("BPF unit tests of waits");
}
