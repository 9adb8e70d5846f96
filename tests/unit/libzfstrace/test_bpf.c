// SPDX-License-Identifier: BSD-2-Clause
/*
 * Unit tests of the fsync tracer's programs, run as functions (bpf_shim), with the part of
 * libzfstrace that reads what they count: datasets that come and go, more of them than there is
 * room for, CPUs that come later, counters that wrap.
 */
#include "fsync_world.h"

static uint64_t overflow(const struct zfstrace *t)
{
	const struct counters *per_cpu = maps_find(t, "counters");
	uint64_t n = t->folded;

	for (int cpu = 0; cpu < t->cpus; cpu++)
		n += per_cpu[cpu].slots_overflow;
	return n;
}

static unsigned int used_slots(const struct zfstrace *t)
{
	const struct slot *slot = maps_find(t, "slots");
	unsigned int n = 0;

	for (unsigned int i = 1; i < t->config.slots; i++)
		n += !!slot[i].used;
	return n;
}

static void test_stages_sum(void)
{
	struct zfstrace *t = start(8, 2);
	struct world w;
	const struct zfstrace_dataset *d;
	uint64_t sum = 0;

	make_world(&w, "tank", 54);
	do_fsync(&w, true);
	shim_reads = 0;
	for (int i = 0; i < 9; i++)
		do_fsync(&w, true);
	CHECK(shim_reads == 0); /* dataset and kind are known: nothing is asked of the kernel */
	CHECK(datasets_refresh(t, 0) == 0);
	d = find_objset(t, 54);
	CHECK(d && d->total.count == 10 && d->commits == 10 && d->kinds[KIND_FSYNC] == 10);
	CHECK(d && strcmp(d->pool, "tank") == 0 && d->dev_minor == 94);
	for (int i = 0; d && i < STAGE_COUNT; i++)
		sum += d->stages[i].sum_ns;
	CHECK(d && sum == d->total.sum_ns && d->total.max_ns * 10 >= sum);
	end(t);
}

/* Only a file with pages has a writeback, until its commit. */
static void test_writeback(void)
{
	struct zfstrace *t = start(8, 2);
	const struct zfstrace_dataset *d;
	struct world w;

	make_world(&w, "tank", 54);
	do_fsync(&w, true);
	w.mapping.nrpages = 3;
	for (int i = 0; i < 2; i++)
		do_fsync(&w, true);
	CHECK(datasets_refresh(t, 0) == 0);
	d = find_objset(t, 54);
	CHECK(d && d->stages[STAGE_WRITEBACK].count == 2);
	CHECK(d && d->stages[STAGE_OTHER].count == 3);
	end(t);
}

/* A function of the kernel stands in for the module's, with anybody who waits for anything. */
static void test_stand_ins(void)
{
	struct {
		__u64 magic; /* shim_btf: zcw_lwb */
		struct wait_queue_head queue, destroy;
		__u64 counters, mutex, lock[4];
	} waiter = { .mutex = (__u64)waiter.lock }, other = { .mutex = (__u64)&other };
	struct zfstrace *t = start(8, 2);
	const struct zfstrace_dataset *d;
	struct world w;

	_Static_assert(offsetof(typeof(waiter), queue) == 8, "as in a kcondvar_t");
	make_world(&w, "tank", 54);
	waiter.magic = (__u64)w.lwb;
	fentry_zpl_fsync(NULL, &w.file, 0, LLONG_MAX, 0);
	fentry_prepare_to_wait(NULL, (__u64)&waiter.queue); /* not in a commit */
	fentry_zil_commit(NULL, (__u64)&w.zilog, 7);
	fentry_async_to_sync_return(NULL);
	fentry_add_block(NULL, (__u64)w.lwb, (__u64)w.lwb + 8);
	fentry_prepare_to_wait(NULL, (__u64)&other.queue);
	fentry_prepare_to_wait(NULL, (__u64)&waiter.queue);
	fentry_zil_commit_return(NULL);
	fentry_zpl_fsync_return(NULL, &w.file, 0, LLONG_MAX, 0, 0);
	CHECK(datasets_refresh(t, 0) == 0);
	d = find_objset(t, 54);
	/* it waited for the log block once, from then on */
	CHECK(d && d->total.count == 1);
	CHECK(d && d->stages[STAGE_ISSUE].count == 1 && d->stages[STAGE_LOG_WRITE].count == 1);
	end(t);
}

