// SPDX-License-Identifier: BSD-2-Clause
/* Which BPF programs serve the probes of a session. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

bool programs_shared(const struct probe *p)
{
	return p->stands_in && !p->def->stand_in;
}

struct bpf_program *programs_find(const struct zfstrace *t, unsigned int i)
{
	static const char *const prefix[] = {
		[ZFSTRACE_FENTRY] = "fentry_",
		[ZFSTRACE_KPROBE] = "kprobe_",
		[ZFSTRACE_TRACEPOINT] = "tp_",
		[ZFSTRACE_SAMPLING] = "perf_",
	};
	const struct probe *p = &t->probes[i];
	const char *program = p->stands_in ? p->def->stand_in : p->def->program;
	char name[64];

	if (!p->how || !program)
		return NULL;
	snprintf(name, sizeof(name), "%s%s", prefix[p->how], program);
	return bpf_object__find_program_by_name(t->object, name);
}

/* The kprobe program of a probe that has an fentry program which the kernel may skip. */
static struct bpf_program *next_program(const struct zfstrace *t, unsigned int i)
{
	char name[64];

	if (!t->config.lazy || t->probes[i].how != ZFSTRACE_FENTRY)
		return NULL;
	snprintf(name, sizeof(name), "kprobe_%s", t->probes[i].def->program);
	return bpf_object__find_program_by_name(t->object, name);
}

/* Of two traces that begin at once, the one whose program is the second on a function gives way. */
bool programs_late(const struct zfstrace *t)
{
	uint32_t ids[t->probe_count];
	bool watched[t->probe_count];

	for (unsigned int i = 0; i < t->probe_count; i++) {
		const struct bpf_program *prog = programs_find(t, i);
		struct bpf_prog_info info = {};
		uint32_t size = sizeof(info);

		if (prog && t->probes[i].how == ZFSTRACE_FENTRY)
			(void)bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &size);
		ids[i] = info.id;
	}
	others_find(t, ids, watched);
	return memchr(watched, true, t->probe_count);
}

int programs_refused(struct zfstrace *t, int err)
{
	if (err == -EPERM) /* EACCES is the verifier's */
		return fail(t, -EPERM,
			    "cannot load or attach BPF programs: not privileged\n"
			    "run as root, or with CAP_SYS_ADMIN and CAP_DAC_OVERRIDE");
	return fail(t, err,
		    "the kernel refused the BPF programs: %s\n"
		    "set ZFSTUNE_DEBUG=1 to see the verifier's log",
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

int programs_choose(struct zfstrace *t)
{
	struct bpf_program *prog, *prog_next;

	bpf_object__for_each_program(prog, t->object) bpf_program__set_autoload(prog, false);
	for (unsigned int i = 0; i < t->probe_count; i++) {
		prog_next = next_program(t, i);
		if (prog_next)
			bpf_program__set_autoload(prog_next, true);
		if (!t->probes[i].how || programs_shared(&t->probes[i]))
			continue;
		prog = programs_find(t, i);
		if (!prog)
			return fail(t, -EINVAL,
				    "no BPF program for %s: the library is broken\nrebuild it",
				    t->probes[i].def->name);
		bpf_program__set_autoload(prog, true);
		if (t->probes[i].how == ZFSTRACE_FENTRY) {
			int err = set_target(prog, &t->probes[i]);

			if (err == -EPERM)
				return programs_refused(t, err);
			if (err)
				return fail(t, err, "cannot find %s in the BTF of %s",
					    t->probes[i].symbol, t->probes[i].module);
		}
	}
	return 0;
}
