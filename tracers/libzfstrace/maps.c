// SPDX-License-Identifier: BSD-2-Clause
/* The maps of a session: how large they are, which it shares, and where they are mapped. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

static unsigned int map_entries(const struct zfstrace *t, const struct map_def *m)
{
	if (m->per_slot)
		return t->config.slots * (m->per_cpu ? t->config.lanes : 1);
	return m->per_cpu ? (unsigned int)t->cpus : 1;
}

/* A ring buffer is a power of two of pages; one page is enough where nobody reads it. */
static uint32_t ring_size(const struct zfstrace *t, const struct zfstrace_opts *opts)
{
	uint32_t bytes = (uint32_t)sysconf(_SC_PAGESIZE), want = t->def->ring_bytes;

	if (!want && opts->slow_ns)
		want = opts->slow_buffer ? opts->slow_buffer : 1U << 20;
	while (bytes < want && bytes < 1U << 31)
		bytes *= 2;
	return bytes;
}

/* Each CPU that inserts into an LRU map reserves 128 of its entries (LOCAL_FREE_TARGET,
 * kernel/bpf/bpf_lru_list.c); when none are left, live ones are evicted. That costs another look at
 * a dataset, so beyond 64 CPUs memory counts for more: an entry takes some 90 bytes. */
#define LRU_MOST 16384

int maps_size_lru(struct zfstrace *t)
{
	unsigned int least = 256 * (unsigned int)t->cpus;
	struct bpf_map *map;
	int err = 0;

	least = least < LRU_MOST ? least : LRU_MOST;
	bpf_object__for_each_map(map, t->object)
	{
		if (bpf_map__type(map) == BPF_MAP_TYPE_LRU_HASH &&
		    bpf_map__max_entries(map) < least)
			err |= bpf_map__set_max_entries(map, least);
	}
	return err;
}

int maps_size(struct zfstrace *t, const struct zfstrace_opts *opts)
{
	struct bpf_map *config = bpf_object__find_map_by_name(t->object, ".rodata.config");
	int err = maps_size_lru(t);

	for (unsigned int i = 0; i < t->def->map_count; i++) {
		const struct map_def *m = &t->def->maps[i];

		err |= bpf_map__set_max_entries(bpf_object__find_map_by_name(t->object, m->name),
						map_entries(t, m));
	}
	if (t->def->ring)
		err |= bpf_map__set_max_entries(
			bpf_object__find_map_by_name(t->object, t->def->ring), ring_size(t, opts));
	err |= bpf_map__set_initial_value(config, &t->config, sizeof(t->config));
	return err ? fail(t, -EINVAL,
			  "the library is broken: its BPF programs do not match it\nrebuild it")
		   : 0;
}

int maps_fd(const struct zfstrace *t, const char *name)
{
	return t->object && name ? bpf_object__find_map_fd_by_name(t->object, name) : -ENOENT;
}

/* The maps of the base take the place of the object's own. */
int maps_share(struct zfstrace *t)
{
	for (unsigned int i = 0; t->base && i < MAX_MAPS && t->def->shared[i]; i++) {
		struct bpf_map *map = bpf_object__find_map_by_name(t->object, t->def->shared[i]);
		int err = bpf_map__reuse_fd(map, maps_fd(t->base, t->def->shared[i]));

		if (err)
			return fail(t, err, "cannot share the map %s: %s", t->def->shared[i],
				    strerror(-err));
	}
	return 0;
}

int maps_map(struct zfstrace *t)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (unsigned int i = 0; i < t->def->map_count; i++) {
		const struct map_def *m = &t->def->maps[i];
		size_t bytes = map_entries(t, m) * m->entry_bytes;
		void *at;

		bytes = (bytes + page - 1) / page * page;
		at = mmap(NULL, bytes, PROT_READ | (m->writable ? PROT_WRITE : 0), MAP_SHARED,
			  maps_fd(t, m->name), 0);
		if (at == MAP_FAILED)
			return fail(t, -errno, "cannot map the counters: %s", strerror(errno));
		t->maps[i].at = at;
		t->maps[i].bytes = bytes;
		t->maps[i].entries = map_entries(t, m);
	}
	return 0;
}

void maps_unmap(struct zfstrace *t)
{
	for (unsigned int i = 0; i < MAX_MAPS; i++)
		if (t->maps[i].at)
			munmap(t->maps[i].at, t->maps[i].bytes);
}

void *zfstrace_table(const struct zfstrace *t, const char *name, unsigned int *entries,
		     size_t *entry_bytes)
{
	for (unsigned int i = 0; t->def && i < t->def->map_count; i++) {
		if (strcmp(t->def->maps[i].name, name) != 0)
			continue;
		if (entries)
			*entries = t->maps[i].entries;
		if (entry_bytes)
			*entry_bytes = t->def->maps[i].entry_bytes;
		return t->maps[i].at;
	}
	return NULL;
}

void *maps_find(const struct zfstrace *t, const char *name)
{
	return zfstrace_table(t, name, NULL, NULL);
}
