// SPDX-License-Identifier: BSD-2-Clause
/*
 * Unit tests of libzfstrace beside other traces: which functions have fentry programs of somebody,
 * and what becomes of the probes there. Stand-ins for libbpf's functions list programs, links and
 * BTF objects as kernels of different ages do.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "internal.h"

/* ---- a kernel ------------------------------------------------------------ */

/* Descriptors are the ids, and so many more for links and for BTF; nothing is open twice. */
#define LINK_FDS 1000
#define BTF_FDS 2000

struct thing {
	uint32_t id, type, object, target;
	bool gone; /* as soon as one looks at it */
};

static struct {
	struct thing programs[8], links[8];
	uint32_t programs_of_links[8];
	struct {
		uint32_t id;
		const char *name;
	} btf[4];
	uint32_t program_info; /* bytes that the kernel knows of bpf_prog_info */
	bool privileged;
	unsigned int open, opened;
} kernel;

static int next(const struct thing *things, uint32_t after, uint32_t *id)
{
	uint32_t found = UINT32_MAX;

	if (!kernel.privileged)
		return -EPERM;
	for (int i = 0; i < 8; i++)
		if (things[i].id > after && things[i].id < found)
			found = things[i].id;
	if (found == UINT32_MAX)
		return -ENOENT;
	*id = found;
	return 0;
}

static const struct thing *find(const struct thing *things, uint32_t id)
{
	for (int i = 0; i < 8; i++)
		if (things[i].id == id)
			return &things[i];
	return NULL;
}

static int opened(int fd)
{
	kernel.open++;
	kernel.opened++;
	return fd;
}

int bpf_prog_get_next_id(__u32 after, __u32 *id)
{
	return next(kernel.programs, after, id);
}

int bpf_link_get_next_id(__u32 after, __u32 *id)
{
	return next(kernel.links, after, id);
}

int bpf_btf_get_next_id(__u32 after, __u32 *id)
{
	*id = after + 1;
	return kernel.privileged ? 0 : -EPERM;
}

int bpf_prog_get_fd_by_id(__u32 id)
{
	return find(kernel.programs, id)->gone ? -ENOENT : opened((int)id);
}

int bpf_link_get_fd_by_id(__u32 id)
{
	return find(kernel.links, id)->gone ? -ENOENT : opened((int)id + LINK_FDS);
}

int bpf_btf_get_fd_by_id(__u32 id)
{
	for (int i = 0; i < 4; i++)
		if (kernel.btf[i].id == id)
			return opened(BTF_FDS + i);
	return -ENOENT;
}

static void tell(void *to, uint32_t *size, const void *from, uint32_t known)
{
	memcpy(to, from, known < *size ? known : *size);
	*size = known;
}

int bpf_obj_get_info_by_fd(int fd, void *info, __u32 *size)
{
	if (fd >= BTF_FDS) {
		const struct bpf_btf_info *btf = info;

		snprintf((char *)(uintptr_t)btf->name, btf->name_len, "%s",
			 kernel.btf[fd - BTF_FDS].name);
	} else if (fd >= LINK_FDS) {
		const struct thing *one = find(kernel.links, (uint32_t)fd - LINK_FDS);
		struct bpf_link_info link = { .type = one->type };

		link.prog_id = kernel.programs_of_links[one - kernel.links];
		link.tracing.target_obj_id = one->object;
		link.tracing.target_btf_id = one->target;
		tell(info, size, &link, sizeof(link));
	} else {
		const struct thing *one = find(kernel.programs, (uint32_t)fd);
		struct bpf_prog_info prog = { .type = one->type,
					      .attach_btf_obj_id = one->object,
					      .attach_btf_id = one->target };

		tell(info, size, &prog, kernel.program_info);
	}
	return 0;
}

/* The library closes them: none of these is a file. */
int close(int fd)
{
	if (fd > 0)
		kernel.open--;
	return 0;
}

enum { VMLINUX = 1, ZFS = 7, XFS = 9 };

/* Linux 6.0 and later */
static void begin(void)
{
	memset(&kernel, 0, sizeof(kernel));
	kernel.btf[0].id = VMLINUX;
	kernel.btf[0].name = "vmlinux";
	kernel.btf[1].id = ZFS;
	kernel.btf[1].name = "zfs";
	kernel.btf[2].id = XFS;
	kernel.btf[2].name = "xfs";
	kernel.program_info = sizeof(struct bpf_prog_info);
	kernel.privileged = true;
}

/* ---- which functions ----------------------------------------------------- */

