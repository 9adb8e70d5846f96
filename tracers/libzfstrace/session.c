// SPDX-License-Identifier: BSD-2-Clause
/* A tracing session: loads the programs, attaches them, reads their maps. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

int zfstrace_abi(void)
{
	return ZFSTRACE_ABI;
}

/* ---- open --------------------------------------------------------------- */

static bool debug;

static int no_print(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return debug && level <= LIBBPF_INFO ? vfprintf(stderr, fmt, ap) : 0;
}

/* As the library is loaded, before there are threads that could read or replace it meanwhile. */
__attribute__((constructor)) static void quieten_libbpf(void)
{
	debug = getenv("ZFSTUNE_DEBUG");
	libbpf_set_print(no_print);
}

struct zfstrace *session_new(void)
{
	struct zfstrace *t = calloc(1, sizeof(*t));
	static unsigned int sessions;

	if (!t)
		return NULL;
	t->number = __sync_add_and_fetch(&sessions, 1);
	t->stats_fd = -1;
	t->turn = COUNT_FENTRY;
	return t;
}

static int take_options(struct zfstrace *t, const struct zfstrace_opts *opts)
{
	if (!opts || opts->size != sizeof(*opts))
		return fail(t, -EINVAL,
			    "invalid options: their size is not that of this library's\n"
			    "rebuild the program with the header of the library that it runs with");
	if (opts->pool && strlen(opts->pool) >= sizeof(t->config.pool))
		return fail(t, -EINVAL, "invalid pool name: longer than ZFS allows");
	t->config.pid = opts->pid;
	t->config.mode = opts->mode;
	t->config.slow_ns = opts->slow_ns;
	t->config.objset = opts->objset;
	t->config.objset_dev = kernel_dev(opts->dev_major, opts->dev_minor);
	if (opts->pool)
		strcpy(t->config.pool, opts->pool);
	return 0;
}

/* CPUs that come online later share the lanes of the others. */
static void take_room(struct zfstrace *t, const struct zfstrace_opts *opts)
{
	unsigned int most = opts->max_entries < SLOTS_MAX ? opts->max_entries + 1 : SLOTS_MAX;
	unsigned int wanted = opts->max_entries ? most : t->def->slots;
	FILE *f = fopen("/sys/devices/system/cpu/online", "re");
	char online[4096] = "";
	struct trace_room room;
	unsigned int cpus;

	if (f && !fgets(online, sizeof(online), f))
		online[0] = '\0';
	if (f)
		fclose(f);
	cpus = room_cpus(online);
	room = room_of(t->def, wanted, cpus ? cpus : (unsigned int)t->cpus, opts->table_mib);
	t->config.slots = room.slots;
	t->config.lanes = room.lanes;
}

static int load(struct zfstrace *t, const struct zfstrace_opts *opts)
{
	DECLARE_LIBBPF_OPTS(bpf_object_open_opts, open_opts, .object_name = "zfstune");
	size_t size = (size_t)(t->def->object_end - t->def->object);
	int err;

	/* libbpf before 1.3 insists on searching all modules for types, and fails */
	if (t->btf_refused)
		open_opts.btf_custom_path = "/sys/kernel/btf/vmlinux";
	t->object = bpf_object__open_mem(t->def->object, size, &open_opts);
	if (!t->object)
		return fail(t, -errno, "cannot read the library's BPF object: %s", strerror(errno));
	err = programs_choose(t);
	if (!err)
		err = maps_size(t, opts);
	if (!err)
		err = maps_share(t);
	if (err)
		return err;
	err = bpf_object__load(t->object);
	if (err)
		return programs_refused(t, err);
	err = maps_map(t);
	if (err)
		return err;
	room_begin(t);
	return t->def->begin ? t->def->begin(t) : 0;
}

static int start_base(struct zfstrace *t, const struct zfstrace_opts *opts)
{
	struct zfstrace_opts base = *opts;
	int err;

	if (!(opts->mode & t->def->base_modes))
		return 0;
	base.mode = 0;
	base.max_entries = 1;
	t->base = session_new();
	if (!t->base)
		return fail(t, -ENOMEM, "out of memory");
	t->base->no_stand_ins = t->no_stand_ins;
	err = session_start(t->base, t->def->base, &base);
	return err ? fail(t, err, "%s", zfstrace_error(t->base)) : 0;
}

/* One at a time in a process: what a session has loaded is what the next one sees that others
 * have. */
static int choose_and_load(struct zfstrace *t, const struct zfstrace_opts *opts)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int err;

	pthread_mutex_lock(&lock);
	err = probes_resolve(t, opts->no_fentry, false);
	if (!err)
		err = load(t, opts);
	if (!err && programs_late(t))
		err = fail(t, -EAGAIN, "cannot attach: another trace began in the same instant");
	pthread_mutex_unlock(&lock);
	return err;
}

