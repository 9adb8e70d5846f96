/* SPDX-License-Identifier: BSD-2-Clause */
/* The fsync tracer's programs as functions, and datasets, as far as they see these. */
#ifndef FSYNC_WORLD_H
#define FSYNC_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "internal.h"
#include "shim.h"
#undef LLONG_MAX
#include "../../tracers/bpf/fsync.bpf.c"

#define SECONDS 1000000000ULL
/* of the file that do_fsync() syncs */
#define FILE_OBJECT 7

/* A dataset as the programs meet it; its addresses are its identity. Without BTF zl_spa is
 * found by what it points to, and the object set in its log block. */
struct world {
	char pool[ZFSTRACE_POOL_LEN];
	__u64 dp[2];
	union {
		struct zilog zilog;
		__u64 words[64];
	};
	struct objset objset;
	struct dsl_dataset dataset;
	struct super_block sb;
	struct inode inode;
	struct address_space mapping;
	struct file file;
	__u64 lwb[32];
};

static void make_world(struct world *w, const char *pool, unsigned int number)
{
	memset(w, 0, sizeof(*w));
	snprintf(w->pool, sizeof(w->pool), "%s", pool);
	w->dataset.ds_object = number;
	w->objset.os_dsl_dataset = &w->dataset;
	if (shim_btf) {
		w->zilog.zl_spa = w->pool;
		w->zilog.zl_os = &w->objset;
	} else {
		w->dp[0] = (__u64)w->pool;
		w->words[5] = (__u64)w->dp;
		w->words[6] = (__u64)w->pool;
	}
	w->sb.s_dev = 40 + number;
	w->inode.i_sb = &w->sb;
	w->inode.i_ino = FILE_OBJECT;
	w->file.f_inode = &w->inode;
	w->file.f_mapping = &w->mapping;
	w->lwb[0] = (__u64)&w->zilog;
	w->lwb[15] = number;
}

static struct zfstrace *start(unsigned int slot_count, unsigned int lanes)
{
	struct zfstrace *t = calloc(1, sizeof(*t));
	struct trace_config *c = (struct trace_config *)(uintptr_t)&config;

	shim_reset();
	memset(c, 0, sizeof(*c));
	c->slots = slot_count;
	c->lanes = lanes;
	enabled = 1;
	resumed = 0;
	spare_slot = 0;
	nameless = 0;
	shim_cpu = 0;
	shim_size(&slots, slot_count);
	shim_size(&slot_data, slot_count * lanes);
	shim_size(&counters, 64);
	t->config = *c;
	t->cpus = 64;
	shim_session(t, "fsync",
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

/* An fsync as far as the programs see it. */
static void do_fsync(struct world *w, bool commit)
{
	fentry_zpl_fsync(NULL, &w->file, 0, LLONG_MAX, 0);
	if (commit) {
		fentry_zil_commit(NULL, (__u64)&w->zilog, FILE_OBJECT);
		fentry_async_to_sync_return(NULL);
		fentry_add_block(NULL, (__u64)w->lwb, (__u64)w->lwb + 8);
		fentry_zil_commit_return(NULL);
	}
	fentry_zpl_fsync_return(NULL, &w->file, 0, LLONG_MAX, 0, 0);
}

static void unmount(struct world *w)
{
	fentry_zil_free(NULL, (__u64)&w->zilog);
	fentry_kill_sb(NULL, (__u64)&w->sb);
}

static const struct zfstrace_dataset *find_objset(const struct zfstrace *t, uint64_t objset)
{
	for (unsigned int i = 1; i < zfstrace_datasets(t); i++)
		if (zfstrace_dataset(t, i)->objset == objset)
			return zfstrace_dataset(t, i);
	return NULL;
}

#endif
