// SPDX-License-Identifier: BSD-2-Clause
/* Begins a session: of a tracer by its name, or a survey of all. */
#include <errno.h>
#include <stdio.h>

#include "internal.h"

static bool has_stand_ins(const struct zfstrace *t)
{
	for (unsigned int i = 0; i < t->probe_count; i++)
		if (t->probes[i].stands_in)
			return true;
	return t->base && has_stand_ins(t->base);
}

/* Attempts to begin beside traces that begin in the same instant; then kprobes, which nobody can
 * forestall. */
#define ATTEMPTS 3

static int start(const char *name, const struct zfstrace_opts *opts, bool no_stand_ins,
		 struct zfstrace **out)
{
	const struct tracer_def *def = tracer_find(name);
	struct zfstrace *t = session_new();

	*out = t;
	if (!t)
		return -ENOMEM;
	t->no_stand_ins = no_stand_ins;
	return def ? session_start(t, def, opts) : fail(t, -EINVAL, "no tracer %s", name);
}

static int start_with_kprobes(const char *name, const struct zfstrace_opts *opts, bool no_stand_ins,
			      const char *why, struct zfstrace **out)
{
	struct zfstrace_opts kprobes = *opts;
	int err;

	kprobes.no_fentry = true;
	err = start(name, &kprobes, no_stand_ins, out);
	for (struct zfstrace *t = *out; t; t = t->base)
		for (unsigned int i = 0; i < t->probe_count; i++)
			if (t->probes[i].how == ZFSTRACE_KPROBE)
				snprintf(t->probes[i].why, sizeof(t->probes[i].why), "%s", why);
	return err;
}

static int start_beside(const char *name, const struct zfstrace_opts *opts, bool no_stand_ins,
			struct zfstrace **out)
{
	int err = start(name, opts, no_stand_ins, out);

	for (int i = 1; err == -EAGAIN && i < ATTEMPTS; i++) {
		zfstrace_close(*out);
		err = start(name, opts, no_stand_ins, out);
	}
	if (err != -EAGAIN)
		return err;
	zfstrace_close(*out);
	return start_with_kprobes(name, opts, no_stand_ins, "other traces began at the same time",
				  out);
}

/* A function of the kernel may be in its BTF and still not be one to attach to. */
int zfstrace_start(const char *name, const struct zfstrace_opts *opts, struct zfstrace **out)
{
	int err = start_beside(name, opts, false, out);

	if (err == -ENOTSUP) {
		zfstrace_close(*out);
		return start_with_kprobes(name, opts, true,
					  "this kernel cannot attach fentry programs", out);
	}
	if (!err || err == -EPERM || !*out || !has_stand_ins(*out))
		return err;
	zfstrace_close(*out);
	return start_beside(name, opts, true, out);
}

int zfstrace_survey(struct zfstrace **out)
{
	struct zfstrace *t = session_new();
	int err;

	*out = t;
	if (!t)
		return -ENOMEM;
	t->config.mode = UINT32_MAX; /* the probes of all modes */
	err = probes_list(t, tracer_defs, tracer_count);
	return err ? err : probes_resolve(t, false, true);
}
