// SPDX-License-Identifier: BSD-2-Clause
/* The kernel's part for BPF programs that run as functions: see bpf/bpf_helpers.h. */
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "shim.h"
#include "../../tracers/bpf/zfs_views.h"

__u64 shim_now = 1000000000, shim_tgid = 100, shim_tid = 100, shim_stack = 1, shim_walk_ns;
unsigned int shim_cpu, shim_reads, shim_index_looks;
int shim_btf = 1, shim_full;
void *shim_index;
void (*shim_before_insert)(void);

#define CPUS 4 /* that per-CPU maps have room for */

struct map {
	void *id;
	int array, per_cpu, lru;
	size_t key, value;
	unsigned int max, count;
	char *keys, *values;
};

static struct map maps[16];
static unsigned int sizes[16];

static struct map *map_of(void *id)
{
	for (unsigned int i = 0; i < 16; i++)
		if (!maps[i].id || maps[i].id == id)
			return &maps[i];
	abort();
}

void shim_size(void *id, unsigned int max)
{
	struct map *m = map_of(id);

	m->id = id;
	sizes[m - maps] = max;
}

static int is_array(int type)
{
	return type == BPF_MAP_TYPE_ARRAY || type == BPF_MAP_TYPE_PERCPU_ARRAY;
}

static struct map *make(void *id, int type, size_t key, size_t value, unsigned int max)
{
	struct map *m = map_of(id);

	if (m->values)
		return m;
	m->id = id;
	m->array = is_array(type);
	m->per_cpu = type == BPF_MAP_TYPE_PERCPU_ARRAY;
	m->lru = type == BPF_MAP_TYPE_LRU_HASH;
	m->key = key;
	m->value = value;
	m->max = sizes[m - maps] ? sizes[m - maps] : max;
	m->keys = calloc(m->max, key);
	m->values = calloc(m->max * (m->per_cpu ? CPUS : 1), value);
	return m->keys && m->values ? m : (abort(), m);
}

static void *find(struct map *m, const void *key)
{
	unsigned int n;

	if (m->array) {
		memcpy(&n, key, sizeof(n));
		if (n >= m->max)
			return NULL;
		n += m->per_cpu ? shim_cpu % CPUS * m->max : 0;
		return m->values + n * m->value;
	}
	for (n = 0; n < m->count; n++)
		if (memcmp(m->keys + n * m->key, key, m->key) == 0)
			return m->values + n * m->value;
	return NULL;
}

static void drop(struct map *m, unsigned int n)
{
	m->count--;
	memmove(m->keys + n * m->key, m->keys + (n + 1) * m->key, (m->count - n) * m->key);
	memmove(m->values + n * m->value, m->values + (n + 1) * m->value,
		(m->count - n) * m->value);
}

static long insert(struct map *m, const void *key, const void *value, __u64 flags)
{
	void *at = find(m, key);

	if (at && flags == BPF_NOEXIST)
		return -EEXIST;
	if (!at) {
		if (m->count == m->max && !m->lru)
			return -E2BIG;
		if (m->count == m->max)
			drop(m, 0);
		memcpy(m->keys + m->count * m->key, key, m->key);
		at = m->values + m->count++ * m->value;
	}
	memcpy(at, value, m->value);
	return 0;
}

void *shim_map(int op, void *id, int type, size_t key, size_t value, unsigned int max,
	       const void *at, const void *what, __u64 flags)
{
	struct map *m = make(id, type, key, value, max);
	void (*hook)(void) = shim_before_insert;
	char *found;

	if (op == LOOKUP && id == shim_index)
		shim_index_looks++;
	if (op == UPDATE && id == shim_index && hook) {
		shim_before_insert = NULL;
		hook();
	}
	if (op == UPDATE)
		return (void *)insert(m, at, what, flags);
	found = find(m, at);
	if (op == LOOKUP)
		return found;
	if (found)
		drop(m, (unsigned int)((size_t)(found - m->values) / m->value));
	return found ? NULL : (void *)(long)-ENOENT;
}

const void *shim_entry(void *id, unsigned int n, const void **value)
{
	struct map *m = map_of(id);

	if (n >= m->count)
		return NULL;
	*value = m->values + n * m->value;
	return m->keys + n * m->key;
}

long shim_walk(void *to)
{
	shim_now += shim_walk_ns;
	memcpy(to, &shim_stack, sizeof(shim_stack));
	return sizeof(shim_stack);
}

struct shim_thread {
	_Alignas(8) char task[256];
	_Alignas(8) char storage[512];
	int made;
};

static struct shim_thread threads[SHIM_THREADS];

void shim_reset(void)
{
	for (unsigned int i = 0; i < 16; i++) {
		free(maps[i].keys);
		free(maps[i].values);
	}
	memset(maps, 0, sizeof(maps));
	memset(sizes, 0, sizeof(sizes));
	memset(threads, 0, sizeof(threads));
}

struct task_struct *shim_task(void)
{
	struct task_struct *task = (struct task_struct *)threads[shim_tid % SHIM_THREADS].task;

	task->pid = (int)shim_tid;
	return task;
}

void *shim_storage(struct task_struct *task, size_t bytes, int create)
{
	struct shim_thread *t = (struct shim_thread *)task;

	if (bytes > sizeof(t->storage))
		abort();
	if (!t->made && (!create || shim_full))
		return NULL;
	t->made = 1;
	return t->storage;
}

char shim_event[512];

void *shim_reserve(size_t bytes)
{
	return bytes <= sizeof(shim_event) ? shim_event : NULL;
}

/* As in the kernel: what is not there is 0, whatever the address. */
long shim_read(void *to, unsigned int bytes, const void *from)
{
	int ends[2];
	ssize_t n;

	shim_reads++;
	memset(to, 0, bytes);
	if (pipe(ends))
		abort();
	n = write(ends[1], from, bytes); /* refuses an address that is none */
	if (n > 0 && read(ends[0], to, (size_t)n) != n)
		abort();
	close(ends[0]);
	close(ends[1]);
	return n == (ssize_t)bytes ? n : -EFAULT;
}

void shim_session(struct zfstrace *t, const char *tracer, const struct shim_table *tables)
{
	t->def = tracer_find(tracer);
	for (; tables->name; tables++)
		for (unsigned int i = 0; i < t->def->map_count; i++)
			if (strcmp(t->def->maps[i].name, tables->name) == 0)
				t->maps[i].at = tables->at;
}