static struct probe probes[] = {
	{ .how = ZFSTRACE_FENTRY, .module = "zfs", .btf_id = 140001 },
	{ .how = ZFSTRACE_FENTRY, .module = "zfs", .btf_id = 140002 },
	{ .how = ZFSTRACE_FENTRY, .module = "vmlinux", .btf_id = 55 },
	{ .how = ZFSTRACE_KPROBE, .module = "zfs", .btf_id = 140002 },
	{ .how = ZFSTRACE_TRACEPOINT },
};

/* A bit for each. */
static unsigned int watched_before(const uint32_t *own)
{
	const struct zfstrace t = { .probes = probes, .probe_count = ARRAY_SIZE(probes) };
	bool found[ARRAY_SIZE(probes)] = { true, true, true, true, true };
	unsigned int bits = 0;

	others_find(&t, own, found);
	for (unsigned int i = 0; i < ARRAY_SIZE(probes); i++)
		bits |= (unsigned int)found[i] << i;
	CHECK(kernel.open == 0);
	return bits;
}

static unsigned int watched(void)
{
	return watched_before(NULL);
}

static void test_programs_of_others(void)
{
	begin();
	CHECK(watched() == 0);
	kernel.programs[0] = (struct thing) { 3, BPF_PROG_TYPE_TRACING, ZFS, 140002, false };
	CHECK(watched() == 2);
	kernel.programs[1] = (struct thing) { 5, BPF_PROG_TYPE_TRACING, VMLINUX, 55, false };
	CHECK(watched() == 6);
	/* another module's function has the number, too */
	kernel.programs[2] = (struct thing) { 6, BPF_PROG_TYPE_TRACING, XFS, 140001, false };
	/* a module that is unloaded, a program that has ended, and one that is no trace */
	kernel.programs[3] = (struct thing) { 7, BPF_PROG_TYPE_TRACING, 99, 140001, false };
	kernel.programs[4] = (struct thing) { 8, BPF_PROG_TYPE_TRACING, ZFS, 140001, true };
	kernel.programs[5] = (struct thing) { 9, BPF_PROG_TYPE_KPROBE, ZFS, 140001, false };
	CHECK(watched() == 6);
	/* links are not needed where programs tell */
	kernel.links[0] = (struct thing) { 2, BPF_LINK_TYPE_TRACING, ZFS, 140001, false };
	CHECK(watched() == 6);
	kernel.programs[6] = (struct thing) { 12, BPF_PROG_TYPE_TRACING, ZFS, 140001, false };
	CHECK(watched() == 7);
}

/* Linux before 6.0: programs do not say what they attach to; links do, from 5.13 on. */
static void test_links_of_others(void)
{
	begin();
	kernel.program_info = offsetof(struct bpf_prog_info, attach_btf_obj_id);
	kernel.links[0] = (struct thing) { 2, BPF_LINK_TYPE_TRACING, ZFS, 140001, false };
	kernel.links[1] = (struct thing) { 3, BPF_LINK_TYPE_TRACING, ZFS, 140002, true };
	kernel.links[2] = (struct thing) { 4, BPF_LINK_TYPE_PERF_EVENT, ZFS, 140002, false };
	kernel.links[3] = (struct thing) { 5, BPF_LINK_TYPE_TRACING, VMLINUX, 55, false };
	CHECK(watched() == 0); /* no program, no link of one */
	kernel.programs[0] = (struct thing) { 3, BPF_PROG_TYPE_TRACING, ZFS, 140001, false };
	CHECK(watched() == 5);
	kernel.links[0].target = kernel.links[3].target = 0;
	CHECK(watched() == 0);
}

/* Of two traces that have loaded programs at once, each gives way where its own are the second. A
 * function has up to two of a trace, at its entry and its return. */
static void test_the_first_program_counts(void)
{
	static const struct {
		uint32_t entry, exit, other; /* ids of programs */
		unsigned int watched;
	} cases[] = {
		{ 20, 21, 0, 0 },  { 20, 21, 22, 0 }, /* later */
		{ 20, 22, 21, 0 },		      /* between mine, which the other one sees */
		{ 21, 22, 20, 3 },		      /* before: both ends are the other's */
		{ 0, 22, 20, 2 },		      /* no program at the entry */
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		const uint32_t own[] = { cases[i].entry, cases[i].exit, 0, 0, 0 };
		const uint32_t ids[] = { own[0], own[1], cases[i].other };

		begin();
		probes[0].how = own[0] ? ZFSTRACE_FENTRY : ZFSTRACE_MISSING;
		probes[1].btf_id = 140001;
		for (unsigned int j = 0; j < 3; j++)
			kernel.programs[j] = (struct thing) { ids[j], BPF_PROG_TYPE_TRACING, ZFS,
							      140001, false };
		CHECK(watched_before(own) == cases[i].watched);
		probes[0].how = ZFSTRACE_FENTRY;
		probes[1].btf_id = 140002;
	}
	/* by links */
	begin();
	kernel.program_info = offsetof(struct bpf_prog_info, attach_btf_obj_id);
	kernel.programs[0] = (struct thing) { 18, BPF_PROG_TYPE_TRACING, 0, 0, false };
	kernel.links[0] = (struct thing) { 2, BPF_LINK_TYPE_TRACING, ZFS, 140001, false };
	kernel.links[1] = (struct thing) { 3, BPF_LINK_TYPE_TRACING, ZFS, 140002, false };
	kernel.programs_of_links[0] = 20;
	kernel.programs_of_links[1] = 18;
	CHECK(watched_before((const uint32_t[]) { 20, 20, 0, 0, 0 }) == 2);
}

