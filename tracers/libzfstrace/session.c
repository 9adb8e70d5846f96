// SPDX-License-Identifier: BSD-2-Clause
/* A tracing session: loads the programs, attaches them, reads their maps. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

extern const char zfstrace_fsync_object[]; /* object.c */
extern const char zfstrace_fsync_object_end[];

static const char *const stage_names[] = {
	"writeback", "async_to_sync", "tx_assign", "issuer_lock",  "issue", "batch_wait",
	"log_write", "flush",	      "wakeup",	   "txg_fallback", "other",
};
_Static_assert(ARRAY_SIZE(stage_names) == STAGE_COUNT, "a stage has no name");

static const char *const kind_names[] = {
	"fsync", "fdatasync", "o_sync", "msync", "zvol", "other"
};
_Static_assert(ARRAY_SIZE(kind_names) == KIND_COUNT, "a kind has no name");

int zfstrace_abi(void)
{
	return ZFSTRACE_ABI;
}

const char *zfstrace_stage_name(unsigned int i)
{
	return i < STAGE_COUNT ? stage_names[i] : NULL;
}

const char *zfstrace_kind_name(unsigned int i)
{
	return i < KIND_COUNT ? kind_names[i] : NULL;
}

/* ---- open --------------------------------------------------------------- */

static int no_print(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	if (getenv("ZFSTUNE_DEBUG") && level <= LIBBPF_INFO)
		return vfprintf(stderr, fmt, ap);
	return 0;
}

static struct zfstrace *session_new(void)
{
	struct zfstrace *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	for (unsigned int i = 0; i < MAX_PROBES; i++)
		t->probes[i].perf_fd = -1;
	libbpf_set_print(no_print);
	return t;
}

static int take_options(struct zfstrace *t, const struct zfstrace_opts *opts)
{
	if (!opts || opts->size != sizeof(*opts))
		return fail(t, -EINVAL, "options of another version of the library");
	if (opts->pool && strlen(opts->pool) >= sizeof(t->config.pool))
		return fail(t, -EINVAL, "the pool's name is longer than ZFS allows");
	t->config.pid = opts->pid;
	t->config.slots = (opts->max_datasets ? opts->max_datasets : 32) + 1;
	t->config.slow_ns = opts->slow_ns;
	t->config.objset = opts->objset;
	t->config.objset_dev = opts->objset_dev;
	if (opts->pool)
		strcpy(t->config.pool, opts->pool);
	t->datasets = calloc(t->config.slots, sizeof(*t->datasets));
	return t->datasets ? 0 : fail(t, -ENOMEM, "out of memory");
}

static struct bpf_program *program_of(struct zfstrace *t, unsigned int i)
{
	static const char *const prefix[] = {
		[ZFSTRACE_FENTRY] = "fentry_",
		[ZFSTRACE_KPROBE] = "kprobe_",
		[ZFSTRACE_TRACEPOINT] = "tp_",
	};
	char name[64];

	if (!t->probes[i].how)
		return NULL;
	snprintf(name, sizeof(name), "%s%s", prefix[t->probes[i].how], probe_defs[i].program);
	return bpf_object__find_program_by_name(t->object, name);
}

static int load_failure(struct zfstrace *t, int err)
{
	if (err == -EPERM) /* EACCES is the verifier's */
		return fail(t, -EPERM,
			    "not privileged to load and attach BPF programs: run as root, or with "
			    "CAP_SYS_ADMIN and CAP_DAC_OVERRIDE");
	return fail(t, err, "the kernel refused the programs (%s): ZFSTUNE_DEBUG=1 shows its log",
		    strerror(-err));
}

/* Naming the module saves libbpf (from 1.5) a search of all vmlinux for each
 * program; under emulation that is most of the time to attach. */
static int set_target(struct bpf_program *prog, const struct probe *p)
{
	char name[96];

	if (libbpf_major_version() == 1 && libbpf_minor_version() < 5)
		return bpf_program__set_attach_target(prog, 0, p->symbol);
	snprintf(name, sizeof(name), "%s:%s", p->module, p->symbol);
	return bpf_program__set_attach_target(prog, 0, name);
}

