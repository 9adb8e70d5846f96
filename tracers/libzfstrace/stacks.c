// SPDX-License-Identifier: BSD-2-Clause
/* Reads the sums of the tracer "stacks". */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "../bpf/stacks.h"
#include "internal.h"

struct reading {
	int sums, stacks, pools, sleepers; /* maps */
	struct stack frames, waker;
};

static uint32_t read_stack(const struct reading *r, unsigned long long hash, struct stack *s)
{
	if (hash <= STACK_IN_USER || bpf_map_lookup_elem(r->stacks, &hash, s))
		return 0;
	return (uint32_t)(s->n < STACK_DEPTH ? s->n : STACK_DEPTH);
}

static void hand_on(struct reading *r, const struct stack_key *key, const struct stack_sum *sum,
		    zfstrace_stack_fn fn, void *ctx)
{
	struct zfstrace_stack s = {
		.dev_major = dev_major(key->dev),
		.dev_minor = dev_minor(key->dev),
		.stage = key->stage,
		.preempted = key->flags & STACK_PREEMPTED,
		.woken = key->flags & STACK_WOKEN,
		.in_user = key->stack == STACK_IN_USER,
		.ns = sum->ns,
		.count = sum->count,
		.frame_count = read_stack(r, key->stack, &r->frames),
		.waker_count = read_stack(r, key->waker, &r->waker),
		.frames = (const uint64_t *)r->frames.ip,
		.waker = (const uint64_t *)r->waker.ip,
	};

	if (key->spa)
		(void)bpf_map_lookup_elem(r->pools, &key->spa, s.pool);
	memcpy(s.comm, key->comm, sizeof(s.comm) - 1);
	memcpy(s.waker_comm, key->waker_comm, sizeof(s.waker_comm) - 1);
	fn(&s, ctx);
}

static int read_sums(struct reading *r, zfstrace_stack_fn fn, void *ctx)
{
	struct stack_key key, *last = NULL;
	struct stack_sum sum;

	while (!bpf_map_get_next_key(r->sums, last, &key)) {
		if (!bpf_map_lookup_elem(r->sums, &key, &sum))
			hand_on(r, &key, &sum, fn, ctx);
		last = &key;
	}
	return errno == ENOENT ? 0 : -errno;
}

static void count_asleep(const struct reading *r, const struct stack_losses *kernel,
			 struct zfstrace_stack_losses *l)
{
	uint64_t since = kernel->asleep_since;
	struct timespec now;
	struct sleeper s;
	uint32_t tid, *last = NULL;

	clock_gettime(CLOCK_MONOTONIC, &now);
	l->asleep = kernel->asleep;
	while (!bpf_map_get_next_key(r->sleepers, last, &tid)) {
		if (!bpf_map_lookup_elem(r->sleepers, &tid, &s)) {
			l->asleep++;
			since += s.since;
		}
		last = &tid;
	}
	l->asleep_ns =
		l->asleep * ((uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec) - since;
}

static int read_losses(struct zfstrace *t, const struct reading *r, struct zfstrace_stack_losses *l)
{
	const struct stack_losses *kernel = maps_find(t, "stack_losses");
	int err = zfstrace_refresh(t);

	if (err)
		return err;
	*l = (struct zfstrace_stack_losses) {
		.no_stack = kernel->no_stack,
		.stacks_full = kernel->stacks_full,
		.sums_full = kernel->sums_full,
		.lost_ns = kernel->lost_ns,
		.sleepers_full = kernel->sleepers_full,
		.skipped = t->skipped + t->missed_entries + t->missed_returns,
	};
	count_asleep(r, kernel, l);
	if (t->base) {
		struct zfstrace_losses base;

		err = zfstrace_refresh(t->base);
		if (err)
			return fail(t, err, "%s", zfstrace_error(t->base));
		zfstrace_losses(t->base, &base);
		l->fsyncs = base.start + base.missed;
	}
	return 0;
}

int zfstrace_stacks(struct zfstrace *t, zfstrace_stack_fn fn, void *ctx,
		    struct zfstrace_stack_losses *losses)
{
	struct reading r = {
		.sums = maps_fd(t, "sums"),
		.stacks = maps_fd(t, "stacks"),
		.pools = maps_fd(t, "pools"),
		.sleepers = maps_fd(t, "sleepers"),
	};
	int err;

	if (!t->attached || r.sums < 0)
		return fail(t, -EINVAL, "cannot read stacks: this session records none");
	/* the maps must not change while they are read, and reading keeps kprobes from running */
	t->config.lazy = false;
	if (t->base)
		t->base->config.lazy = false;
	err = session_enable(t, 0);
	if (!err)
		err = read_sums(&r, fn, ctx);
	if (err)
		return fail(t, err, "cannot read the stacks: %s", strerror(-err));
	return read_losses(t, &r, losses);
}
