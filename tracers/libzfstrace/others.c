// SPDX-License-Identifier: BSD-2-Clause
/*
 * Which functions have fentry or fexit programs already, and whether this process may add some. The
 * kernel lists programs and links to CAP_SYS_ADMIN alone. Without it no function is marked: then
 * the BTF of modules is refused as well, and of the kernel's own functions only those get programs
 * that need no exit (`kernel` in tables.c).
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* Whether a BTF object is that of a module, or of "vmlinux". */
static bool is_of(uint32_t object, const char *module)
{
	char name[64] = "";
	struct bpf_btf_info info = { .name = (uintptr_t)name, .name_len = sizeof(name) };
	uint32_t size = sizeof(info);
	int fd = bpf_btf_get_fd_by_id(object);
	bool same;

	if (fd < 0) /* unloaded meanwhile */
		return false;
	same = !bpf_obj_get_info_by_fd(fd, &info, &size) && strcmp(name, module) == 0;
	close(fd);
	return same;
}

struct search {
	const struct zfstrace *t;
	const uint32_t *own;
	bool *watched;
};

static bool same_function(const struct probe *a, const struct probe *b)
{
	return a->how == ZFSTRACE_FENTRY && b->how == ZFSTRACE_FENTRY && a->btf_id == b->btf_id &&
	       a->module == b->module;
}

/* Whether a program came before all of this trace's on the function of a probe. */
static bool came_first(const struct search *s, uint32_t program, unsigned int i)
{
	for (unsigned int j = 0; s->own && j < s->t->probe_count; j++)
		if (s->own[j] && s->own[j] <= program &&
		    same_function(&s->t->probes[i], &s->t->probes[j]))
			return false;
	return true;
}

/* A program is attached to a function, by its id in a BTF object, or is about to be. */
static void mark(const struct search *s, uint32_t program, uint32_t object, uint32_t function)
{
	for (unsigned int i = 0; i < s->t->probe_count; i++) {
		const struct probe *p = &s->t->probes[i];

		if (function && p->how == ZFSTRACE_FENTRY && p->btf_id == function &&
		    !s->watched[i] && came_first(s, program, i))
			s->watched[i] = is_of(object, p->module);
	}
}

/* By the programs, attached or about to be; false if the kernel is older than Linux 6.0, and does
 * not say of them what they attach to. */
static bool mark_by_programs(const struct search *s)
{
	bool known = true;
	uint32_t id = 0;

	while (!bpf_prog_get_next_id(id, &id)) {
		struct bpf_prog_info info = {};
		uint32_t size = sizeof(info);
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd < 0) /* it has ended */
			continue;
		if (!bpf_obj_get_info_by_fd(fd, &info, &size) &&
		    info.type == BPF_PROG_TYPE_TRACING) {
			known = known && info.attach_btf_id;
			mark(s, id, info.attach_btf_obj_id, info.attach_btf_id);
		}
		close(fd);
	}
	return known;
}

/* By what is attached; Linux 5.13 and later say to what. */
static void mark_by_links(const struct search *s)
{
	uint32_t id = 0;

	while (!bpf_link_get_next_id(id, &id)) {
		struct bpf_link_info info = {};
		uint32_t size = sizeof(info);
		int fd = bpf_link_get_fd_by_id(id);

		if (fd < 0)
			continue;
		if (!bpf_obj_get_info_by_fd(fd, &info, &size) && info.type == BPF_LINK_TYPE_TRACING)
			mark(s, info.prog_id, info.tracing.target_obj_id,
			     info.tracing.target_btf_id);
		close(fd);
	}
}

void others_find(const struct zfstrace *t, const uint32_t *own, bool *watched)
{
	const struct search search = { t, own, watched };
	bool any = false;

	memset(watched, 0, t->probe_count * sizeof(*watched));
	for (unsigned int i = 0; i < t->probe_count; i++)
		any = any || t->probes[i].how == ZFSTRACE_FENTRY;
	if (any && !mark_by_programs(&search))
		mark_by_links(&search);
}

bool others_refused(void)
{
	uint32_t id;

	return bpf_btf_get_next_id(0, &id) == -EPERM;
}
