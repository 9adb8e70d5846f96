// SPDX-License-Identifier: BSD-2-Clause
/*
 * Unit tests of how libzfstrace attaches probes, and attaches them in another way while it counts.
 * Stand-ins for functions of libbpf and libc are a kernel that skips fentry programs, without
 * perf events, and without tracefs but for the misses of kprobes.
 */
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "internal.h"

/* ---- a kernel ------------------------------------------------------------ */

/* Descriptors of programs are their places here. */
static struct program {
	const char *name;
	bool attached;
	unsigned int skipped;
} programs[] = {
	{ .name = "fentry_zil_commit" }, { .name = "fentry_zil_commit_return" },
	{ .name = "kprobe_zil_commit" }, { .name = "kprobe_zil_commit_return" },
	{ .name = "perf_sample" },	 { .name = "kprobe_zil_free" },
	{ .name = "fentry_zil_free" },
};

static int counting;   /* what `enabled` is set to */
static bool profiled;  /* whether there is kprobe_profile: two misses of each kprobe */
static bool no_fentry; /* whether fentry programs can be loaded only */

static void begin(void)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(programs); i++) {
		programs[i].attached = false;
		programs[i].skipped = 0;
	}
	counting = 0;
}

/* Once for each fentry program. */
static void skip(void)
{
	for (unsigned int i = 0; i < 2; i++)
		programs[i].skipped += programs[i].attached;
}

static struct bpf_link *attach(const struct bpf_program *prog)
{
	struct program *p = (struct program *)(uintptr_t)prog;

	CHECK(!p->attached);
	p->attached = true;
	return (struct bpf_link *)p;
}

struct bpf_program *bpf_object__find_program_by_name(const struct bpf_object *object,
						     const char *name)
{
	(void)object;
	for (unsigned int i = 0; i < ARRAY_SIZE(programs); i++)
		if (strcmp(programs[i].name, name) == 0)
			return (struct bpf_program *)&programs[i];
	abort();
}

int bpf_program__fd(const struct bpf_program *prog)
{
	return (int)((const struct program *)prog - programs);
}

int bpf_obj_get_info_by_fd(int fd, void *info, __u32 *size)
{
	(void)size;
	((struct bpf_prog_info *)info)->recursion_misses = programs[fd].skipped;
	return 0;
}

struct bpf_link *bpf_program__attach(const struct bpf_program *prog)
{
	if (!no_fentry)
		return attach(prog);
	errno = 524; /* ENOTSUPP, which user space's errno.h does not have */
	return NULL;
}

/* It takes a while, in which operations go on. */
struct bpf_link *bpf_program__attach_kprobe(const struct bpf_program *prog, bool returns,
					    const char *symbol)
{
	(void)returns;
	(void)symbol;
	skip();
	return attach(prog);
}

int bpf_link__destroy(struct bpf_link *link)
{
	if (link)
		((struct program *)link)->attached = false;
	return 0;
}

int bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	(void)fd;
	(void)key;
	(void)flags;
	memcpy(&counting, value, sizeof(counting));
	return 0;
}

int access(const char *path, int mode)
{
	(void)path;
	(void)mode;
	errno = ENOENT;
	return profiled ? 0 : -1;
}

FILE *fopen(const char *path, const char *mode)
{
	static char text[256];
	int length = 0;

	(void)path;
	(void)mode;
	if (!profiled)
		return NULL;
	for (unsigned int i = 0; i < ARRAY_SIZE(programs); i++)
		if (programs[i].attached)
			length += snprintf(text + length, sizeof(text) - length, "zt%ld_0_%s 9 2\n",
					   (long)getpid(), strchr(programs[i].name, '_') + 1);
	return fmemopen(text, length, "r");
}

/* perf_event_open(2) */
long syscall(long number, ...)
{
	(void)number;
	errno = EMFILE;
	return -1;
}

/* ---- attaching ----------------------------------------------------------- */

static const struct probe_def defs[] = {
	{ .name = "zil_commit",
	  .symbols = { "zil_commit" },
	  .program = "zil_commit",
	  .required = true,
	  .cost = "nothing can be measured" },
	{ .name = "zil_commit:return",
	  .symbols = { "zil_commit" },
	  .program = "zil_commit_return",
	  .returns = true,
	  .required = true,
	  .cost = "nothing can be measured" },
	{ .name = "cpu-clock",
	  .symbols = { "cpu-clock" },
	  .program = "sample",
	  .hz = 99,
	  .required = true,
	  .cost = "no samples" },
	{ .name = "zil_free",
	  .symbols = { "zil_free" },
	  .program = "zil_free",
	  .stays = true,
	  .cost = "what is no longer in use keeps its room" },
};

