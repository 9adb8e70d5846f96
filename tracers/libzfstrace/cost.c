// SPDX-License-Identifier: BSD-2-Clause
/* What the programs of a session cost, by the kernel's own count. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

int zfstrace_count_cost(struct zfstrace *t)
{
	int fd;

	if (!t->attached)
		return fail(t, -EINVAL, "cannot count what tracing costs: nothing is attached");
	if (t->stats_fd >= 0)
		return 0;
	fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (fd == -EINVAL) /* no such command of bpf(2) */
		return fail(t, -ENOTSUP,
			    "cannot count what tracing costs: the kernel is older than Linux 5.8");
	if (fd == -EPERM)
		return fail(t, fd,
			    "cannot count what tracing costs: it is for CAP_SYS_ADMIN only\n"
			    "run as root, or with CAP_SYS_ADMIN");
	if (fd < 0)
		return fail(t, fd, "cannot count what tracing costs: %s", strerror(-fd));
	t->stats_fd = fd;
	return 0;
}

void zfstrace_end_cost(struct zfstrace *t)
{
	if (t->stats_fd >= 0)
		close(t->stats_fd);
	t->stats_fd = -1;
}

int zfstrace_cost(struct zfstrace *t, unsigned int i, struct zfstrace_cost *c)
{
	struct bpf_prog_info info = {};
	uint32_t size = sizeof(info);
	struct bpf_program *prog;

	*c = (struct zfstrace_cost) {};
	if (i >= t->probe_count && t->base) {
		int err = zfstrace_cost(t->base, i - t->probe_count, c);

		return err ? fail(t, err, "%s", t->base->error) : 0;
	}
	if (!t->attached || i >= t->probe_count)
		return fail(t, -EINVAL, "cannot tell what a probe costs: there is no probe %u", i);
	prog = programs_find(t, i);
	if (!prog) /* missing */
		return 0;
	if (bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &size))
		return fail(t, -errno, "cannot tell what %s costs: %s", t->probes[i].def->name,
			    strerror(errno));
	*c = (struct zfstrace_cost) { .runs = info.run_cnt, .run_ns = info.run_time_ns };
	return 0;
}
