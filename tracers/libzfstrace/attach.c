// SPDX-License-Identifier: BSD-2-Clause
/* Attaches the probes of a session, detaches them, and does both while it runs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* The level of kernel.perf_event_paranoid from which CAP_PERFMON is not enough: a patch of Debian,
 * features/all/security-perf-allow-further-restriction-of-perf_event_open.patch */
#define PARANOID 3

/* The kernel's own, from a kernel that loads fentry programs and has no way to attach them, as that
 * of arm64 before Linux 6.4: register_fentry() in kernel/bpf/trampoline.c, and before 6.0
 * arch_prepare_bpf_trampoline() */
#define ENOTSUPP 524

static struct bpf_link *attach_kprobe(const struct zfstrace *t, struct probe *p,
				      struct bpf_program *prog)
{
	struct bpf_link *link;
	int err;

	p->perf_fd = kprobe_event_open(t->number, p->def, p->symbol);
	if (p->perf_fd == -ENOENT) { /* no such symbol */
		errno = ENOENT;
		return NULL;
	}
	if (p->perf_fd < 0) /* no tracefs: perf's own, with its small pool and uncounted misses */
		return bpf_program__attach_kprobe(prog, p->def->returns, p->symbol);
	link = bpf_program__attach_perf_event(prog, p->perf_fd);
	if (link)
		return link;
	err = errno;
	close(p->perf_fd);
	kprobe_event_remove(t->number, p->def);
	p->perf_fd = -1;
	errno = err;
	return NULL;
}