/* What the index cannot take is counted, and takes no slot. */
static void test_full_index(void)
{
	struct zfstrace *t = start(40, 1);
	static struct world w[5];

	shim_size(&slot_index, 4);
	for (unsigned int i = 0; i < 5; i++) {
		make_world(&w[i], "tank", i + 1);
		for (int k = 0; k < 20; k++)
			do_fsync(&w[i], true);
	}
	CHECK(used_slots(t) == 4);
	CHECK(overflow(t) == 20);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(zfstrace_dataset(t, 0)->rest && zfstrace_dataset(t, 0)->total.count == 20);
	unmount(&w[0]); /* now there is room */
	do_fsync(&w[4], true);
	CHECK(overflow(t) == 20 && used_slots(t) == 5);
	end(t);
}

static void test_unwanted_take_no_room(void)
{
	struct zfstrace *t = start(4, 1);
	static struct world w, other;

	strcpy((char *)(uintptr_t)config.pool, "tank");
	make_world(&w, "tank", 1);
	make_world(&other, "side", 2);
	for (int i = 0; i < 6000; i++) {
		struct slot_key key = { .ptr = 0x1000 + i };
		__u32 yes = 1;

		bpf_map_update_elem(&unwanted, &key, &yes, BPF_ANY);
	}
	do_fsync(&other, true);
	do_fsync(&other, true);
	do_fsync(&w, true);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find_objset(t, 1) && find_objset(t, 1)->total.count == 1);
	CHECK(!find_objset(t, 2) && used_slots(t) == 1 && overflow(t) == 0);
	end(t);
}

/* Few slots, and one dataset after the other: each is counted under its own id. */
static void test_slots_come_back(bool btf)
{
	struct zfstrace *t;
	static struct world w[3];
	uint64_t now = SECONDS;

	shim_btf = btf;
	off_zl_spa = 0;
	t = start(4, 2);
	for (unsigned int i = 0; i < 300; i++) {
		struct world *one = &w[i % 3];

		make_world(one, "tank", i % 200 + 1); /* the first hundred twice */
		for (unsigned int k = 0; k < 1 + i % 5; k++)
			do_fsync(one, true);
		unmount(one);
		CHECK(datasets_due(t, now));
		for (int k = 0; k < 2; k++, now += SECONDS)
			CHECK(datasets_refresh(t, now) == 0);
		CHECK(!datasets_due(t, now) && used_slots(t) == 0);
	}
	CHECK(overflow(t) == 0 && zfstrace_dataset(t, 0)->total.count == 0);
	CHECK(zfstrace_datasets(t) == 201);
	for (unsigned int i = 0; i < 200; i++) {
		const struct zfstrace_dataset *d = find_objset(t, i + 1);

		CHECK(d && d->total.count == (1 + i % 5) * (i < 100 ? 2 : 1));
		CHECK(d && d->total.count == d->commits);
	}
	CHECK(nameless == 0);
	shim_btf = 1;
	end(t);
}

/* The same where nothing is committed: then the superblock is what is known. */
static void test_superblocks_come_back(void)
{
	struct zfstrace *t = start(3, 1);
	uint64_t now = SECONDS, n = 0;
	static struct world w;

	for (unsigned int i = 0; i < 100; i++) {
		make_world(&w, "tank", i + 1);
		do_fsync(&w, false);
		unmount(&w);
		for (int k = 0; k < 2; k++, now += SECONDS)
			CHECK(datasets_refresh(t, now) == 0);
	}
	for (unsigned int i = 1; i < zfstrace_datasets(t); i++)
		n += zfstrace_dataset(t, i)->no_zil;
	CHECK(n == 100 && overflow(t) == 0);
	end(t);
}

/* A slot that is gone keeps its counts until they were read, and a second longer. */
static void test_no_hurry(void)
{
	struct zfstrace *t = start(2, 1);
	static struct world w, next;

	make_world(&w, "tank", 1);
	make_world(&next, "tank", 2);
	do_fsync(&w, true);
	unmount(&w);
	CHECK(datasets_refresh(t, SECONDS) == 0);
	CHECK(datasets_refresh(t, SECONDS + SECONDS / 2) == 0);
	do_fsync(&next, true);
	CHECK(overflow(t) == 1);
	CHECK(datasets_refresh(t, 2 * SECONDS) == 0);
	do_fsync(&next, true);
	CHECK(datasets_refresh(t, 3 * SECONDS) == 0);
	CHECK(overflow(t) == 1);
	CHECK(find_objset(t, 1) && find_objset(t, 1)->total.count == 1);
	CHECK(find_objset(t, 2) && find_objset(t, 2)->total.count == 1);
	end(t);
}

