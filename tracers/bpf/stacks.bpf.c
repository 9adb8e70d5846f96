// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Sums kernel stacks: where threads sleep and for how long (off-CPU), what
 * wakes them (wakeup), or where they run (on-CPU, sampled). The maps of an
 * fsync session have the threads that are in an fsync, their stages, and the
 * progress of their log blocks.
 *
 * sched_switch runs with the lock of a run queue held: nothing here may
 * allocate, so every map but op_storage (only looked up) is preallocated.
 *
 * A walk of a stack takes longer than all else. It is done when a sleep ends, so that it can depend
 * on the duration: of the time that the threads of a place (places.bpf.h) sleep in fsyncs, put end
 * to end, each sample_every() has one sample, which stands for that much. So long sleeps are all
 * seen, the sum is right to within one sample for each place, and walks take a bounded share of a
 * thread's time.
 */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "stacks.h"
#include "config.bpf.h"
#include "op.bpf.h"
#include "pool.bpf.h"
#include "probe.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MODE(what) (config.mode & ZFSTRACE_STACKS_##what)
#define TASK_DEAD 0x80 /* include/linux/sched.h */
#define SAMPLE_NS 1000000ULL
#define WALKS_SHARE 256			/* at least so many times as long as a walk, */
#define SAMPLE_MOST_NS (32 * SAMPLE_NS) /* but no longer than this */

/* What a walk took, about. One that was held up counts as the longest that makes a difference. */
__u64 walk_ns;

/* The sleepers that are in no fsync; the others are in their struct op. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32); /* tid */
	__type(value, struct sleeper);
} sleepers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct stack_key);
	__type(value, struct stack_sum);
} sums SEC(".maps");

/* Not a BPF_MAP_TYPE_STACK_TRACE, which has one bucket for each value of a
 * short hash: of 1,000 stacks in 16,384 buckets 30 would be lost. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct stack);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack);
} stack_scratch SEC(".maps");

struct pool_text {
	char name[ZFSTRACE_POOL_LEN];
};

/* By spa; names are kept for pools that are gone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, struct pool_text);
} pools SEC(".maps");

/* Threads between txg__syncing and txg__synced, by tid: the spa. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} sync_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_losses);
} stack_losses SEC(".maps");

#define LOST(field, n)                                                                             \
	do {                                                                                       \
		__u32 zero = 0;                                                                    \
		struct stack_losses *l = bpf_map_lookup_elem(&stack_losses, &zero);                \
		if (l)                                                                             \
			__sync_fetch_and_add(&l->field, n);                                        \
	} while (0)

/* The hash of the stack in a scratch, of that many bytes; `otherwise` if there is none. 0 means
 * that this, or lack of room, was counted as a loss. */