static int attach_probe(struct zfstrace *t, unsigned int i)
{
	struct bpf_program *prog = programs_find(t, i);
	struct probe *p = &t->probes[i];
	const struct probe_def *d = p->def;
	const char *known = p->symbol;

	if (p->how == ZFSTRACE_SAMPLING) {
		int err = sampler_attach(t, prog, d->hz);

		if (err)
			snprintf(p->why, sizeof(p->why), "%s", strerror(-err));
		return err;
	}
	if (p->how != ZFSTRACE_KPROBE)
		p->link = bpf_program__attach(prog);
	for (unsigned int j = 0; p->how == ZFSTRACE_KPROBE && j < MAX_SYMBOLS && !p->link; j++) {
		if (!d->symbols[j] || (known && known != d->symbols[j]))
			continue;
		p->symbol = d->symbols[j];
		p->link = attach_kprobe(t, p, prog);
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
int session_enable(struct zfstrace *t, int on)
{
	uint32_t zero = 0;

	return bpf_map_update_elem(maps_fd(t, ".data.enabled"), &zero, &on, BPF_ANY);
}

static int start_counting(struct zfstrace *t)
{
	int err = session_enable(t, t->turn);

	return err ? fail(t, err, "cannot start counting: %s", strerror(-err)) : 0;
}

/* The programs are loaded: what is forbidden then is a perf event, at a level that the kernels of
 * Debian and Ubuntu have, or by a security module. */
static int attach_refused(struct zfstrace *t, enum zfstrace_how how)
{
	FILE *f = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
	int level = 0;

	if (f && fscanf(f, "%d", &level) != 1)
		level = 0;
	if (f)
		fclose(f);
	if (level < PARANOID || how == ZFSTRACE_FENTRY || how == ZFSTRACE_TRACEPOINT)
		return programs_refused(t, -EPERM);
	return fail(t, -EPERM,
		    "cannot attach kprobes: kernel.perf_event_paranoid is %d, and there is no "
		    "CAP_SYS_ADMIN\nrun `sysctl kernel.perf_event_paranoid=%d`, or zfstune with "
		    "CAP_SYS_ADMIN",
		    level, PARANOID - 1);
}

int session_attach(struct zfstrace *t)
{
	enum zfstrace_how how;
	int err;

	for (unsigned int i = 0; i < t->probe_count; i++) {
		if (!t->probes[i].how || programs_shared(&t->probes[i]) || t->probes[i].link)
			continue;
		how = t->probes[i].how;
		err = attach_probe(t, i);
		if (err == -EPERM || err == -EACCES)
			return attach_refused(t, how);
		if (err == -ENOTSUPP && how == ZFSTRACE_FENTRY)
			return fail(t, -ENOTSUP, "this kernel cannot attach fentry programs");
		if (err && t->probes[i].def->required)
			return fail(t, err == -ENOENT ? -ENOENT : -EIO,
				    "%s: cannot attach to %s (%s)", t->probes[i].def->cost,
				    t->probes[i].def->name, t->probes[i].why);
	}
	err = start_counting(t);
	if (!err)
		t->attached = true;
	return err;
}

/* All probes but those that have a link in `keep`, which may be NULL. */
static void detach(struct zfstrace *t, const struct probe *keep)
{
	sampler_detach(t);
	for (unsigned int i = 0; i < t->probe_count; i++) {
		struct probe *p = &t->probes[i];

		if (keep && keep[i].link)
			continue;
		bpf_link__destroy(p->link); /* closes perf_fd too */
		if (p->perf_fd >= 0)
			kprobe_event_remove(t->number, p->def);
		p->link = NULL;
		p->perf_fd = -1;
	}
}

void session_detach(struct zfstrace *t)
{
	detach(t, NULL);
}

static void detach_for_pause(struct zfstrace *t)
{
	struct probe keep[t->probe_count];

	memcpy(keep, t->probes, sizeof(keep));
	for (unsigned int i = 0; i < t->probe_count; i++)
		if (!keep[i].def->stays)
			keep[i].link = NULL;
	detach(t, keep);
}

/* ---- misses -------------------------------------------------------------- */

static void count_kprobes(struct zfstrace *t)
{
	t->missed_entries = t->before_entries;
	t->missed_returns = t->before_returns;
	t->skipped = 0;
	kprobe_events_count(t);
}

/* Hits at which the kernel did not run a program: see preemption(). For kprobes it reports them
 * from Linux 6.7 on. */
static void add_skipped(struct zfstrace *t, unsigned int i, const struct bpf_program *prog)
{
	struct bpf_prog_info info = {};
	uint32_t size = sizeof(info);

	if (!bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &size))
		*probes_missed(t, t->probes[i].def) += info.recursion_misses;
}

static void count_skipped(struct zfstrace *t)
{
	for (unsigned int i = 0; i < t->probe_count; i++) {
		const struct bpf_program *prog = programs_find(t, i);

		if (prog && t->probes[i].how != ZFSTRACE_SAMPLING)
			add_skipped(t, i, prog);
	}
}

void session_count_missed(struct zfstrace *t)
{
	count_kprobes(t);
	count_skipped(t);
}

/* ---- while it runs ------------------------------------------------------- */

/* Lets kprobe programs count instead of the fentry programs, of which the kernel has skipped some:
 * both are attached for a moment, so nothing is missed but the ends of operations that began before
 * that. Returns 1, or a negative errno. */
int session_fall_back(struct zfstrace *t)
{
	const struct bpf_program *programs[t->probe_count];
	struct bpf_link *old[t->probe_count];
	int err = 0;

	memset(programs, 0, sizeof(programs));
	memset(old, 0, sizeof(old));
	for (unsigned int i = 0; i < t->probe_count && !err; i++) {
		struct probe *p = &t->probes[i];

		if (p->how != ZFSTRACE_FENTRY)
			continue;
		programs[i] = programs_find(t, i);
		old[i] = p->link;
		p->link = NULL;
		p->symbol = p->stands_in ? NULL : p->symbol;
		p->stands_in = false;
		p->how = ZFSTRACE_KPROBE;
		if (attach_probe(t, i) && p->def->required)
			err = fail(t, -EIO, "%s: cannot attach to %s (%s)", p->def->cost,
				   p->def->name, p->why);
		else if (p->how)
			snprintf(p->why, sizeof(p->why), "the kernel skipped fentry programs");
	}
	t->turn = COUNT_KPROBE;
	if (!err)
		err = start_counting(t);
	t->config.lazy = false;
	/* only now: attaching takes a second, in which the kernel may have skipped more */
	t->missed_entries = t->missed_returns = 0;
	for (unsigned int i = 0; i < t->probe_count; i++) {
		if (programs[i])
			add_skipped(t, i, programs[i]);
		bpf_link__destroy(old[i]);
	}
	t->before_entries = t->missed_entries;
	t->before_returns = t->missed_returns;
	return err ? err : 1;
}

uint64_t session_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Operations that have begun and not ended. */
static uint64_t under_way(const struct zfstrace *t)
{
	const struct counters *per_cpu = maps_find(t, "counters");
	uint64_t started = 0, ended = t->cut;

	for (int cpu = 0; per_cpu && cpu < t->cpus; cpu++) {
		started += per_cpu[cpu].started;
		ended += per_cpu[cpu].finished + per_cpu[cpu].lost_return;
	}
	return started > ended ? started - ended : 0;
}

int zfstrace_pause(struct zfstrace *t, bool now)
{
	uint64_t left;
	int err;

	/* the programs of others do not know what began before a pause */
	if (!t->def->pauses)
		return fail(t, -EINVAL, "cannot pause: this session is not of the tracer fsync");
	if (!t->attached || t->paused)
		return 0;
	err = session_enable(t, 0);
	if (err)
		return fail(t, err, "cannot stop counting: %s", strerror(-err));
	left = under_way(t);
	if (left && !now)
		return left < INT32_MAX ? (int)left : INT32_MAX;
	count_kprobes(t); /* the counts of these go with them */
	t->before_entries = t->missed_entries;
	t->before_returns = t->missed_returns;
	detach_for_pause(t);
	count_kprobes(t); /* once more those of probes that stay, which are at entries */
	t->before_entries -= t->missed_entries - t->before_entries;
	t->cut += under_way(t);
	t->paused = true;
	return 0;
}

/* After a failure the next attempt is not to do without what was missing in this one. */
static int attach_again(struct zfstrace *t)
{
	struct probe before[t->probe_count];
	int err;

	memcpy(before, t->probes, sizeof(before));
	err = session_attach(t);
	if (!err)
		return 0;
	detach(t, before);
	memcpy(t->probes, before, sizeof(before));
	return err;
}

int zfstrace_resume(struct zfstrace *t)
{
	uint32_t zero = 0;
	uint64_t since;
	int err;

	if (!t->attached)
		return fail(t, -EINVAL, "cannot resume: this session has not begun");
	if (!t->paused) /* the pause still waits for operations */
		return start_counting(t);
	since = session_now_ns();
	(void)bpf_map_update_elem(maps_fd(t, ".data.resumed"), &zero, &since, BPF_ANY);
	err = attach_again(t);
	t->paused = err;
	return err;
}