static int choose_programs(struct zfstrace *t)
{
	struct bpf_program *prog;

	bpf_object__for_each_program(prog, t->object) bpf_program__set_autoload(prog, false);
	for (unsigned int i = 0; i < probe_count; i++) {
		if (!t->probes[i].how)
			continue;
		prog = program_of(t, i);
		if (!prog)
			return fail(t, -EINVAL, "no program for %s: the library is broken",
				    probe_defs[i].name);
		bpf_program__set_autoload(prog, true);
		if (t->probes[i].how == ZFSTRACE_FENTRY) {
			int err = set_target(prog, &t->probes[i]);

			if (err == -EPERM)
				return load_failure(t, err);
			if (err)
				return fail(t, err, "cannot find %s in the BTF of %s",
					    t->probes[i].symbol, t->probes[i].module);
		}
	}
	return 0;
}

static int map_fd(const struct zfstrace *t, const char *name)
{
	return bpf_object__find_map_fd_by_name(t->object, name);
}

/* The maps that are read, and where they are mapped. */
struct mapping {
	const char *name;
	unsigned int entries;
	size_t entry_bytes;
	const void **at;
};
#define MAPPINGS 3

static void list_mappings(struct zfstrace *t, struct mapping *m)
{
	unsigned int cpus = (unsigned int)t->cpus;

	m[0] = (struct mapping) { "slots", t->config.slots, sizeof(*t->slots),
				  (const void **)&t->slots };
	m[1] = (struct mapping) { "slot_data", cpus * t->config.slots, sizeof(*t->slot_data),
				  (const void **)&t->slot_data };
	m[2] = (struct mapping) { "counters", cpus, sizeof(*t->per_cpu),
				  (const void **)&t->per_cpu };
}
_Static_assert(sizeof(struct slot) % 8 == 0 && sizeof(struct slot_data) % 8 == 0 &&
		       sizeof(struct counters) % 8 == 0,
	       "the kernel pads entries to 8 bytes");

static size_t mapping_bytes(const struct mapping *m)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (m->entries * m->entry_bytes + page - 1) / page * page;
}

static int map_maps(struct zfstrace *t)
{
	struct mapping m[MAPPINGS];

	list_mappings(t, m);
	for (unsigned int i = 0; i < MAPPINGS; i++) {
		void *at = mmap(NULL, mapping_bytes(&m[i]), PROT_READ, MAP_SHARED,
				map_fd(t, m[i].name), 0);

		if (at == MAP_FAILED)
			return fail(t, -errno, "cannot map the counters (%s)", strerror(errno));
		*m[i].at = at;
	}
	return 0;
}

static void unmap_maps(struct zfstrace *t)
{
	struct mapping m[MAPPINGS];

	list_mappings(t, m);
	for (unsigned int i = 0; i < MAPPINGS; i++)
		if (*m[i].at)
			munmap((void *)(uintptr_t)*m[i].at, mapping_bytes(&m[i]));
}

static int size_maps(struct zfstrace *t, uint32_t slow_buffer)
{
	struct mapping m[MAPPINGS];
	struct bpf_map *config = bpf_object__find_map_by_name(t->object, ".rodata.config");
	struct bpf_map *ring = bpf_object__find_map_by_name(t->object, "slow_events");
	uint32_t ring_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
	int err = 0;

	while (t->config.slow_ns && ring_bytes < (slow_buffer ? slow_buffer : 1U << 20))
		ring_bytes *= 2;
	list_mappings(t, m);
	for (unsigned int i = 0; i < MAPPINGS; i++)
		err |= bpf_map__set_max_entries(bpf_object__find_map_by_name(t->object, m[i].name),
						m[i].entries);
	err |= bpf_map__set_max_entries(ring, ring_bytes);
	err |= bpf_map__set_initial_value(config, &t->config, sizeof(t->config));
	return err ? fail(t, -EINVAL, "the library's programs do not fit it: rebuild it") : 0;
}

