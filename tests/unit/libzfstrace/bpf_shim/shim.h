/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests have of shim.c beside what the programs have. */
#ifndef ZFSTUNE_SHIM_H
#define ZFSTUNE_SHIM_H

#include "bpf/bpf_helpers.h"

extern unsigned int shim_index_looks; /* at shim_index, a map */
extern void *shim_index;
extern void (*shim_before_insert)(void); /* another CPU, between a look and an insert; once */
extern char shim_event[512];		 /* the last one */
void shim_reset(void);
/* shim_tid modulo this is which task_struct a thread has. */
#define SHIM_THREADS 64
/* A key of a map, and its value; NULL after the last. */
const void *shim_entry(void *map, unsigned int n, const void **value);

/* A session of a tracer, which has these maps mapped; the list ends with no name. */
struct zfstrace;
struct shim_table {
	const char *name;
	void *at;
};
void shim_session(struct zfstrace *t, const char *tracer, const struct shim_table *tables);

/* Where an array begins. */
#define shim_array(map) bpf_map_lookup_elem(map, &(__u32) { 0 })

#endif