/* More datasets than user space keeps apart: the rest is summed, and counted. */
static void test_many(void)
{
	struct zfstrace *t = start(2, 1);
	uint64_t now = SECONDS, n = 0;
	static struct world w;

	for (unsigned int i = 0; i < 1100; i++) {
		make_world(&w, "tank", i + 1);
		do_fsync(&w, true);
		unmount(&w);
		for (int k = 0; k < 2; k++, now += SECONDS)
			CHECK(datasets_refresh(t, now) == 0);
	}
	CHECK(zfstrace_datasets(t) == 1024);
	for (unsigned int i = 0; i < zfstrace_datasets(t); i++)
		n += zfstrace_dataset(t, i)->total.count;
	CHECK(n == 1100 && overflow(t) == 1100 - 1023);
	CHECK(zfstrace_dataset(t, 0)->total.count == 1100 - 1023);
	end(t);
}

/* A slow operation is of the dataset that was in its slot then. */
static void test_slow_operation(void)
{
	struct zfstrace *t = start(2, 1);
	const struct slow_event *e = (const struct slow_event *)(const void *)shim_event;
	static struct world w, next;
	struct slow_event first;
	unsigned int i;

	((struct trace_config *)(uintptr_t)&config)->slow_ns = 1;
	make_world(&w, "tank", 1);
	make_world(&next, "tank", 2);
	do_fsync(&w, true);
	first = *e;
	i = datasets_index(t, first.slot, first.life); /* before it was read for the first time */
	CHECK(i == 1 && zfstrace_dataset(t, i)->objset == 1);
	unmount(&w);
	CHECK(datasets_refresh(t, SECONDS) == 0 && datasets_refresh(t, 2 * SECONDS) == 0);
	do_fsync(&next, true);
	CHECK(e->slot == first.slot && e->life != first.life);
	CHECK(zfstrace_dataset(t, datasets_index(t, e->slot, e->life))->objset == 2);
	CHECK(zfstrace_dataset(t, datasets_index(t, first.slot, first.life))->objset == 1);
	end(t);
}

static struct world *met_first;
static unsigned int met_on;

static void meet(void)
{
	unsigned int cpu = shim_cpu;

	shim_tid++;
	shim_cpu = met_on;
	do_fsync(met_first, true);
	shim_cpu = cpu;
	shim_tid--;
}

/* Two CPUs meet a dataset at once: one slot, nothing lost. */
static void test_met_at_once(void)
{
	struct zfstrace *t = start(3, 1);
	static struct world w, next;

	make_world(&w, "tank", 1);
	make_world(&next, "tank", 2);
	met_first = &w;
	met_on = 1;
	shim_index = &slot_index;
	shim_before_insert = meet;
	do_fsync(&w, true);
	CHECK(used_slots(t) == 1);
	do_fsync(&next, true); /* in the slot that the loser had taken */
	CHECK(used_slots(t) == 2 && overflow(t) == 0);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find_objset(t, 1) && find_objset(t, 1)->total.count == 2);
	CHECK(find_objset(t, 2) && find_objset(t, 2)->total.count == 1);
	end(t);
}

/* A thread is preempted while it meets a dataset, and another one on its CPU meets one, too: that
 * has to wait for its next operation. */
static void test_met_in_turns(void)
{
	struct zfstrace *t = start(4, 1);
	static struct world w, other;

	make_world(&w, "tank", 1);
	make_world(&other, "dozer", 2);
	met_first = &other;
	met_on = 0;
	shim_index = &slot_index;
	shim_before_insert = meet;
	do_fsync(&w, true);
	CHECK(overflow(t) == 1);
	do_fsync(&other, true);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find_objset(t, 1) && strcmp(find_objset(t, 1)->pool, "tank") == 0);
	CHECK(find_objset(t, 2) && strcmp(find_objset(t, 2)->pool, "dozer") == 0);
	CHECK(find_objset(t, 2) && find_objset(t, 2)->total.count == 1);
	CHECK(zfstrace_dataset(t, 0)->total.count == 1);
	end(t);
}

/* Without BTF each log block asked for its dataset, for ever. */
static void test_objset_is_learned_once(void)
{
	struct zfstrace *t;
	static struct world w;

	shim_btf = 0;
	off_zl_spa = 0;
	t = start(8, 1);
	make_world(&w, "tank", 77);
	do_fsync(&w, true);
	shim_index = &slot_index;
	shim_index_looks = 0;
	for (int i = 0; i < 10; i++)
		fentry_add_block(NULL, (__u64)w.lwb, (__u64)w.lwb + 8);
	CHECK(shim_index_looks == 0);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find_objset(t, 77) && strcmp(find_objset(t, 77)->pool, "tank") == 0);
	shim_btf = 1;
	end(t);
}

/* CPUs for which there was no lane add to another's. */
static void test_late_cpu(void)
{
	struct zfstrace *t = start(4, 2);
	static struct world w;

	make_world(&w, "tank", 1);
	for (unsigned int cpu = 0; cpu < 64; cpu++) {
		shim_cpu = cpu;
		do_fsync(&w, true);
	}
	shim_cpu = 0;
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(find_objset(t, 1) && find_objset(t, 1)->total.count == 64);
	CHECK(find_objset(t, 1) && find_objset(t, 1)->commits == 64);
	end(t);
}