int session_start(struct zfstrace *t, const struct tracer_def *def,
		  const struct zfstrace_opts *opts)
{
	int err;

	t->def = def;
	t->cpus = libbpf_num_possible_cpus();
	if (t->cpus < 1)
		return fail(t, -EIO, "cannot determine the number of CPUs");
	err = take_options(t, opts);
	if (!err)
		take_room(t, opts);
	if (!err)
		err = probes_list(t, def, 1);
	if (!err)
		err = start_base(t, opts);
	if (!err)
		err = choose_and_load(t, opts);
	kprobe_events_remove_stale();
	if (!err)
		err = session_attach(t);
	if (err)
		session_detach(t);
	return err;
}

void zfstrace_close(struct zfstrace *t)
{
	if (!t)
		return;
	if (t->attached)
		(void)session_enable(t, 0);
	session_detach(t);
	zfstrace_end_cost(t);
	ring_buffer__free(t->ring);
	maps_unmap(t);
	bpf_object__close(t->object);
	zfstrace_close(t->base);
	if (t->def && t->def->free)
		t->def->free(t);
	free(t->probes);
	free(t);
}

const char *zfstrace_error(const struct zfstrace *t)
{
	return t ? t->error : "out of memory";
}

const char *zfstrace_layout(const struct zfstrace *t)
{
	return t->module_btf && !t->btf_refused ? "btf" : "search";
}

bool zfstrace_probe(const struct zfstrace *t, unsigned int i, struct zfstrace_probe *p)
{
	if (i >= t->probe_count)
		return t->base && zfstrace_probe(t->base, i - t->probe_count, p);
	*p = (struct zfstrace_probe) {
		.tracer = t->probes[i].tracer,
		.name = t->probes[i].def->name,
		.symbol = t->probes[i].symbol ? t->probes[i].symbol : t->probes[i].def->symbols[0],
		.how = (int32_t)t->probes[i].how,
		.required = t->probes[i].def->required,
		.cost = t->probes[i].def->cost ? t->probes[i].def->cost : "",
		.why = t->probes[i].why,
	};
	memcpy(p->merges, t->probes[i].def->merges, sizeof(p->merges));
	return true;
}

/* ---- read --------------------------------------------------------------- */

int zfstrace_tidy(struct zfstrace *t)
{
	int err = t->attached && t->def->tidy ? t->def->tidy(t, session_now_ns()) : 0;

	if (t->base && !err) {
		err = zfstrace_tidy(t->base);
		if (err < 0)
			return fail(t, err, "%s", zfstrace_error(t->base));
	}
	if (err < 0 || !t->attached || t->paused || !t->config.lazy)
		return err;
	session_count_missed(t);
	return t->missed_entries + t->missed_returns ? session_fall_back(t) : err;
}

int zfstrace_refresh(struct zfstrace *t)
{
	const struct counters *per_cpu = maps_find(t, "counters");
	uint64_t *sum = (uint64_t *)&t->counters;
	int err = t->attached && t->def->refresh ? t->def->refresh(t, session_now_ns()) : 0;

	if (err)
		return err;
	memset(&t->counters, 0, sizeof(t->counters));
	for (int cpu = 0; per_cpu && cpu < t->cpus; cpu++)
		for (size_t i = 0; i < sizeof(t->counters) / sizeof(*sum); i++)
			sum[i] += ((const uint64_t *)&per_cpu[cpu])[i];
	session_count_missed(t);
	if (t->config.lazy && !t->paused && t->missed_entries + t->missed_returns)
		err = session_fall_back(t);
	return err < 0 ? err : 0;
}

void zfstrace_losses(const struct zfstrace *t, struct zfstrace_losses *l)
{
	const struct counters *c = &t->counters;
	uint64_t ended = c->finished + c->lost_return + t->cut;
	/* noticed at the thread's next operation, or reported by the kernel */
	uint64_t returns = c->lost_return > t->missed_returns ? c->lost_return : t->missed_returns;

	*l = (struct zfstrace_losses) {
		.start = c->lost_start,
		.missed = returns + t->missed_entries,
		.event = c->lost_event,
		.log_block = c->lost_lwb,
		.overflow = c->slots_overflow + t->folded,
		.cut = t->cut,
		.unfinished = c->started > ended ? c->started - ended : 0,
		.skipped = t->skipped,
	};
}

static int on_event(void *ctx, void *data, size_t size)
{
	struct zfstrace *t = ctx;

	t->event_fn(data, size, t->event_ctx);
	return 0;
}

int zfstrace_events(struct zfstrace *t, int timeout_ms, zfstrace_event_fn fn, void *ctx)
{
	int err;

	if (!t->attached || !t->def->ring)
		return fail(t, -EINVAL, "cannot wait for events: this session has none");
	if (!t->ring) {
		t->ring = ring_buffer__new(maps_fd(t, t->def->ring), on_event, t, NULL);
		if (!t->ring)
			return fail(t, -errno, "cannot map the ring buffer: %s", strerror(errno));
	}
	t->event_fn = fn;
	t->event_ctx = ctx;
	err = ring_buffer__poll(t->ring, timeout_ms);
	if (err < 0 && err != -EINTR)
		return fail(t, err, "cannot read the ring buffer: %s", strerror(-err));
	return err;
}
