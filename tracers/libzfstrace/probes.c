// SPDX-License-Identifier: BSD-2-Clause
/* How each probe can be attached on this kernel. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "internal.h"

static bool in_mode(const struct zfstrace *t, uint32_t modes)
{
	return !modes || modes & t->config.mode;
}

int probes_list(struct zfstrace *t, const struct tracer_def *defs, unsigned int count)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < count; i++)
		n += defs[i].probe_count;
	t->probes = calloc(n, sizeof(*t->probes));
	if (!t->probes)
		return fail(t, -ENOMEM, "out of memory");
	for (unsigned int i = 0; i < count; i++) {
		const struct tracer_def *d = &defs[i];

		for (unsigned int j = 0; j < d->probe_count; j++)
			if (in_mode(t, d->probes[j].modes))
				t->probes[t->probe_count++] = (struct probe) {
					.def = &d->probes[j],
					.tracer = d->name,
					.how = d->probes[j].hz ? ZFSTRACE_SAMPLING
							       : ZFSTRACE_MISSING,
					.perf_fd = -1,
				};
	}
	return 0;
}

/* The names of all definitions, [probe][symbol]; tracepoints or functions. */
static void list_names(const struct zfstrace *t, const char *names[][MAX_SYMBOLS], bool tracepoints)
{
	for (unsigned int i = 0; i < t->probe_count; i++)
		for (unsigned int j = 0; j < MAX_SYMBOLS; j++)
			names[i][j] = t->probes[i].def->tracepoint == tracepoints
					      ? t->probes[i].def->symbols[j]
					      : NULL;
}

/* Tracepoints, and functions that may stand in for those of the module, in one walk of vmlinux. */
static int find_in_kernel(struct zfstrace *t, struct btf_base *vmlinux)
{
	const char *names[t->probe_count][MAX_SYMBOLS];
	char types[t->probe_count][64];
	uint32_t ids[t->probe_count][MAX_SYMBOLS];
	int hits;

	memset(ids, 0, sizeof(ids));
	list_names(t, names, true);
	for (unsigned int i = 0; i < t->probe_count; i++) {
		names[i][1] = t->probes[i].def->kernel;
		if (!names[i][0])
			continue;
		snprintf(types[i], sizeof(types[i]), "btf_trace_%s", names[i][0]);
		names[i][0] = types[i];
	}
	hits = btf_file_names("vmlinux", (struct btf_base) {},
			      1U << BTF_KIND_TYPEDEF | 1U << BTF_KIND_FUNC, &names[0][0],
			      &ids[0][0], t->probe_count * MAX_SYMBOLS, vmlinux);
	if (hits < 0)
		return fail(t, -ENOTSUP,
			    "this kernel has no BTF: cannot read /sys/kernel/btf/vmlinux\n"
			    "use a kernel built with CONFIG_DEBUG_INFO_BTF");
	for (unsigned int i = 0; i < t->probe_count; i++) {
		t->probes[i].btf_id = ids[i][1];
		t->probes[i].stands_in = ids[i][1];
		if (!names[i][0])
			continue;
		if (ids[i][0]) {
			t->probes[i].symbol = t->probes[i].def->symbols[0];
			t->probes[i].how = ZFSTRACE_TRACEPOINT;
		} else {
			snprintf(t->probes[i].why, sizeof(t->probes[i].why),
				 "the kernel has no such tracepoint (Linux 5.19 has)");
		}
	}
	return 0;
}

static void take_functions(struct zfstrace *t, uint32_t (*ids)[MAX_SYMBOLS], const char *module,
			   enum zfstrace_how how)
{
	for (unsigned int i = 0; i < t->probe_count; i++)
		for (unsigned int j = MAX_SYMBOLS; j-- > 0;)
			if (ids[i][j]) { /* the first of the list wins */
				t->probes[i].symbol = t->probes[i].def->symbols[j];
				t->probes[i].module = module;
				t->probes[i].btf_id = ids[i][j];
				t->probes[i].how = how;
			}
}

