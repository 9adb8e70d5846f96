// SPDX-License-Identifier: BSD-2-Clause
/*
 * Unit tests of libzfstrace's pure parts, built with ASan and UBSan: the
 * histogram, and the parsers of kernel text and BTF, which are fed recorded
 * samples (tests/data) and damaged copies of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bpf/dirty_total.h"
#include "../bpf/stacks.h"
#include "check.h"
#include "internal.h"

/* xorshift64: the same numbers on every machine. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void test_hist_index(void)
{
	uint64_t state = 20261121;

	for (unsigned int i = 0; i < ZFSTRACE_HIST_BUCKETS; i++) {
		CHECK(zfstrace_hist_index(zfstrace_hist_low(i)) == i);
		CHECK(zfstrace_hist_index(zfstrace_hist_low(i + 1) - 1) == i);
	}
	CHECK(zfstrace_hist_index(UINT64_MAX) == ZFSTRACE_HIST_BUCKETS - 1);
	for (int i = 0; i < 1000000; i++) {
		uint64_t v = next_random(&state) >> (22 + next_random(&state) % 42);
		unsigned int b = zfstrace_hist_index(v);
		uint64_t low = zfstrace_hist_low(b);

		CHECK(low <= v && v < zfstrace_hist_low(b + 1));
		/* the promise: a bucket is at most 1/32 of its value wide */
		CHECK(v < 64 || (zfstrace_hist_low(b + 1) - low) * 32 <= low);
	}
}

static void test_hist_quantile(void)
{
	struct zfstrace_hist h = {};

	CHECK(zfstrace_hist_quantile(&h, 500) == 0);
	for (uint64_t v = 1; v <= 1000; v++) {
		h.bucket[zfstrace_hist_index(v * 1000)]++;
		h.count++;
		h.sum_ns += v * 1000;
		h.max_ns = v * 1000;
	}
	for (unsigned int permille = 0; permille <= 1000; permille++) {
		uint64_t exact = permille ? permille * 1000 : 1000;
		uint64_t q = zfstrace_hist_quantile(&h, permille);

		CHECK(q <= h.max_ns);
		CHECK(q + exact / 30 + 1 >= exact && q <= exact + exact / 30 + 1);
	}
	CHECK(zfstrace_hist_quantile(&h, 1000) == 1000000);
}

static FILE *text(const char *s)
{
	return fmemopen((void *)(uintptr_t)s, strlen(s), "r");
}

static void test_symbols(void)
{
	static const char *const names[] = { "zil_commit", NULL, "zil_free", "zpl_fsync", "vfs" };
	bool found[ARRAY_SIZE(names)] = {};
	FILE *f = text("ffffffffc0a01230 T zil_commit\t[zfs]\n"
		       "0000000000000000 t zpl_fsync\t[zfs]\n"
		       "ffffffff81000000 T zil_free\n"	 /* not a module's */
		       "ffffffffc0a01230 d vfs\t[zfs]\n" /* not a function */
		       "\n\t[zfs]\nzil_free\t[zfs]\n x\t[spl]");

	CHECK(f && symbols_find(f, names, found, ARRAY_SIZE(names)) == 2);
	CHECK(found[0] && !found[1] && !found[2] && found[3] && !found[4]);
	fclose(f);
}

static void test_kallsyms_sample(const char *path, bool flags_expected)
{
	static const char *const names[] = { "zil_commit", "zil_commit_flags",
					     "zil_commit_writer" };
	bool found[ARRAY_SIZE(names)] = {};
	FILE *f = fopen(path, "r");

	CHECK(f);
	if (!f)
		return;
	(void)symbols_find(f, names, found, ARRAY_SIZE(names));
	CHECK(found[0]);
	CHECK(found[1] == flags_expected);
	CHECK(!found[2]); /* inlined in every build */
	fclose(f);
}