static void test_without_privilege_none_is_marked(void)
{
	begin();
	CHECK(!others_refused());
	kernel.programs[0] = (struct thing) { 3, BPF_PROG_TYPE_TRACING, ZFS, 140002, false };
	kernel.privileged = false;
	CHECK(watched() == 0);
	CHECK(others_refused());
}

/* ---- what becomes of probes ---------------------------------------------- */

static void test_probes_leave_watched_functions(void)
{
	static const struct probe_def defs[] = {
		{ .name = "zil_commit", .symbols = { "zil_commit" } },
		{ .name = "zil_commit:return", .symbols = { "zil_commit" }, .returns = true },
		{ .name = "zil_free", .symbols = { "zil_free" } },
		{ .name = "cv_wait", .symbols = { "__cv_wait" } },
		{ .name = "lock", .symbols = { "contention_begin" }, .tracepoint = true },
	};
	struct probe mine[] = {
		{ &defs[0], .how = ZFSTRACE_FENTRY, .module = "zfs", .btf_id = 140002 },
		{ &defs[1], .how = ZFSTRACE_FENTRY, .module = "zfs", .btf_id = 140002 },
		{ &defs[2], .how = ZFSTRACE_FENTRY, .module = "zfs", .btf_id = 140001 },
		{ &defs[3], .how = ZFSTRACE_FENTRY, .module = "vmlinux", .btf_id = 55,
		  .stands_in = true },
		{ &defs[4], .how = ZFSTRACE_TRACEPOINT },
	};
	struct zfstrace t = { .probes = mine, .probe_count = ARRAY_SIZE(mine) };

	for (unsigned int i = 0; i < ARRAY_SIZE(mine); i++)
		mine[i].symbol = defs[i].symbols[0];
	begin();
	kernel.programs[0] = (struct thing) { 3, BPF_PROG_TYPE_TRACING, ZFS, 140002, false };
	kernel.programs[1] = (struct thing) { 4, BPF_PROG_TYPE_TRACING, VMLINUX, 55, false };
	probes_leave_watched(&t);
	/* both ends of a function */
	for (int i = 0; i < 2; i++) {
		CHECK(mine[i].how == ZFSTRACE_KPROBE && mine[i].symbol);
		CHECK(strcmp(mine[i].why, "another trace has fentry programs there") == 0);
	}
	CHECK(mine[2].how == ZFSTRACE_FENTRY && !*mine[2].why);
	/* the function for which it stood in is looked for again */
	CHECK(!mine[3].how && !mine[3].symbol && !mine[3].module && !mine[3].stands_in);
	CHECK(*mine[3].why);
	CHECK(mine[4].how == ZFSTRACE_TRACEPOINT && !*mine[4].why);
}

/* A trace by kprobes alone need not ask. */
static void test_kprobes_ask_nobody(void)
{
	static const struct probe_def def = { .name = "zil_commit", .symbols = { "zil_commit" } };
	struct probe probe = { &def, .how = ZFSTRACE_KPROBE, .module = "zfs", .btf_id = 140002 };
	struct zfstrace t = { .probes = &probe, .probe_count = 1 };

	begin();
	kernel.programs[0] = (struct thing) { 3, BPF_PROG_TYPE_TRACING, ZFS, 140002, false };
	probes_leave_watched(&t);
	CHECK(probe.how == ZFSTRACE_KPROBE && !*probe.why && kernel.opened == 0);
}

int main(void)
{
	test_programs_of_others();
	test_links_of_others();
	test_the_first_program_counts();
	test_without_privilege_none_is_marked();
	test_probes_leave_watched_functions();
	test_kprobes_ask_nobody();
	return checked("C unit tests (others)");
}