static int load(struct zfstrace *t, const struct zfstrace_opts *opts)
{
	DECLARE_LIBBPF_OPTS(bpf_object_open_opts, open_opts, .object_name = "zfstune");
	size_t size = (size_t)(zfstrace_fsync_object_end - zfstrace_fsync_object);
	int err;

	t->object = bpf_object__open_mem(zfstrace_fsync_object, size, &open_opts);
	if (!t->object)
		return fail(t, -errno, "cannot read the library's BPF object (%s)",
			    strerror(errno));
	err = choose_programs(t);
	if (!err)
		err = size_maps(t, opts->slow_buffer);
	if (err)
		return err;
	err = bpf_object__load(t->object);
	return err ? load_failure(t, err) : map_maps(t);
}

static void detach(struct zfstrace *t)
{
	for (unsigned int i = 0; i < probe_count; i++) {
		struct probe *p = &t->probes[i];

		bpf_link__destroy(p->link); /* closes perf_fd too */
		if (p->perf_fd >= 0)
			kretprobe_remove(probe_defs[i].program);
		p->link = NULL;
		p->perf_fd = -1;
	}
}

static struct bpf_link *attach_kretprobe(struct probe *p, const char *id, struct bpf_program *prog)
{
	struct bpf_link *link;
	int err;

	p->perf_fd = kretprobe_open(id, p->symbol);
	if (p->perf_fd == -ENOENT) { /* no such symbol */
		errno = ENOENT;
		return NULL;
	}
	if (p->perf_fd < 0) /* no tracefs: perf's own, with its small pool */
		return bpf_program__attach_kprobe(prog, true, p->symbol);
	link = bpf_program__attach_perf_event(prog, p->perf_fd);
	if (link)
		return link;
	err = errno;
	close(p->perf_fd);
	kretprobe_remove(id);
	p->perf_fd = -1;
	errno = err;
	return NULL;
}

static int attach_probe(struct zfstrace *t, unsigned int i)
{
	const struct probe_def *d = &probe_defs[i];
	struct bpf_program *prog = program_of(t, i);
	struct probe *p = &t->probes[i];
	const char *known = p->symbol;

	if (p->how != ZFSTRACE_KPROBE)
		p->link = bpf_program__attach(prog);
	for (unsigned int j = 0; p->how == ZFSTRACE_KPROBE && j < MAX_SYMBOLS && !p->link; j++) {
		if (!d->symbols[j] || (known && known != d->symbols[j]))
			continue;
		p->symbol = d->symbols[j];
		p->link = d->returns ? attach_kretprobe(p, d->program, prog)
				     : bpf_program__attach_kprobe(prog, false, p->symbol);
	}
	if (p->link)
		return 0;
	if (errno == ENOENT)
		snprintf(p->why, sizeof(p->why), "no symbol %s", d->symbols[0]);
	else
		snprintf(p->why, sizeof(p->why), "%s: %s", p->symbol, strerror(errno));
	p->how = ZFSTRACE_MISSING;
	return -errno;
}

/* Nothing is counted before this: see `enabled` in fsync.bpf.c. */
static int set_enabled(struct zfstrace *t, int on)
{
	uint32_t zero = 0;

	return bpf_map_update_elem(map_fd(t, ".data.enabled"), &zero, &on, BPF_ANY);
}

static int attach(struct zfstrace *t)
{
	int err;

	kretprobe_remove_stale();
	for (unsigned int i = 0; i < probe_count; i++) {
		if (!t->probes[i].how)
			continue;
		err = attach_probe(t, i);
		if (err == -EPERM || err == -EACCES)
			return load_failure(t, -EPERM);
		if (err && probe_defs[i].required)
			return fail(t, err == -ENOENT ? -ENOENT : -EIO,
				    "cannot attach to %s (%s): %s", probe_defs[i].name,
				    t->probes[i].why, probe_defs[i].cost);
	}
	err = set_enabled(t, 1);
	if (err)
		return fail(t, err, "cannot start counting (%s)", strerror(-err));
	t->attached = true;
	return 0;
}