static const char *const modules[] = { "zfs", "spl" };
#define ALL_MODULES ((1U << ARRAY_SIZE(modules)) - 1)

/* Functions in the modules' BTF, for fentry; for kprobes with no_fentry, or where `skipped` says
 * why fentry programs would miss calls, or cannot be attached. */
static void find_in_btf(struct zfstrace *t, struct btf_base vmlinux, bool no_fentry,
			const char *skipped)
{
	const char *names[t->probe_count][MAX_SYMBOLS];

	list_names(t, names, false);
	for (unsigned int m = 0; m < ARRAY_SIZE(modules); m++) {
		uint32_t ids[t->probe_count][MAX_SYMBOLS];
		struct btf_base own;

		memset(ids, 0, sizeof(ids));
		if (btf_file_names(modules[m], vmlinux, 1U << BTF_KIND_FUNC, &names[0][0],
				   &ids[0][0], t->probe_count * MAX_SYMBOLS, &own) <= 0)
			continue;
		t->module_btf |= 1U << m;
		take_functions(t, ids, modules[m],
			       no_fentry || *skipped ? ZFSTRACE_KPROBE : ZFSTRACE_FENTRY);
	}
	for (unsigned int i = 0; i < t->probe_count; i++)
		if (t->probes[i].how == ZFSTRACE_KPROBE && !no_fentry)
			snprintf(t->probes[i].why, sizeof(t->probes[i].why), "%s", skipped);
}

/* Functions of the kernel for those of a module without BTF. */
static void take_stand_ins(struct zfstrace *t, bool usable)
{
	for (unsigned int i = 0; i < t->probe_count; i++) {
		struct probe *p = &t->probes[i];

		p->stands_in = p->stands_in && usable && !p->how;
		if (!p->stands_in)
			continue;
		p->symbol = p->def->kernel;
		p->module = "vmlinux";
		p->how = ZFSTRACE_FENTRY;
	}
}

void probes_leave_watched(struct zfstrace *t)
{
	bool watched[t->probe_count];

	others_find(t, NULL, watched);
	for (unsigned int i = 0; i < t->probe_count; i++) {
		struct probe *p = &t->probes[i];

		if (!watched[i])
			continue;
		snprintf(p->why, sizeof(p->why), "another trace has fentry programs there");
		p->how = p->stands_in ? ZFSTRACE_MISSING : ZFSTRACE_KPROBE;
		p->symbol = p->stands_in ? NULL : p->symbol;
		p->module = p->stands_in ? NULL : p->module;
		p->stands_in = false;
	}
}

static int find_in_kallsyms(struct zfstrace *t)
{
	const char *names[t->probe_count][MAX_SYMBOLS];
	uint32_t ids[t->probe_count][MAX_SYMBOLS];
	bool found[t->probe_count][MAX_SYMBOLS];
	FILE *f = fopen("/proc/kallsyms", "re");

	if (!f)
		return fail(t, -errno,
			    "cannot read /proc/kallsyms: %s\ncheck that /proc is mounted",
			    strerror(errno));
	memset(found, 0, sizeof(found));
	list_names(t, names, false);
	(void)symbols_find(f, &names[0][0], &found[0][0], t->probe_count * MAX_SYMBOLS);
	fclose(f);
	for (unsigned int i = 0; i < t->probe_count; i++)
		for (unsigned int j = 0; j < MAX_SYMBOLS; j++)
			ids[i][j] = found[i][j] && !t->probes[i].how;
	take_functions(t, ids, NULL, ZFSTRACE_KPROBE);
	return 0;
}

/*
 * The kernel skips an fentry program while another thread is preempted inside
 * it on the same CPU (prog->active, __bpf_prog_enter_recur); with full
 * preemption that loses a few calls in a thousand. With lazy preemption a
 * thread has to overstay a tick in the few hundred ns of a program: seldom
 * enough to try, see fall_back(). kprobes run with preemption off.
 * `modes` is the text of /sys/kernel/debug/sched/preempt, with
 * the current mode in parentheses, "" if unreadable; `version` that of
 * uname -v, which says how the kernel was built (init/Makefile): PREEMPT_RT,
 * PREEMPT (full or lazy), PREEMPT_DYNAMIC (chosen at boot), or none of these.
 * Returns why fentry programs would be skipped, "" if they are not; sets *lazy
 * if they may be, but seldom.
 */
