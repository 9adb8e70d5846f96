// SPDX-License-Identifier: BSD-2-Clause
/* Begins a session: of a tracer by its name, or a survey of all. */
#include <errno.h>

#include "internal.h"

int zfstrace_start(const char *name, const struct zfstrace_opts *opts, struct zfstrace **out)
{
	const struct tracer_def *def = tracer_find(name);
	struct zfstrace *t = session_new();

	*out = t;
	if (!t)
		return -ENOMEM;
	return def ? session_start(t, def, opts) : fail(t, -EINVAL, "no tracer %s", name);
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