/* The kernel's buckets have 32 bits; what is shown of them does not wrap. */
static void test_wrap(void)
{
	struct zfstrace *t = start(4, 2);
	struct slot_data *data = maps_find(t, "slot_data");
	const struct zfstrace_dataset *d;
	static struct world w;
	uint64_t n = 0;

	make_world(&w, "tank", 1);
	do_fsync(&w, true);
	CHECK(datasets_refresh(t, 0) == 0);
	for (int i = 0; i < 3; i++) { /* in both lanes */
		data[1].hist[STAGE_TOTAL].bucket[100] += 1U << 31;
		data[4 + 1].hist[STAGE_TOTAL].bucket[100] += 0x7fffffff;
		data[1].commits++;
		CHECK(datasets_refresh(t, 0) == 0);
	}
	d = find_objset(t, 1);
	for (int i = 0; d && i < ZFSTRACE_HIST_BUCKETS; i++)
		n += d->total.bucket[i];
	CHECK(d && d->total.count == 1 + 3 * 0xffffffffULL && n == d->total.count);
	CHECK(datasets_due(t, 61 * SECONDS) && !datasets_due(t, 59 * SECONDS));
	end(t);
}

/* Counting begins again, long after it was paused. */
static void resume(void)
{
	shim_now += SECONDS;
	resumed = shim_now;
}

/* An fsync that a pause has cut ends later, or has ended unseen: it is not counted again, and what
 * its thread does then is no part of it. */
static void test_cut(void)
{
	struct zfstrace *t = start(8, 1);
	const struct counters *c = maps_find(t, "counters");
	const struct zfstrace_dataset *d;
	static struct world w;

	make_world(&w, "tank", 54);
	fentry_zpl_fsync(NULL, &w.file, 0, LLONG_MAX, 0);
	fentry_zil_commit(NULL, (__u64)&w.zilog, 7);
	resume();
	fentry_zil_commit_return(NULL);
	fentry_zpl_fsync_return(NULL, &w.file, 0, LLONG_MAX, 0, 0);
	CHECK(c->started == 1 && c->finished == 0);
	do_fsync(&w, true);
	fentry_zpl_fsync(NULL, &w.file, 0, LLONG_MAX, 0);
	fentry_zil_commit(NULL, (__u64)&w.zilog, 7);
	resume();
	for (int i = 0; i < 3; i++) { /* O_SYNC writes */
		fentry_zil_commit(NULL, (__u64)&w.zilog, 7);
		fentry_async_to_sync_return(NULL);
		fentry_zil_commit_return(NULL);
	}
	CHECK(c->started == 6 && c->finished == 4 && c->lost_return == 0);
	CHECK(datasets_refresh(t, 0) == 0);
	d = find_objset(t, 54);
	CHECK(d && d->total.count == 4 && d->total.max_ns < SECONDS);
	CHECK(d && d->kinds[KIND_FSYNC] == 1 && d->kinds[KIND_O_SYNC] == 3);
	end(t);
}

/* The return of an fsync was missed. What is next is no part of it: the O_SYNC write of another
 * thread at its address, the fsync of a process that is not traced, or one that is not counted. */
static void test_a_return_that_was_missed(void)
{
	static struct world w;

	for (int next = 0; next < 3; next++) {
		struct zfstrace *t = start(8, 1);
		const struct counters *c = maps_find(t, "counters");

		make_world(&w, "tank", 54);
		((struct trace_config *)(uintptr_t)&config)->pid = 100;
		fentry_zpl_fsync(NULL, &w.file, 0, LLONG_MAX, 0);
		shim_tid += next < 2 ? SHIM_THREADS : 0;
		shim_tgid += next == 1;
		enabled = next < 2;
		if (next)
			do_fsync(&w, true);
		fentry_zil_commit(NULL, (__u64)&w.zilog, 7);
		fentry_zil_commit_return(NULL);
		CHECK(c->lost_return == 1 && c->finished == !next && c->started == 1 + !next);
		shim_tid = shim_tgid = 100;
		end(t);
	}
}

int main(void)
{
	test_stages_sum();
	test_writeback();
	test_stand_ins();
	test_full_index();
	test_unwanted_take_no_room();
	test_slots_come_back(true);
	test_slots_come_back(false);
	test_superblocks_come_back();
	test_no_hurry();
	test_many();
	test_slow_operation();
	test_met_at_once();
	test_met_in_turns();
	test_objset_is_learned_once();
	test_late_cpu();
	test_wrap();
	test_cut();
	test_a_return_that_was_missed();
	return checked("BPF unit tests");
}