static int prepare_reading(struct zfstrace *t)
{
	t->cpus = libbpf_num_possible_cpus();
	if (t->cpus < 1)
		return fail(t, -EIO, "cannot tell the number of CPUs");
	t->datasets[0] = calloc(1, sizeof(**t->datasets));
	return t->datasets[0] ? 0 : fail(t, -ENOMEM, "out of memory");
}

int zfstrace_open(const struct zfstrace_opts *opts, struct zfstrace **out)
{
	struct zfstrace *t = session_new();
	int err;

	*out = t;
	if (!t)
		return -ENOMEM;
	err = take_options(t, opts);
	if (!err)
		err = probes_resolve(t, opts->no_fentry, false);
	if (!err)
		err = prepare_reading(t);
	if (!err)
		err = load(t, opts);
	if (!err)
		err = attach(t);
	if (err)
		detach(t);
	return err;
}

int zfstrace_survey(struct zfstrace **out)
{
	struct zfstrace *t = session_new();

	*out = t;
	return t ? probes_resolve(t, false, true) : -ENOMEM;
}

void zfstrace_close(struct zfstrace *t)
{
	if (!t)
		return;
	if (t->attached)
		(void)set_enabled(t, 0);
	detach(t);
	ring_buffer__free(t->ring);
	unmap_maps(t);
	bpf_object__close(t->object);
	if (t->datasets)
		for (unsigned int i = 0; i < t->config.slots; i++)
			free(t->datasets[i]);
	free(t->datasets);
	free(t);
}

const char *zfstrace_error(const struct zfstrace *t)
{
	return t ? t->error : "out of memory";
}

const char *zfstrace_layout(const struct zfstrace *t)
{
	return t->module_btf ? "btf" : "search";
}

bool zfstrace_probe(const struct zfstrace *t, unsigned int i, struct zfstrace_probe *p)
{
	if (i >= probe_count)
		return false;
	*p = (struct zfstrace_probe) {
		.name = probe_defs[i].name,
		.symbol = t->probes[i].symbol ? t->probes[i].symbol : probe_defs[i].symbols[0],
		.how = (int32_t)t->probes[i].how,
		.required = probe_defs[i].required,
		.cost = probe_defs[i].cost,
		.why = t->probes[i].why,
	};
	return true;
}

/* ---- read --------------------------------------------------------------- */

static void add_hist(struct zfstrace_hist *sum, const struct hist *h)
{
	sum->sum_ns += h->sum;
	if (h->max > sum->max_ns)
		sum->max_ns = h->max;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++) {
		sum->bucket[i] += h->bucket[i];
		/* not counted apart: operations go on meanwhile, and both shall agree */
		sum->count += h->bucket[i];
	}
}

static int read_slot(struct zfstrace *t, uint32_t i)
{
	const struct slot *slot = &t->slots[i];
	struct zfstrace_dataset *d = t->datasets[i];

	if (!d) {
		d = t->datasets[i] = calloc(1, sizeof(*d));
		if (!d)
			return fail(t, -ENOMEM, "out of memory");
	}
	memset(d, 0, sizeof(*d));
	memcpy(d->pool, slot->pool, sizeof(d->pool));
	d->objset = slot->objset;
	d->dev_major = slot->dev >> 20; /* the kernel's own encoding of dev_t */
	d->dev_minor = slot->dev & 0xfffff;
	d->rest = i == 0;
	for (int cpu = 0; cpu < t->cpus; cpu++) {
		const struct slot_data *data = &t->slot_data[(uint32_t)cpu * t->config.slots + i];

		d->commits += data->commits;
		d->errors += data->errors;
		d->no_zil += data->no_zil;
		for (unsigned int k = 0; k < KIND_COUNT; k++)
			d->kinds[k] += data->kind[k];
		add_hist(&d->total, &data->hist[STAGE_TOTAL]);
		for (unsigned int s = 0; s < STAGE_COUNT; s++)
			add_hist(&d->stages[s], &data->hist[s]);
	}
	return 0;
}