/* BTF by hand: an int, a function prototype and two functions. */
static size_t make_btf(char *out, uint32_t base_strings)
{
	static const char strings[] = "\0int\0zil_commit\0zil_free";
	struct btf_header h = { .magic = BTF_MAGIC, .version = 1, .hdr_len = sizeof(h) };
	struct btf_type types[] = {
		{ .name_off = 1, .info = BTF_KIND_FUNC_PROTO << 24 },
		{ .name_off = 5, .info = BTF_KIND_FUNC << 24, { .type = 1 } },
		{ .name_off = 16, .info = BTF_KIND_TYPEDEF << 24, { .type = 1 } },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(types); i++)
		types[i].name_off += base_strings;
	h.type_len = sizeof(types);
	h.str_off = sizeof(types);
	h.str_len = sizeof(strings);
	memcpy(out, &h, sizeof(h));
	memcpy(out + sizeof(h), types, sizeof(types));
	memcpy(out + sizeof(h) + sizeof(types), strings, sizeof(strings));
	return sizeof(h) + sizeof(types) + sizeof(strings);
}

#define FUNCTIONS (1U << BTF_KIND_FUNC)
#define FUNCTIONS_AND_TYPEDEFS (FUNCTIONS | 1U << BTF_KIND_TYPEDEF)

/* Ids count from 1, or go on after those of the base. */
static void test_btf(void)
{
	static const char *const names[] = { "zil_commit", "zil_free", NULL };
	struct btf_base bases[] = { { 0, 0 }, { 4711, 99 } }, own;
	uint64_t state = 42;
	char btf[256];

	for (unsigned int b = 0; b < ARRAY_SIZE(bases); b++) {
		size_t size = make_btf(btf, bases[b].strings);
		uint32_t ids[3] = {};

		CHECK(btf_find_names(btf, size, bases[b], FUNCTIONS, names, ids, 3, &own) == 1);
		CHECK(ids[0] == bases[b].types + 2 && !ids[1]); /* zil_free is a typedef there */
		CHECK(own.types == bases[b].types + 3 && own.strings == 25);
		CHECK(btf_find_names(btf, size, bases[b], FUNCTIONS_AND_TYPEDEFS, names, ids, 3,
				     &own) == 1);
		CHECK(ids[1] == bases[b].types + 3 && !ids[2]);
	}
	for (int i = 0; i < 200000; i++) { /* damaged: no crash, no endless loop */
		size_t size = make_btf(btf, 0), cut = next_random(&state) % (size + 1);
		char *copy = malloc(cut + 1); /* exact size, for ASan */
		uint32_t ids[3] = {};

		memcpy(copy, btf, cut);
		for (int k = 0; cut && k < 3; k++)
			copy[next_random(&state) % cut] = (char)next_random(&state);
		(void)btf_find_names(copy, cut, bases[0], FUNCTIONS, names, ids, 3, &own);
		free(copy);
	}
}

static void test_kprobe_event_lines(void)
{
	char event[64], program[64] = "";
	uint64_t missed = 0;
	long pid = 0;

	CHECK(kprobe_event_pid("r4096:zfstune_77/zt77_1_zil_commit_return zil_commit", &pid, event,
			       sizeof(event)));
	CHECK(pid == 77 && strcmp(event, "zt77_1_zil_commit_return") == 0);
	CHECK(kprobe_event_pid("p:zfstune_78/zt78_1_io_start vdev_disk_io_start", &pid, event,
			       sizeof(event)));
	CHECK(pid == 78 && strcmp(event, "zt78_1_io_start") == 0);
	CHECK(!kprobe_event_pid("p:kprobes/mine vfs_read", &pid, event, sizeof(event)));
	CHECK(!kprobe_event_pid("r:zfstune_x/a b", &pid, event, sizeof(event)));
	CHECK(!kprobe_event_pid("r:zfstune_7/", &pid, event, sizeof(event)));
	CHECK(!kprobe_event_pid("r:zfstune_7/toolong", &pid, event, 4));
	CHECK(!kprobe_event_pid("", &pid, event, sizeof(event)));
	CHECK(kprobe_profile_missed("  zt77_3_zil_commit_return    1234     5\n", 77, 3, program,
				    &missed));
	CHECK(missed == 5 && strcmp(program, "zil_commit_return") == 0);
	CHECK(!kprobe_profile_missed("  zt77_3_zil_commit_return    1234     5\n", 7, 3, program,
				     &missed));
	CHECK(!kprobe_profile_missed("  zt77_31_zil_commit_return    1234     5\n", 77, 3, program,
				     &missed));
	CHECK(!kprobe_profile_missed("  zt77_3_x 12\n", 77, 3, program, &missed));
	CHECK(!kprobe_profile_missed("", 77, 3, program, &missed));
}

