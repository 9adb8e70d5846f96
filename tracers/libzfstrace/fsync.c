// SPDX-License-Identifier: BSD-2-Clause
/* The tracer of fsyncs: its names, and slow operations. */
#include <errno.h>
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

static bool is_fsync(const struct zfstrace *t)
{
	return t->def && strcmp(t->def->name, "fsync") == 0;
}

const char *zfstrace_stage_name(unsigned int i)
{
	return i < STAGE_COUNT ? stage_names[i] : NULL;
}

const char *zfstrace_kind_name(unsigned int i)
{
	return i < KIND_COUNT ? kind_names[i] : NULL;
}

const struct zfstrace_dataset *zfstrace_dataset(const struct zfstrace *t, unsigned int i)
{
	return is_fsync(t) ? datasets_sums(t, i) : NULL;
}

/* ---- slow operations ---------------------------------------------------- */

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
		.dataset = datasets_index(call->t, e->slot, e->life),
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

	if (!is_fsync(t))
		return fail(t, -EINVAL, "cannot wait for slow operations: this session has none");
	return zfstrace_events(t, timeout_ms, on_slow, &call);
}