/* What the kernel skips is lost, and counted, until the last fentry program has counted. */
static void test_kprobes_take_over(void)
{
	struct probe probes[2] = { { .def = &defs[0] }, { .def = &defs[1] } };
	struct zfstrace t = { .def = tracer_find("arc"),
			      .probes = probes,
			      .probe_count = 2,
			      .turn = COUNT_FENTRY,
			      .config = { .lazy = true } };
	struct zfstrace_losses losses;

	for (unsigned int i = 0; i < 2; i++) {
		probes[i].how = ZFSTRACE_FENTRY;
		probes[i].symbol = defs[i].symbols[0];
		probes[i].perf_fd = -1;
	}
	begin();
	CHECK(session_attach(&t) == 0 && counting == COUNT_FENTRY);
	CHECK(zfstrace_tidy(&t) == 0 && counting == COUNT_FENTRY);
	skip();
	CHECK(zfstrace_tidy(&t) == 1 && counting == COUNT_KPROBE);
	CHECK(!programs[0].attached && !programs[1].attached);
	CHECK(programs[2].attached && programs[3].attached);
	/* one before, and one at each of two probes that were attached */
	CHECK(programs[0].skipped == 3 && programs[1].skipped == 3);
	for (unsigned int i = 0; i < 2; i++) {
		CHECK(zfstrace_refresh(&t) == 0);
		zfstrace_losses(&t, &losses);
		CHECK(losses.missed == 6);
	}
	CHECK(zfstrace_tidy(&t) == 0);
	session_detach(&t);
	CHECK(!programs[2].attached && !programs[3].attached);
}

/* Who goes on before the last operation has ended counts on. */
static void test_a_pause_is_called_off(void)
{
	struct counters counters = { .started = 1 };
	struct probe missing = { .def = &defs[0], .perf_fd = -1 };
	struct zfstrace t = { .def = tracer_find("fsync"),
			      .probes = &missing,
			      .probe_count = 1,
			      .cpus = 1,
			      .turn = COUNT_FENTRY };

	for (unsigned int i = 0; i < t.def->map_count; i++)
		if (strcmp(t.def->maps[i].name, "counters") == 0)
			t.maps[i].at = &counters;
	begin();
	CHECK(session_attach(&t) == 0 && counting == COUNT_FENTRY);
	CHECK(zfstrace_pause(&t, false) == 1 && counting == 0);
	CHECK(zfstrace_resume(&t) == 0 && counting == COUNT_FENTRY);
	counters.finished = 1;
	CHECK(zfstrace_pause(&t, false) == 0 && counting == 0 && t.cut == 0);
	CHECK(zfstrace_resume(&t) == 0 && counting == COUNT_FENTRY);
}

/* Others would count what a pause has cut. */
static void test_only_fsyncs_can_be_paused(void)
{
	for (unsigned int i = 0; i < tracer_count; i++) {
		struct zfstrace t = { .def = &tracer_defs[i] };

		CHECK(zfstrace_pause(&t, true) == (i ? -EINVAL : 0));
	}
}

/* Datasets go in a pause, too. */
static void test_a_pause_sees_datasets_go(void)
{
	struct probe probes[2] = { { .def = &defs[0] }, { .def = &defs[3] } };
	struct zfstrace t = { .def = tracer_find("fsync"),
			      .probes = probes,
			      .probe_count = 2,
			      .turn = COUNT_KPROBE };

	for (unsigned int i = 0; i < 2; i++) {
		probes[i].how = ZFSTRACE_KPROBE;
		probes[i].perf_fd = -1;
	}
	begin();
	CHECK(session_attach(&t) == 0);
	for (unsigned int i = 0; i < 2; i++) {
		CHECK(programs[2].attached && programs[5].attached);
		profiled = true;
		CHECK(zfstrace_pause(&t, true) == 0);
		CHECK(!programs[2].attached && programs[5].attached);
		session_count_missed(&t); /* none twice */
		CHECK(t.missed_entries == 2 * (i + 1) + 2);
		profiled = false;
		CHECK(zfstrace_resume(&t) == 0);
	}
	session_detach(&t);
	CHECK(!programs[2].attached && !programs[5].attached);
}

/* zfstrace_start() then begins again, with kprobes: also where a probe is not required. */
static void test_no_fentry(void)
{
	struct probe probe = {
		.def = &defs[3], .how = ZFSTRACE_FENTRY, .symbol = "zil_free", .perf_fd = -1
	};
	struct zfstrace t = { .probes = &probe, .probe_count = 1 };

	begin();
	no_fentry = true;
	CHECK(session_attach(&t) == -ENOTSUP);
	no_fentry = false;
}

/* An error says what the kernel has said. */
static void test_no_samples(void)
{
	struct probe probe = { .def = &defs[2], .how = ZFSTRACE_SAMPLING, .perf_fd = -1 };
	struct zfstrace t = { .probes = &probe, .probe_count = 1, .cpus = 2 };

	begin();
	CHECK(session_attach(&t) == -EIO);
	CHECK(strcmp(zfstrace_error(&t),
		     "no samples: cannot attach to cpu-clock (Too many open files)") == 0);
	session_detach(&t);
}

int main(void)
{
	test_kprobes_take_over();
	test_a_pause_is_called_off();
	test_only_fsyncs_can_be_paused();
	test_a_pause_sees_datasets_go();
	test_no_fentry();
	test_no_samples();
	return checked("C unit tests (attaching)");
}
