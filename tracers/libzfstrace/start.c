// SPDX-License-Identifier: BSD-2-Clause
/* Begins a session: of a tracer by its name, or a survey of all. */
#include <errno.h>

#include "internal.h"

static bool has_stand_ins(const struct zfstrace *t)
{
	for (unsigned int i = 0; i < t->probe_count; i++)
		if (t->probes[i].stands_in)
			return true;
	return t->base && has_stand_ins(t->base);
}

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

/* A function of the kernel may be in its BTF and still not be one to attach to. */
int zfstrace_start(const char *name, const struct zfstrace_opts *opts, struct zfstrace **out)
{
	int err = start(name, opts, false, out);

	if (!err || err == -EPERM || !*out || !has_stand_ins(*out))
		return err;
	zfstrace_close(*out);
	return start(name, opts, true, out);
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
