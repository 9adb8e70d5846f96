// SPDX-License-Identifier: BSD-2-Clause
/*
 * Unit tests of the programs that time reads and writes, run as functions, with the part of
 * libzfstrace that reads what they count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "internal.h"
#include "shim.h"
#include "../../tracers/bpf/read.bpf.c"

/* A mounted file system as the programs meet it. */
struct world {
	char pool[ZFSTRACE_POOL_LEN];
	struct dsl_dataset dataset;
	struct objset objset;
	__u64 fs[12]; /* a zfsvfs_t */
	struct super_block sb;
	struct inode inode;
	struct file file;
	struct kiocb kiocb;
};

/* Of a kind with a lock before its cv, and the other way round. */
static __u64 buffer[32];

static void make_world(struct world *w, const char *pool, unsigned int number)
{
	memset(w, 0, sizeof(*w));
	snprintf(w->pool, sizeof(w->pool), "%s", pool);
	w->dataset.ds_object = number;
	w->objset.os_dsl_dataset = &w->dataset;
	w->objset.os_spa = (void *)w->pool;
	w->fs[shim_btf ? 0 : 3] = (__u64)&w->objset;
	w->sb.s_dev = 40 + number;
	w->sb.s_fs_info = w->fs;
	w->inode.i_sb = &w->sb;
	w->file.f_inode = &w->inode;
	w->kiocb.ki_filp = &w->file;
}

static struct zfstrace *start(unsigned int slot_count, unsigned int lanes)
{
	struct zfstrace *t = calloc(1, sizeof(*t));
	struct trace_config *c = (struct trace_config *)(uintptr_t)&config;
	struct io *io = shim_storage(shim_task(), sizeof(*io), 1);

