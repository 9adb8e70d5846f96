// SPDX-License-Identifier: BSD-2-Clause
/* Runs a BPF program on every CPU at regular intervals. */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

/* A link owns its perf event. */
static struct bpf_link *attach_cpu(struct bpf_program *prog, unsigned int hz, int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1,
		.sample_freq = hz,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	struct bpf_link *link;
	int err;

	if (fd < 0)
		return NULL;
	link = bpf_program__attach_perf_event(prog, fd);
	if (link)
		return link;
	err = errno;
	close(fd);
	errno = err;
	return NULL;
}

int sampler_attach(struct zfstrace *t, struct bpf_program *prog, unsigned int hz)
{
	t->samplers = calloc((size_t)t->cpus, sizeof(struct bpf_link *));
	if (!t->samplers)
		return -ENOMEM;
	for (int cpu = 0; cpu < t->cpus; cpu++) {
		t->samplers[cpu] = attach_cpu(prog, hz, cpu);
		if (!t->samplers[cpu] && errno != ENODEV) /* a possible CPU may be absent */
			return -errno;
	}
	return 0;
}

void sampler_detach(struct zfstrace *t)
{
	for (int cpu = 0; t->samplers && cpu < t->cpus; cpu++)
		bpf_link__destroy(t->samplers[cpu]);
	free(t->samplers);
	t->samplers = NULL;
}