/* Misses of entries are losses of their own; of those of returns the threads that came by
 * again have noticed some. */
static void test_misses(void)
{
	struct zfstrace t = { .counters.lost_return = 3 };
	struct zfstrace_losses l;

	for (unsigned int i = 0; i < 2; i++) {
		const struct tracer_def *d = tracer_find(i ? "fsync" : "device");

		for (unsigned int j = 0; j < d->probe_count; j++)
			*probes_missed(&t, &d->probes[j]) += i ? 1 : 100;
	}
	zfstrace_losses(&t, &l);
	CHECK(t.missed_returns == 3 && t.skipped == 2);
	CHECK(l.missed == t.missed_entries + 3 && t.missed_entries > 200);
	CHECK(l.skipped == 2);
	t.missed_returns = 5;
	zfstrace_losses(&t, &l);
	CHECK(l.missed == t.missed_entries + 5);
}

static void test_preemption(void)
{
	static const struct {
		const char *modes, *version;
		bool fentry;
	} cases[] = {
		/* debugfs tells, whatever the kernel could be */
		{ "none (voluntary) full \n", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.164-1", true },
		{ "none voluntary (full) \n", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.164-1", false },
		{ "none voluntary (full) lazy \n", "#1 SMP PREEMPT_DYNAMIC", false },
		{ "full (lazy) \n", "#1 SMP PREEMPT_DYNAMIC", true },
		/* elsewhere uname -v, recorded: Debian 12, its rt kernel, 13, its rt kernel, */
		{ "", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.164-1 (2026-03-09)", false },
		{ "", "#1 SMP PREEMPT_RT Debian 6.1.140-1 (2025-05-22)", false },
		{ "", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.94-1 (2026-06-20)", false },
		{ "", "#1 SMP PREEMPT_RT Debian 6.12.43-1 (2025-08-27)", false },
		/* Ubuntu's 5.11, a lowlatency one, 6.8; RHEL 8, 9, Fedora 40, Arch */
		{ "", "#17-Ubuntu SMP Wed Apr 14 20:12:43 UTC 2021", true },
		{ "", "#23~20.04.2-Ubuntu SMP PREEMPT Fri Dec 10 13:47:24 UTC 2021", false },
		{ "", "#49-Ubuntu SMP PREEMPT_DYNAMIC Mon Nov  4 02:06:24 UTC 2024", false },
		{ "", "#1 SMP Sat May 17 16:41:33 EDT 2025", true },
		{ "", "#1 SMP PREEMPT_DYNAMIC Fri Aug 16 10:56:24 EDT 2024", false },
		{ "", "#1 SMP PREEMPT_DYNAMIC Fri Aug 30 00:08:59 UTC 2024", false },
		{ "", "#1 SMP PREEMPT_DYNAMIC Mon, 09 Dec 2024 14:31:57 +0000", false },
		{ "", "", true },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		bool lazy;

		CHECK(!*preemption(cases[i].modes, cases[i].version, &lazy) == cases[i].fentry);
		CHECK(lazy == !!strstr(cases[i].modes, "(lazy)"));
	}
}

/* Up to 64 CPUs none that inserts pushes out what another still needs; beyond, they take no more
 * memory. */
static void test_lru_sizes(void)
{
	static const struct {
		int cpus;
		unsigned int entries;
	} cases[] = { { 2, 4096 }, { 32, 8192 }, { 64, 16384 }, { 4096, 16384 } };
	unsigned int seen = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(cases) * tracer_count; i++) {
		const struct tracer_def *d = &tracer_defs[i % tracer_count];
		struct zfstrace t = { .cpus = cases[i / tracer_count].cpus };
		struct bpf_map *map;

		t.object =
			bpf_object__open_mem(d->object, (size_t)(d->object_end - d->object), NULL);
		CHECK(t.object);
		if (!t.object)
			continue;
		CHECK(maps_size_lru(&t) == 0);
		bpf_object__for_each_map(map, t.object)
		{
			if (bpf_map__type(map) != BPF_MAP_TYPE_LRU_HASH)
				continue;
			seen++;
			CHECK(bpf_map__max_entries(map) == cases[i / tracer_count].entries);
		}
		bpf_object__close(t.object);
	}
	CHECK(seen >= ARRAY_SIZE(cases)); /* unwanted */
}

/* A power of two of pages, whatever is asked for. */
static void test_ring_sizes(void)
{
	static const struct {
		uint32_t wanted, bytes;
	} cases[] = { { 0, 1U << 20 }, { 100000, 1U << 17 }, { 3U << 30, 1U << 31 } };
	const struct tracer_def *d = tracer_find("fsync");

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct zfstrace_opts opts = { .slow_ns = 1, .slow_buffer = cases[i].wanted };
		struct zfstrace t = { .def = d, .cpus = 2, .config = { .slots = 2, .lanes = 1 } };
		struct bpf_map *ring;

		t.object =
			bpf_object__open_mem(d->object, (size_t)(d->object_end - d->object), NULL);
		CHECK(t.object);
		if (!t.object)
			continue;
		CHECK(maps_size(&t, &opts) == 0);
		ring = bpf_object__find_map_by_name(t.object, d->ring);
		CHECK(bpf_map__max_entries(ring) == cases[i].bytes);
		bpf_object__close(t.object);
	}
}

/* Where a program first calls a helper, among its instructions; -1: nowhere. */
static int first_call(const struct bpf_program *prog, int helper)
{
	const struct bpf_insn *insns = bpf_program__insns(prog);

	for (size_t i = 0; i < bpf_program__insn_cnt(prog); i++)
		if (insns[i].code == (BPF_JMP | BPF_CALL) && !insns[i].src_reg &&
		    insns[i].imm == helper)
			return (int)i;
	return -1;
}

/* Nearly all switches are of threads in no fsync: they cost a look, not the time. */
static void test_switches_are_filtered_first(void)
{
	const struct tracer_def *d = tracer_find("stacks");
	struct bpf_object *o =
		bpf_object__open_mem(d->object, (size_t)(d->object_end - d->object), NULL);
	struct bpf_program *prog =
		o ? bpf_object__find_program_by_name(o, "tp_sched_switch") : NULL;

	CHECK(prog);
	if (prog) {
		int look = first_call(prog, BPF_FUNC_map_lookup_elem);

		CHECK(look > 0 && look < first_call(prog, BPF_FUNC_ktime_get_ns));
	}
	bpf_object__close(o);
}

/* Which probes a mode of the tracer of stacks needs. */
static void test_modes(void)
{
	static const struct {
		uint32_t mode;
		unsigned int probes;
		const char *first;
	} cases[] = {
		{ ZFSTRACE_STACKS_OFF_CPU | ZFSTRACE_STACKS_OF_FSYNC, 1, "sched:sched_switch" },
		{ ZFSTRACE_STACKS_WAKEUP | ZFSTRACE_STACKS_OF_PID, 2, "sched:sched_switch" },
		{ ZFSTRACE_STACKS_ON_CPU | ZFSTRACE_STACKS_OF_FSYNC, 1, "cpu-clock" },
		{ ZFSTRACE_STACKS_ON_CPU | ZFSTRACE_STACKS_OF_TXG_SYNC, 3, "cpu-clock" },
		{ ZFSTRACE_STACKS_WAKEUP | ZFSTRACE_STACKS_OF_ALL, 4, "sched:sched_switch" },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		struct zfstrace t = { .config.mode = cases[i].mode };

		CHECK(probes_list(&t, tracer_find("stacks"), 1) == 0);
		CHECK(t.probe_count == cases[i].probes);
		CHECK(strcmp(t.probes[0].def->name, cases[i].first) == 0);
		CHECK((t.probes[0].how == ZFSTRACE_SAMPLING) == !!t.probes[0].def->hz);
		free(t.probes);
	}
	CHECK(tracer_find("stacks")->base == tracer_find("fsync"));
}

/* Words for what a missing probe costs, or the stages that cannot be told apart without it. */
static void test_costs(void)
{
	for (unsigned int i = 0; i < tracer_count; i++)
		for (unsigned int j = 0; j < tracer_defs[i].probe_count; j++) {
			const struct probe_def *d = &tracer_defs[i].probes[j];

			CHECK(!d->cost == !!d->merges[0] && (d->cost || !d->required));
			CHECK(!d->merges[0] == !d->merges[1]);
			CHECK(d->kernel || !d->stand_in);
		}
}

/* A copy of a distribution that the kernel writes to is counted. */
static void test_hist_copy(void)
{
	static struct zfstrace_table_hist from = { .sum_ns = 70, .max_ns = 40 };
	struct zfstrace_hist to = { .count = 9 };

	from.bucket[30] = 1;
	from.bucket[40] = 2;
	zfstrace_hist_copy(&to, &from);
	CHECK(to.count == 3 && to.sum_ns == 70 && to.max_ns == 40);
	CHECK(to.bucket[30] == 1 && to.bucket[40] == 2 && to.bucket[41] == 0);
	CHECK(zfstrace_hist_quantile(&to, 1000) == 40);
}

/* What a session that failed to start, or runs another tracer, is asked for is an error. */
static void test_wrong_sessions(void)
{
	struct zfstrace_cost cost = { .runs = 1, .run_ns = 1 };
	struct zfstrace_stack_losses losses;
	struct zfstrace *t = NULL;

	CHECK(zfstrace_start("nothing", NULL, &t) == -EINVAL && t);
	CHECK(strcmp(zfstrace_error(t), "no tracer nothing") == 0);
	zfstrace_close(t);
	CHECK(zfstrace_start("stacks", &(struct zfstrace_opts) { .size = 1 }, &t) == -EINVAL && t);
	CHECK(zfstrace_events(t, 0, NULL, NULL) == -EINVAL);
	CHECK(zfstrace_poll(t, 0, NULL, NULL) == -EINVAL);
	CHECK(zfstrace_stacks(t, NULL, NULL, &losses) == -EINVAL);
	CHECK(zfstrace_release(t, 1) == -EINVAL);
	CHECK(zfstrace_count_cost(t) == -EINVAL);
	zfstrace_end_cost(t);
	CHECK(zfstrace_cost(t, 0, &cost) == -EINVAL && !cost.runs && !cost.run_ns);
	CHECK(strcmp(zfstrace_error(t), "cannot tell what a probe costs: there is no probe 0") ==
	      0);
	CHECK(zfstrace_refresh(t) == 0 && zfstrace_tidy(t) == 0);
	CHECK(zfstrace_datasets(t) == 0 && !zfstrace_dataset(t, 0));
	CHECK(!zfstrace_table(t, "waiters", NULL, NULL));
	CHECK(strcmp(zfstrace_layout(t), "search") == 0);
	zfstrace_close(t);
	zfstrace_close(NULL);
	CHECK(strcmp(zfstrace_error(NULL), "out of memory") == 0);
}

/* The end of a dsl_pool_t's dp_spaceavail_cv on which nobody waits, its dp_dirty_pertxg[]
 * and dp_dirty_total, and what follows that while nothing is freed. */
#define POOL_WORDS 20
#define POOL_TOTAL 12

static void pool_words(unsigned long long *words, const unsigned long long *per_txg)
{
	memset(words, 0, POOL_WORDS * sizeof(*words));
	words[4] = words[5] = 0xffff888012345678; /* a list's head */
	words[6] = 1;				  /* cv_refs, cv_waiters */
	for (int i = 0; i < 4; i++) {
		words[8 + i] = per_txg[i];
		words[POOL_TOTAL] += per_txg[i];
	}
}

/* The first word that is taken for dp_dirty_total, 0 = none. */
static int dirty_total_at(const unsigned long long *words)
{
	for (int i = DIRTY_TOTAL; i + DIRTY_WORDS - DIRTY_TOTAL <= POOL_WORDS; i++)
		if (is_dirty_total(words + i - DIRTY_TOTAL))
			return i;
	return 0;
}

static void test_dirty_total(void)
{
	unsigned long long words[POOL_WORDS], mib = 1 << 20;
	uint64_t state = 20261122;

	/* two txgs with as much in each; one alone; three */
	for (int open = 0; open < 4; open++)
		for (int full = 1; full < 4; full++) {
			unsigned long long per_txg[4] = {};

			for (int i = 0; i < full; i++)
				per_txg[(open + 4 - i) % 4] = 16 * mib;
			pool_words(words, per_txg);
			CHECK(dirty_total_at(words) == POOL_TOTAL);
		}
	/* whatever is in them, and while a block is added or written */
	for (int n = 0; n < 1000000; n++) {
		unsigned long long per_txg[4] = {}, block = 128 << 10;
		int found;

		for (int i = 0; i < 4; i++)
			if (next_random(&state) % 2)
				per_txg[i] = next_random(&state) % (32 * mib);
		pool_words(words, per_txg);
		words[POOL_TOTAL] += next_random(&state) % (2 * block);
		words[POOL_TOTAL] -= words[POOL_TOTAL] > block ? block : 0;
		found = dirty_total_at(words);
		CHECK(!found || found == POOL_TOTAL);
	}
	/* little is not told */
	pool_words(words, (unsigned long long[4]) { 1000, 0, 0, 0 });
	CHECK(dirty_total_at(words) == 0);
}

/* Whatever the machine and what is asked for: in 256 MiB, and no less than there is room for. */
static void test_room(void)
{
	const struct tracer_def *fsync = tracer_find("fsync");
	size_t slot = 0, lane = 0, limit = 256 << 20;

	for (unsigned int i = 0; i < fsync->map_count; i++)
		if (fsync->maps[i].per_slot)
			*(fsync->maps[i].per_cpu ? &lane : &slot) += fsync->maps[i].entry_bytes;
	for (unsigned int cpus = 1; cpus <= 8192; cpus += 1 + cpus / 8)
		for (unsigned int wanted = 2; wanted <= 20000; wanted += 1 + wanted / 8) {
			struct trace_room room = room_of(fsync, wanted, cpus, 0);
			size_t bytes = room.slots * (slot + room.lanes * lane);

			CHECK(bytes <= limit);
			CHECK(room.lanes >= 1 && room.lanes <= cpus);
			CHECK(room.slots >= (wanted < 33 ? wanted : 33) && room.slots <= wanted);
			/* CPUs share only for want of room, and none is left unused */
			CHECK(room.lanes == cpus || bytes + 33 * lane > limit);
			CHECK(room.slots == wanted || room.slots == 1024 ||
			      bytes + slot + room.lanes * lane > limit);
		}
	for (unsigned int i = 0; i < tracer_count; i++)
		CHECK(room_of(&tracer_defs[i], 5, 64, 0).slots == 5);
	CHECK(room_of(tracer_find("device"), 100000, 64, 0).slots < 1400);
	CHECK(sizeof(struct counters) % 64 == 0); /* CPUs do not share a cache line */
	CHECK(room_cpus("0-3\n") == 4 && room_cpus("0,2-3,8-11\n") == 12);
	CHECK(room_cpus("0\n") == 1 && room_cpus("") == 0 && room_cpus("\n") == 0);
	CHECK(room_cpus("99999999999999999999") == 0);
}

int main(void)
{
	test_hist_index();
	test_hist_quantile();
	test_symbols();
	test_kallsyms_sample("tests/data/trixie/kallsyms", false);
	test_kallsyms_sample("tests/data/bookworm/kallsyms", false);
	test_kallsyms_sample("tests/data/trixie-backports/kallsyms", true);
	test_btf();
	test_kprobe_event_lines();
	test_misses();
	test_preemption();
	test_lru_sizes();
	test_ring_sizes();
	test_switches_are_filtered_first();
	test_modes();
	test_costs();
	test_hist_copy();
	test_wrong_sessions();
	test_dirty_total();
	test_room();
	return checked("C unit tests");
}