	shim_reset();
	memset(c, 0, sizeof(*c));
	memset(io, 0, sizeof(*io));
	c->slots = slot_count;
	c->lanes = lanes;
	enabled = 1;
	spare_slot = 0;
	shim_cpu = 0;
	shim_index = &slot_index;
	shim_size(&slots, slot_count);
	shim_size(&slot_data, slot_count * lanes);
	shim_size(&counters, 64);
	t->config = *c;
	t->cpus = 64;
	shim_session(t, "read",
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

static void do_read(struct world *w, __s64 bytes, bool wait)
{
	fentry_iter_read(NULL, (__u64)&w->kiocb);
	if (wait)
		fentry_io_wait(NULL, 0, 0);
	fentry_iter_read_return(NULL, (__u64)&w->kiocb, 0, bytes);
}

static void do_write(struct world *w, __s64 bytes, unsigned int waits)
{
	kprobe_iter_write(NULL, (__u64)&w->kiocb);
	for (unsigned int i = 0; i < waits; i++) {
		kprobe_tx_wait(NULL, NULL);
		shim_now += 1000;
		kprobe_tx_waited(NULL, NULL);
	}
	kprobe_iter_write_return(NULL, bytes);
}

static const struct zfstrace_reads *of(const struct zfstrace *t, uint64_t objset)
{
	for (unsigned int i = 1; i < zfstrace_datasets(t); i++)
		if (zfstrace_reads(t, i)->objset == objset)
			return zfstrace_reads(t, i);
	return NULL;
}

static uint64_t ops_of(const struct zfstrace_reads *r, int op)
{
	return r ? r->latency[op].count : 0;
}

static void test_hits_and_misses(void)
{
	struct zfstrace *t = start(8, 2);
	static struct world w;
	const struct zfstrace_reads *r;

	make_world(&w, "tank", 54);
	for (int i = 0; i < 10; i++)
		do_read(&w, 4096, false);
	for (int i = 0; i < 3; i++)
		do_read(&w, 8192, true);
	do_read(&w, 512, false); /* the wait before was that of another read */
	do_read(&w, 0, false);	 /* the end of the file */
	do_read(&w, -5, true);
	CHECK(datasets_refresh(t, 0) == 0);
	r = of(t, 54);
	CHECK(r && strcmp(r->pool, "tank") == 0 && r->dev_minor == 94 && !r->rest);
	CHECK(ops_of(r, READ_HIT) == 11 && r->bytes[READ_HIT] == 10 * 4096 + 512);
	CHECK(ops_of(r, READ_MISS) == 3 && r->bytes[READ_MISS] == 3 * 8192);
	CHECK(ops_of(r, READ_WRITE) == 0 && r->errors == 1 && r->held == 0);
	CHECK(r && r->latency[READ_HIT].max_ns == 100 && r->latency[READ_HIT].sum_ns == 11 * 100);
	CHECK(zfstrace_dataset(t, 0) == NULL && zfstrace_reads(t, 2) == NULL);
	end(t);
}

/* A thread that waits for a buffer has its cv right after its lock; one that waits for a range or
 * a transaction has not. */
static void test_whose_cv(void)
{
	struct zfstrace *t = start(8, 1);
	const __u64 lock = (__u64)&buffer[4];
	const __u64 cvs[] = { (__u64)&buffer[14], (__u64)&buffer[0], lock + 4096 };
	static struct world w;

	make_world(&w, "tank", 1);
	for (int i = 0; i < 3; i++) {
		fentry_iter_read(NULL, (__u64)&w.kiocb);
		fentry_cv_wait(NULL, cvs[i], lock);
		fentry_iter_read_return(NULL, (__u64)&w.kiocb, 0, 1);
	}
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(ops_of(of(t, 1), READ_MISS) == 1 && ops_of(of(t, 1), READ_HIT) == 2);
	end(t);
}

static void test_writes_that_are_held_up(void)
{
	struct zfstrace *t = start(8, 1);
	static struct world w;
	const struct zfstrace_reads *r;

	make_world(&w, "tank", 1);
	do_write(&w, 100, 0);
	do_write(&w, 100, 2);
	kprobe_tx_wait(NULL, NULL); /* not in a write */
	kprobe_tx_waited(NULL, NULL);
	do_write(&w, 100, 0);
	CHECK(datasets_refresh(t, 0) == 0);
	r = of(t, 1);
	CHECK(ops_of(r, READ_WRITE) == 3 && r->bytes[READ_WRITE] == 300);
	CHECK(r && r->held == 1 && r->held_ns == 2 * 1100);
	CHECK(r && r->latency[READ_WRITE].max_ns > r->held_ns);
	end(t);
}

/* The thread remembers its dataset: a hit does not look for it. */
static void test_the_dataset_is_remembered(void)
{
	struct zfstrace *t = start(8, 1);
	static struct world w, next;

	make_world(&w, "tank", 1);
	make_world(&next, "tank", 2);
	do_read(&w, 1, false);
	shim_index_looks = 0;
	for (int i = 0; i < 20; i++)
		do_read(&w, 1, false);
	CHECK(shim_index_looks == 0);
	do_read(&next, 1, false);
	do_read(&w, 1, false);
	CHECK(shim_index_looks == 2);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(ops_of(of(t, 1), READ_HIT) == 22 && ops_of(of(t, 2), READ_HIT) == 1);
	end(t);
}

/* The superblock of a file system that is gone is used again. */
static void test_unmounts(bool btf)
{
	struct zfstrace *t;
	static struct world w;
	uint64_t now = 1000000000;

	shim_btf = btf;
	off_z_os = 0;
	t = start(3, 1);
	for (unsigned int i = 0; i < 50; i++) {
		make_world(&w, "tank", i + 1);
		for (unsigned int k = 0; k <= i % 5; k++)
			do_read(&w, 1, false);
		fentry_kill_sb(NULL, (__u64)&w.sb);
		CHECK(datasets_due(t, now));
		for (int k = 0; k < 2; k++, now += 1000000000)
			CHECK(datasets_refresh(t, now) == 0);
	}
	CHECK(zfstrace_datasets(t) == 51 && ops_of(zfstrace_reads(t, 0), READ_HIT) == 0);
	for (unsigned int i = 0; i < 50; i++) {
		const struct zfstrace_reads *r = zfstrace_reads(t, i + 1);

		CHECK(r && ops_of(r, READ_HIT) == 1 + i % 5 && strcmp(r->pool, "tank") == 0);
		CHECK(r && r->objset == (btf ? i + 1 : 0) && r->dev_minor == 41 + i);
	}
	shim_btf = 1;
	end(t);
}

/* What finds no room is summed, unless only one pool is wanted. */
static void test_no_room(void)
{
	struct zfstrace *t = start(2, 1);
	static struct world w[3];

	for (unsigned int i = 0; i < 3; i++) {
		make_world(&w[i], "tank", i + 1);
		do_read(&w[i], 1, false);
		do_read(&w[i], 1, true);
	}
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(ops_of(of(t, 1), READ_HIT) == 1 && !of(t, 2) && zfstrace_reads(t, 0)->rest);
	CHECK(ops_of(zfstrace_reads(t, 0), READ_HIT) == 2);
	CHECK(ops_of(zfstrace_reads(t, 0), READ_MISS) == 2);
	end(t);
}

static void test_other_pools_take_no_room(void)
{
	struct zfstrace *t = start(2, 1);
	static struct world w, other;

	strcpy((char *)(uintptr_t)config.pool, "tank");
	make_world(&w, "tank", 1);
	make_world(&other, "side", 2);
	do_read(&other, 1, false);
	do_read(&other, 1, false);
	do_read(&w, 1, false);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(ops_of(of(t, 1), READ_HIT) == 1 && zfstrace_datasets(t) == 2);
	end(t);
}

/* A return that was missed, and one without a beginning. */
static void test_missed_returns(void)
{
	struct zfstrace *t = start(4, 1);
	const struct counters *c = maps_find(t, "counters");
	static struct world w;

	make_world(&w, "tank", 1);
	fentry_iter_read(NULL, (__u64)&w.kiocb);
	do_write(&w, 1, 0);
	fentry_iter_read_return(NULL, (__u64)&w.kiocb, 0, 1);
	CHECK(c->started == 2 && c->finished == 1 && c->lost_return == 1);
	CHECK(datasets_refresh(t, 0) == 0);
	CHECK(ops_of(of(t, 1), READ_WRITE) == 1 && ops_of(of(t, 1), READ_HIT) == 0);
	end(t);
}

int main(void)
{
	test_hits_and_misses();
	test_whose_cv();
	test_writes_that_are_held_up();
	test_the_dataset_is_remembered();
	test_unmounts(true);
	test_unmounts(false);
	test_no_room();
	test_other_pools_take_no_room();
	test_missed_returns();
	return checked("BPF unit tests of reads");
}