static __always_inline __u64 keep_stack(struct stack *s, long bytes, __u64 otherwise)
{
	__u64 hash = 0xcbf29ce484222325ULL;

	if (bytes <= 0) {
		if (!otherwise)
			LOST(no_stack, 1);
		return otherwise;
	}
	s->n = (__u64)bytes / sizeof(s->ip[0]);
	for (__u32 i = 0; i < STACK_DEPTH; i++) {
		if (i >= s->n)
			break;
		hash = (hash ^ s->ip[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	if (bpf_map_lookup_elem(&stacks, &hash))
		return hash;
	if (bpf_map_update_elem(&stacks, &hash, s, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&stacks, &hash)) {
		LOST(stacks_full, 1);
		return 0;
	}
	return hash;
}

/* The current stack. */
static __always_inline __u64 take_stack(void *ctx, __u64 otherwise)
{
	__u32 zero = 0;
	struct stack *s = bpf_map_lookup_elem(&stack_scratch, &zero);

	return s ? keep_stack(s, bpf_get_stack(ctx, s->ip, sizeof(s->ip), 0), otherwise) : 0;
}

/* The stack of a thread that is off its CPU; without the functions of the scheduler, which the
 * kernel leaves out. */
static __always_inline __u64 take_sleepers_stack(struct task_struct *task, __u64 now)
{
	__u64 hash, took, was = walk_ns;
	__u32 zero = 0;
	struct stack *s = bpf_map_lookup_elem(&stack_scratch, &zero);

	if (!s)
		return 0;
	hash = keep_stack(s, bpf_get_task_stack(task, s->ip, sizeof(s->ip), 0), 0);
	took = bpf_ktime_get_ns() - now;
	if (took > SAMPLE_MOST_NS / WALKS_SHARE)
		took = SAMPLE_MOST_NS / WALKS_SHARE;
	walk_ns = was ? (15 * was + took) / 16 : took;
	return hash;
}

/* ---- threads ------------------------------------------------------------ */

/* The operation that a thread is in, or NULL. */
static __always_inline struct op *op_in(struct task_struct *task)
{
	struct op *op = MODE(OF_TXG_SYNC) ? 0 : op_of((__u64)task, task);

	return op && op->active && op->tid == (__u32)task->pid ? op : 0;
}

/*
 * Whether a thread is to be recorded; fills in its pool and its stage (CUR_WAIT
 * stands for those of a wait).
 */
static __always_inline bool is_target(struct task_struct *task, struct op *op,
				      struct stack_key *key)
{
	__u32 tid = task->pid;

	if (op) {
		key->stage = op->cur;
		if (op->zilog)
			key->spa = zilog_spa(op->zilog);
		else if (op->file)
			key->dev = file_dev(op->file);
		return !key->spa || pool_wanted(key->spa);
	}
	if (MODE(OF_FSYNC) || !tid)
		return false;
	if (MODE(OF_PID) && (__u32)task->tgid != config.pid)
		return false;
	if (!MODE(OF_PID) && task->flags & PF_KTHREAD) {
		__u64 *spa = bpf_map_lookup_elem(&sync_threads, &tid);

		if (spa) {
			key->spa = *spa;
			key->stage = ZFSTRACE_STAGE_TXG_SYNC;
			return pool_wanted(key->spa);
		}
	}
	key->stage = ZFSTRACE_STAGE_OUTSIDE;
	return !MODE(OF_TXG_SYNC) && !config.pool[0];
}

/* The stack of a program has no room for it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pool_text);
} pool_scratch SEC(".maps");

static __always_inline void learn_pool(__u64 spa)
{
	struct pool_text *t;
	__u32 zero = 0;

	if (!spa || bpf_map_lookup_elem(&pools, &spa))
		return;
	t = bpf_map_lookup_elem(&pool_scratch, &zero);
	if (t && bpf_probe_read_kernel_str(t->name, sizeof(t->name), (void *)spa) > 0)
		bpf_map_update_elem(&pools, &spa, t, BPF_NOEXIST);
}

/* ---- sums --------------------------------------------------------------- */

static __noinline void add(struct stack_key *key, __u64 ns)
{
	struct stack_sum fresh = { .ns = ns, .count = 1 }, *sum;

	sum = bpf_map_lookup_elem(&sums, key);
	if (!sum) {
		if (!bpf_map_update_elem(&sums, key, &fresh, BPF_NOEXIST))
			return;
		sum = bpf_map_lookup_elem(&sums, key); /* another CPU was first */
	}
	if (!sum) {
		LOST(sums_full, 1);
		LOST(lost_ns, ns);
		return;
	}
	__sync_fetch_and_add(&sum->ns, ns);
	__sync_fetch_and_add(&sum->count, 1);
}

static __always_inline void add_stage(struct stack_key *key, __u16 stage, __u64 ns)
{
	key->stage = stage;
	if (ns)
		add(key, ns);
}

/* Adds a span of a wait for a log block, split as in end_wait() of fsync.bpf.c; its sample stands
 * for `ns`. */
static __always_inline void add_wait(struct stack_key *key, const struct op *op, __u64 from,
				     __u64 now, __u64 ns)
{
	/* what each ns stands for, in 1/65536: two times of 4 s have a product of over 64 bits */
	__u64 each = (ns << 16) / (now - from ? now - from : 1);
	struct lwb_times t;

	if (!op->lwb) {
		add_stage(key, STAGE_TXG_FALLBACK, ns);
	} else if (!lwb_cut(op, from, now, op->since, &t)) {
		add_stage(key, STAGE_BATCH_WAIT, ns);
	} else {
		add_stage(key, STAGE_BATCH_WAIT, (t.issued - from) * each >> 16);
		add_stage(key, STAGE_LOG_WRITE, (t.written - t.issued) * each >> 16);
		add_stage(key, STAGE_FLUSH, (t.flushed - t.written) * each >> 16);
		add_stage(key, STAGE_WAKEUP, (now - t.flushed) * each >> 16);
	}
}

static __always_inline __u64 sample_every(void)
{
	__u64 ns = walk_ns * WALKS_SHARE;

	return ns > SAMPLE_NS ? ns : SAMPLE_NS;
}

/* What the sample of a sleep in an fsync stands for; 0: it is none. */
static __always_inline __u64 sampled(struct op *op, __u64 ns)
{
	__u64 every = sample_every(), samples = (op->unsampled_ns + ns) / every;

	op->unsampled_ns += ns - samples * every;
	return samples * every;
}

/* ---- probes ------------------------------------------------------------- */

/* A thread in an fsync begins to sleep, or ends it (now is 0). */
static __always_inline void op_sleeps(struct op *op, __u64 now)
{
	LOST(asleep, now ? 1 : -1);
	LOST(asleep_since, now - op->sleep.since);
	op->sleep.since = now;
}

/* These two are called at every switch of every thread: with OF_FSYNC, almost
 * all are dismissed by one check for an operation. */
static __always_inline void switched_in(struct task_struct *task)
{
	struct op *op = op_in(task);
	__u64 now, since, ns;
	struct stack_key key;
	struct sleeper *s;
	__u32 tid;

	if (MODE(OF_FSYNC) && !op)
		return;
	tid = task->pid;
	s = op ? &op->sleep : bpf_map_lookup_elem(&sleepers, &tid);
	if (!s || !s->since)
		return;
	now = bpf_ktime_get_ns();
	since = s->since;
	ns = op && !MODE(WAKEUP) ? sampled(op, now - since) : now - since;
	__builtin_memset(&key, 0, sizeof(key));
	if (ns && is_target(task, op, &key)) {
		learn_pool(key.spa);
		key.stack = take_sleepers_stack(task, now);
		key.flags = s->flags;
		if (s->flags & STACK_WOKEN) {
			key.waker = s->waker;
			__builtin_memcpy(key.waker_comm, s->waker_comm, ZFSTRACE_COMM_LEN);
		}
		bpf_probe_read_kernel(key.comm, ZFSTRACE_COMM_LEN, task->comm);
		if (op && op->cur == CUR_WAIT)
			add_wait(&key, op, since, now, ns);
		else
			add(&key, ns);
	}
	if (op)
		op_sleeps(op, 0);
	else
		bpf_map_delete_elem(&sleepers, &tid);
}

static __always_inline void switched_out(struct task_struct *task, __u32 state)
{
	struct op *op = op_in(task);
	struct stack_key key;
	struct sleeper s;
	__u32 tid;

	if ((MODE(OF_FSYNC) && !op) || state & TASK_DEAD)
		return;
	__builtin_memset(&s, 0, sizeof(s));
	s.flags = state ? 0 : STACK_PREEMPTED;
	if (op) {
		op->sleep.flags = s.flags;
		op_sleeps(op, bpf_ktime_get_ns());
		return;
	}
	__builtin_memset(&key, 0, sizeof(key));
	if (!is_target(task, op, &key))
		return;
	tid = task->pid;
	s.since = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&sleepers, &tid, &s, BPF_ANY))
		LOST(sleepers_full, 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(tp_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	if (!enabled)
		return 0;
	switched_in(next);
	switched_out(prev, preempt ? 0 : prev_state);
	return 0;
}

/* sched_waking is in the context of the waker; sched_wakeup may be on the CPU
 * that will run the thread. */
SEC("tp_btf/sched_waking")
int BPF_PROG(tp_sched_waking, struct task_struct *task)
{
	__u32 tid = task->pid;
	struct sleeper *s;
	struct op *op;

	if (!enabled)
		return 0;
	op = op_in(task);
	if (MODE(OF_FSYNC) && !op)
		return 0;
	s = op ? &op->sleep : bpf_map_lookup_elem(&sleepers, &tid);
	if (!s || !s->since || s->flags & STACK_PREEMPTED)
		return 0;
	s->waker = take_stack(ctx, 0);
	bpf_get_current_comm(s->waker_comm, sizeof(s->waker_comm));
	s->flags |= STACK_WOKEN;
	return 0;
}

/* The current stage of a wait, by the progress of its log block. */
static __always_inline __u16 wait_stage(const struct op *op, __u64 now)
{
	struct lwb_times t;

	if (!op->lwb)
		return STAGE_TXG_FALLBACK;
	if (!lwb_cut(op, op->since, now, op->since, &t))
		return STAGE_BATCH_WAIT;
	return t.flushed < now ? STAGE_WAKEUP : t.written < now ? STAGE_FLUSH : STAGE_LOG_WRITE;
}

SEC("perf_event")
int perf_sample(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct stack_key key = {};
	struct op *op = op_in(task);

	if (!enabled || !is_target(task, op, &key))
		return 0;
	learn_pool(key.spa);
	if (op && op->cur == CUR_WAIT)
		key.stage = wait_stage(op, bpf_ktime_get_ns());
	key.stack = take_stack(ctx, task->flags & PF_KTHREAD ? 0 : STACK_IN_USER);
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	add(&key, 0);
	return 0;
}

static __always_inline void on_txg_syncing(__u64 dp)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 spa = pool_spa(dp);

	bpf_map_update_elem(&sync_threads, &tid, &spa, BPF_ANY);
}
AT_ENTRY(txg_syncing, (__u64 dp), (dp))

static __always_inline void on_txg_synced(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&sync_threads, &tid);
}
AT_ENTRY(txg_synced, (__u64 dp), ())