const char *preemption(const char *modes, const char *version, bool *lazy)
{
	*lazy = strstr(modes, "(lazy)");
	if (strchr(modes, '('))
		return strstr(modes, "(full)") ? "the kernel's preemption is full" : "";
	if (strstr(version, "PREEMPT_DYNAMIC"))
		return "the kernel's preemption is not known: debugfs cannot be read";
	return strstr(version, "PREEMPT") ? "the kernel is preemptible" : "";
}

static const char *kernel_preemption(bool *lazy)
{
	FILE *f = fopen("/sys/kernel/debug/sched/preempt", "re");
	char modes[128] = "";
	struct utsname name = {};

	if (f && !fgets(modes, sizeof(modes), f))
		modes[0] = '\0';
	if (f)
		fclose(f);
	(void)uname(&name);
	return preemption(modes, name.version, lazy);
}

/* On a lazily preemptible kernel kprobes can take over from fentry programs, but only from all. */
static void settle_lazy(struct zfstrace *t)
{
	bool all = true;

	for (unsigned int i = 0; i < t->probe_count; i++)
		all = all && t->probes[i].how != ZFSTRACE_KPROBE;
	for (unsigned int i = 0; i < t->probe_count && t->config.lazy && !all; i++)
		if (t->probes[i].how == ZFSTRACE_FENTRY) {
			t->probes[i].how = ZFSTRACE_KPROBE;
			snprintf(t->probes[i].why, sizeof(t->probes[i].why),
				 "the kernel's preemption is lazy");
		}
	t->config.lazy = t->config.lazy && all;
}

int probes_resolve(struct zfstrace *t, bool no_fentry, bool survey)
{
	bool lazy;
	const char *skipped = kernel_preemption(&lazy);
	struct btf_base vmlinux;
	int err;

	if (access("/sys/module/zfs", F_OK))
		return fail(t, -ENOENT, "ZFS is not loaded\nrun `modprobe zfs`");
	err = find_in_kernel(t, &vmlinux);
	if (err)
		return err;
	/* a survey is about the host, whoever asks */
	t->btf_refused = !survey && others_refused();
	find_in_btf(t, vmlinux, no_fentry,
		    t->btf_refused ? "BTF of modules is for CAP_SYS_ADMIN only" : skipped);
	t->config.lazy = lazy && !no_fentry;
	take_stand_ins(t, !no_fentry && !*skipped && !lazy && !t->no_stand_ins);
	probes_leave_watched(t);
	if (t->module_btf != ALL_MODULES && survey) {
		err = find_in_kallsyms(t);
		if (err)
			return err;
	}
	for (unsigned int i = 0; i < t->probe_count; i++) {
		struct probe *p = &t->probes[i];

		if (p->how || p->def->tracepoint)
			continue;
		if (t->module_btf != ALL_MODULES && !survey)
			p->how = ZFSTRACE_KPROBE; /* attaching will show whether it exists */
		else if (t->probes[i].def->required && !survey)
			return fail(t, -ENOENT, "%s: this ZFS has no symbol %s",
				    t->probes[i].def->cost, t->probes[i].def->symbols[0]);
		else
			snprintf(p->why, sizeof(p->why), "no symbol %s",
				 t->probes[i].def->symbols[0]);
	}
	settle_lazy(t);
	return 0;
}

/* A missed tracepoint affects a stage only, never an operation. */
uint64_t *probes_missed(struct zfstrace *t, const struct probe_def *def)
{
	if (def->tracepoint)
		return &t->skipped;
	return def->returns ? &t->missed_returns : &t->missed_entries;
}