/* Hits at which the kernel did not run a program: see preemptible(). Of the
 * tracepoints only a stage depends, no operation. */
static void count_skipped(struct zfstrace *t)
{
	for (unsigned int i = 0; i < probe_count; i++) {
		struct bpf_prog_info info = {};
		uint32_t size = sizeof(info);

		if (t->probes[i].link &&
		    !bpf_obj_get_info_by_fd(bpf_program__fd(program_of(t, i)), &info, &size))
			*(probe_defs[i].tracepoint ? &t->skipped : &t->missed) +=
				info.recursion_misses;
	}
}

int zfstrace_refresh(struct zfstrace *t)
{
	uint64_t *sum = (uint64_t *)&t->counters;

	for (uint32_t i = 0; i < t->config.slots && (i == 0 || t->slots[i].used); i++) {
		int err = read_slot(t, i);

		if (err)
			return err;
		t->dataset_count = i + 1;
	}
	memset(&t->counters, 0, sizeof(t->counters));
	for (int cpu = 0; cpu < t->cpus; cpu++)
		for (size_t i = 0; i < sizeof(t->counters) / sizeof(*sum); i++)
			sum[i] += ((const uint64_t *)&t->per_cpu[cpu])[i];
	t->missed = kretprobe_missed();
	t->skipped = 0;
	count_skipped(t);
	return 0;
}

unsigned int zfstrace_datasets(const struct zfstrace *t)
{
	return t->dataset_count;
}

const struct zfstrace_dataset *zfstrace_dataset(const struct zfstrace *t, unsigned int i)
{
	return i < t->dataset_count ? t->datasets[i] : NULL;
}

void zfstrace_losses(const struct zfstrace *t, struct zfstrace_losses *l)
{
	const struct counters *c = &t->counters;
	uint64_t ended = c->finished + c->lost_return;

	*l = (struct zfstrace_losses) {
		.start = c->lost_start,
		/* noticed when the thread comes by again, or reported by the kernel */
		.return_ = c->lost_return > t->missed ? c->lost_return : t->missed,
		.event = c->lost_event,
		.log_block = c->lost_lwb,
		.overflow = c->slots_overflow,
		.unfinished = c->started > ended ? c->started - ended : 0,
		.skipped = t->skipped,
	};
}

static int on_event(void *ctx, void *data, size_t size)
{
	const struct slow_event *e = data;
	struct zfstrace *t = ctx;
	struct zfstrace_slow s = {
		.start_ns = e->start_ns,
		.total_ns = e->total_ns,
		.object = e->object,
		.dataset = e->slot,
		.pid = e->pid,
		.tid = e->tid,
		.kind = e->kind,
	};

	if (size < sizeof(*e))
		return 0;
	for (unsigned int i = 0; i < STAGE_COUNT; i++)
		s.stage_ns[i] = e->stage_ns[i];
	memcpy(s.comm, e->comm, sizeof(s.comm));
	s.comm[sizeof(s.comm) - 1] = '\0';
	if (t->slow_fn)
		t->slow_fn(&s, t->slow_ctx);
	return 0;
}

int zfstrace_poll(struct zfstrace *t, int timeout_ms, zfstrace_slow_fn fn, void *ctx)
{
	if (!t->ring) {
		t->ring = ring_buffer__new(map_fd(t, "slow_events"), on_event, t, NULL);
		if (!t->ring)
			return fail(t, -errno, "cannot map the ring buffer (%s)", strerror(errno));
	}
	t->slow_fn = fn;
	t->slow_ctx = ctx;
	return ring_buffer__poll(t->ring, timeout_ms);
}
