/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of libzfstrace share; nothing here is exported. */
#ifndef ZFSTRACE_INTERNAL_H
#define ZFSTRACE_INTERNAL_H

#include <stdio.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "../bpf/fsync.h"
#include "../bpf/fsync_config.h"
#include "zfstrace.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MAX_PROBES 24
#define MAX_SYMBOLS 2
#define ERROR_LEN 512

/* A place to watch; the table is in probes.c. */
struct probe_def {
	const char *name;
	const char *symbols[MAX_SYMBOLS]; /* the first that exists is taken */
	const char *program;		  /* fentry_<program>, kprobe_<program>, tp_<program> */
	const char *cost;
	bool returns;
	bool required;
	bool tracepoint; /* of the kernel, by BTF; symbols[0] is its name */
};

extern const struct probe_def probe_defs[];
extern const unsigned int probe_count;

/* What became of a probe_def in this session. */
struct probe {
	const char *symbol; /* chosen from the definition, NULL = none exists */
	const char *module; /* whose BTF has it */
	enum zfstrace_how how;
	struct bpf_link *link;
	int perf_fd; /* of a tracefs kretprobe, -1 otherwise */
	char why[96];
};

struct zfstrace {
	struct fsync_config config;
	struct bpf_object *object;
	struct probe probes[MAX_PROBES];
	bool attached;
	unsigned int module_btf; /* bit per module that has BTF, see probes.c */
	int cpus;
	const struct slot *slots;	   /* mapped: [slot] */
	const struct slot_data *slot_data; /* mapped: [CPU][slot] */
	const struct counters *per_cpu;	   /* mapped: [CPU] */
	struct ring_buffer *ring;
	zfstrace_slow_fn slow_fn;
	void *slow_ctx;
	struct zfstrace_dataset **datasets; /* config.slots pointers */
	unsigned int dataset_count;
	struct counters counters;
	uint64_t missed;  /* probe hits the kernel reports as missed */
	uint64_t skipped; /* the same of the tracepoints */
	char error[ERROR_LEN];
};

/* error.c: sets the session's error line and returns err. */
int fail(struct zfstrace *t, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* symbols.c: marks which of n names a kallsyms stream has; returns how many.
 * NULL names are passed over. */
unsigned int symbols_find(FILE *kallsyms, const char *const *names, bool *found, unsigned int n);

/* btf_names.c: the same for the types of a kind in BTF. */
int btf_find_names(const void *data, size_t size, uint32_t base_strings, uint32_t kind,
		   const char *const *names, bool *found, unsigned int n);
int btf_file_names(const char *name, uint32_t kind, const char *const *names, bool *found,
		   unsigned int n);

/* probes.c: chooses the way for every probe, and the symbol where BTF tells
 * it; for kprobes the attempt to attach tells (survey: /proc/kallsyms does). */
int probes_resolve(struct zfstrace *t, bool no_fentry, bool survey);
bool preemptible(const char *modes);

/* kretprobe.c: kretprobes by tracefs, which lets one say how many threads may
 * be inside at once (perf's own has room for max(10, 2 * CPUs) only). */
#define KRETPROBE_MAXACTIVE 4096
int kretprobe_open(const char *id, const char *symbol);
void kretprobe_remove(const char *id);
void kretprobe_remove_stale(void);
uint64_t kretprobe_missed(void);
/* Pure parts, for the unit tests. */
bool kretprobe_line_pid(const char *line, long *pid, char *event, size_t len);
bool kretprobe_profile_missed(const char *line, long pid, uint64_t *missed);

#endif
