/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of libzfstrace share; nothing here is exported. */
#ifndef ZFSTRACE_INTERNAL_H
#define ZFSTRACE_INTERNAL_H

#include <stdio.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "../bpf/trace.h"
#include "zfstrace.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MAX_SYMBOLS 2
#define MAX_MAPS 4
#define ERROR_LEN 512

/* A place to watch. */
struct probe_def {
	const char *name;
	const char *symbols[MAX_SYMBOLS]; /* the first that exists is taken */
	const char *program;		  /* fentry_<program>, kprobe_<program>, tp_<program> */
	/* Where the module has no BTF: a function of the kernel itself that is called on the same
	 * way, for fentry_<stand_in>; NULL if another probe's program serves for this one, too. */
	const char *kernel, *stand_in;
	const char *cost; /* of its absence, a clause, or: */
	const char *merges[ZFSTRACE_MERGES];
	bool returns;
	bool required;
	bool stays;	 /* attached in a pause, too: datasets that go meanwhile are forgotten */
	bool tracepoint; /* of the kernel, by BTF; symbols[0] is its name */
	unsigned int hz; /* the clock of every CPU instead of a place: perf_<program> */
	uint32_t modes;	 /* only if opts.mode has one of these bits, 0 = always */
};

/* An array that user space maps: of one entry, or one for each slot, for each
 * possible CPU, or [lane][slot]. */
struct map_def {
	const char *name;
	size_t entry_bytes;
	bool per_slot;
	bool per_cpu;
	bool writable; /* by user space */
};

/* A BPF object with its probes. The definitions are in tables.c. */
struct tracer_def {
	const char *name;
	const char *object, *object_end;
	const struct probe_def *probes;
	unsigned int probe_count;
	const struct map_def *maps;
	unsigned int map_count;
	const char *ring;	       /* the map of its events, NULL = none */
	unsigned int ring_bytes;       /* 0: what the caller asks for */
	unsigned int slots;	       /* when the caller does not say */
	const struct tracer_def *base; /* a tracer whose maps it uses, run inside its session */
	uint32_t base_modes;	       /* if opts.mode has one of these bits */
	const char *shared[MAX_MAPS];  /* those maps */
	/* of tracers by dataset: what an entry of the map "slot_data" has, its first distribution
	 * in struct zfstrace_dataset or struct zfstrace_reads, and how many of these, from the
	 * first, are of whole operations */
	unsigned int hists, counts, first_hist, wholes;
	bool pauses; /* zfstrace_pause() */
	/* for tracers with more state than maps; called once these are mapped */
	int (*begin)(struct zfstrace *t);
	int (*refresh)(struct zfstrace *t, uint64_t now_ns); /* see zfstrace_refresh() */
	int (*tidy)(struct zfstrace *t, uint64_t now_ns);    /* see zfstrace_tidy() */
	void (*free)(struct zfstrace *t);
};

extern const struct tracer_def tracer_defs[];
extern const unsigned int tracer_count;
const struct tracer_def *tracer_find(const char *name);

/* What became of a probe_def in this session. */
struct probe {
	const struct probe_def *def;
	const char *tracer;
	const char *symbol; /* chosen from the definition, NULL = none exists */
	const char *module; /* whose BTF has it */
	uint32_t btf_id;    /* of symbol there; of def->kernel as long as that may stand in */
	bool stands_in;	    /* symbol is def->kernel */
	enum zfstrace_how how;
	struct bpf_link *link;
	int perf_fd; /* of an event of tracefs, -1 otherwise */
	char why[96];
};

struct zfstrace {
	const struct tracer_def *def; /* NULL: a survey of all */
	unsigned int number;	      /* unique in the process */
	struct trace_config config;
	struct bpf_object *object;
	struct probe *probes;
	unsigned int probe_count;
	bool attached;
	bool paused;
	int turn; /* whose programs count: COUNT_FENTRY or, with config.lazy, COUNT_KPROBE */
	bool no_stand_ins;	 /* one of them could not be attached */
	unsigned int module_btf; /* bit per module that has BTF, see probes.c */
	bool btf_refused;	 /* and it may not be used */
	int cpus;		 /* possible ones */
	struct {
		void *at;
		unsigned int entries;
		size_t bytes;
	} maps[MAX_MAPS];	    /* as in def->maps */
	struct zfstrace *base;	    /* see tracer_def */
	struct bpf_link **samplers; /* sampler.c, one for each CPU */
	struct ring_buffer *ring;
	zfstrace_event_fn event_fn;
	void *event_ctx;
	struct dataset_sums *datasets; /* datasets.c */
	uint64_t folded;	       /* operations of datasets for which user space had no room */
	struct counters counters;
	uint64_t missed_entries; /* hits at which the kernel reports that it ran no program, */
	uint64_t missed_returns; /* some of these are in counters.lost_return, too */
	uint64_t skipped;	 /* the same for tracepoints */
	uint64_t before_entries; /* missed by fentry programs before kprobes took over */
	uint64_t before_returns;
	uint64_t cut; /* operations under way when a pause did not wait for them */
	int stats_fd; /* cost.c: the kernel counts while it is open, -1 = closed */
	char error[ERROR_LEN];
};

/* The kernel's internal device number: MKDEV() of include/linux/kdev_t.h. */
static inline uint32_t kernel_dev(uint32_t major, uint32_t minor)
{
	return major << 20 | minor;
}

static inline uint32_t dev_major(uint32_t dev)
{
	return dev >> 20;
}

static inline uint32_t dev_minor(uint32_t dev)
{
	return dev & 0xfffff;
}

/* error.c: sets the text of zfstrace_error(), "WHAT: WHY" or "WHAT: WHY\nHINT", and returns err. */
int fail(struct zfstrace *t, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* symbols.c: marks which of n names a kallsyms stream has; returns how many.
 * NULL names are skipped. */
unsigned int symbols_find(FILE *kallsyms, const char *const *names, bool *found, unsigned int n);

/* btf_names.c: the ids of types of some kinds in BTF, 1 << BTF_KIND_... each, by name, 0 = none;
 * returns how many there are. */
struct btf_base {
	uint32_t strings; /* bytes of its strings */
	uint32_t types;	  /* how many it has */
};
int btf_find_names(const void *data, size_t size, struct btf_base base, uint32_t kinds,
		   const char *const *names, uint32_t *ids, unsigned int n, struct btf_base *own);
int btf_file_names(const char *name, struct btf_base base, uint32_t kinds, const char *const *names,
		   uint32_t *ids, unsigned int n, struct btf_base *own);

/* others.c: marks the probes by fentry whose functions have fentry or fexit programs, of whatever
 * process, this one included. With the ids of the trace's own programs, 0 = none, only programs
 * count that came before all of these on a function: ids only rise.
 * Whether the kernel refuses this process the BTF of modules, without which it attaches no such
 * program to them. */
void others_find(const struct zfstrace *t, const uint32_t *own, bool *watched);
bool others_refused(void);

/* probes.c: lists the tracers' probes for the session's mode; chooses how to
 * attach each, and its symbol if BTF has it: for kprobes, attaching shows
 * which symbol exists (in a survey, /proc/kallsyms does). */
int probes_list(struct zfstrace *t, const struct tracer_def *defs, unsigned int count);
int probes_resolve(struct zfstrace *t, bool no_fentry, bool survey);
/* Attaching an fentry or fexit program beside others, or detaching it, makes the kernel build the
 * function's trampoline anew, and threads that are inside return past the exit programs of all. So
 * functions that have any get kprobes, which disturb nobody. */
void probes_leave_watched(struct zfstrace *t);
const char *preemption(const char *modes, const char *version, bool *lazy);
/* The counter of hits of a probe at which no program ran. */
uint64_t *probes_missed(struct zfstrace *t, const struct probe_def *def);

/* maps.c: before the object is loaded, sizes its maps, LRU maps for all CPUs, and shares those of
 * the base; maps them afterwards. */
int maps_size(struct zfstrace *t, const struct zfstrace_opts *opts);
int maps_size_lru(struct zfstrace *t);
int maps_share(struct zfstrace *t);
int maps_map(struct zfstrace *t);
void maps_unmap(struct zfstrace *t);
/* The first entry of a mapped map, or NULL; the descriptor of any map, or a negative errno. */
void *maps_find(const struct zfstrace *t, const char *name);
int maps_fd(const struct zfstrace *t, const char *name);

/* session.c: a new session, NULL if out of memory; loads and attaches a tracer. */
struct zfstrace *session_new(void);
int session_start(struct zfstrace *t, const struct tracer_def *def,
		  const struct zfstrace_opts *opts);

/* programs.c: selects those that are loaded; the program of a probe, NULL if that is missing;
 * whether that of another probe serves for this one, too; whether another trace has loaded its
 * own for one of the functions meanwhile, before this one has; the error when the kernel refuses a
 * program, or to attach it. */
int programs_choose(struct zfstrace *t);
struct bpf_program *programs_find(const struct zfstrace *t, unsigned int i);
bool programs_shared(const struct probe *p);
bool programs_late(const struct zfstrace *t);
int programs_refused(struct zfstrace *t, int err);

/* attach.c: attaches all probes and begins to count; detaches them; switches counting on (for
 * COUNT_FENTRY or COUNT_KPROBE programs) or off (0). */
int session_attach(struct zfstrace *t);
void session_detach(struct zfstrace *t);
int session_enable(struct zfstrace *t, int whose);
/* Brings the counts of missed hits up to date; lets kprobes count, which miss none: 1, or a
 * negative errno. */
void session_count_missed(struct zfstrace *t);
int session_fall_back(struct zfstrace *t);
uint64_t session_now_ns(void); /* CLOCK_MONOTONIC */

/* sampler.c: a program that the clock of every CPU starts hz times a second. */
int sampler_attach(struct zfstrace *t, struct bpf_program *prog, unsigned int hz);
void sampler_detach(struct zfstrace *t);

/* datasets.c: the state of a session of "fsync" or "read". refresh sums new counts, and frees the
 * slots of datasets that are gone; due says whether that is urgent; sums are those of a dataset,
 * for which index is the number of the one that had a slot during one of its lives. */
int datasets_begin(struct zfstrace *t);
int datasets_refresh(struct zfstrace *t, uint64_t now_ns);
bool datasets_due(const struct zfstrace *t, uint64_t now_ns);
int datasets_tidy(struct zfstrace *t, uint64_t now_ns);
const void *datasets_sums(const struct zfstrace *t, unsigned int i);
uint32_t datasets_index(const struct zfstrace *t, uint32_t slot, uint32_t life);
void datasets_free(struct zfstrace *t);

/* room.c: how many slots and lanes a tracer gets, and the number of CPUs. */
struct trace_room {
	unsigned int slots, lanes;
};
struct trace_room room_of(const struct tracer_def *def, unsigned int wanted, unsigned int cpus,
			  unsigned int mib);
unsigned int room_cpus(const char *online);
/* Gives the kernel all slots, or an empty one. */
void room_begin(const struct zfstrace *t);
void room_give(const struct zfstrace *t, unsigned int slot);

/* kprobe_events.c: kprobes through tracefs, which reports misses and takes the
 * number of threads that may be inside a probed function at once (perf's own
 * have room for max(10, 2 * CPUs) only). A session's number and a program
 * identify an event. */
#define KRETPROBE_MAXACTIVE 4096
int kprobe_event_open(unsigned int session, const struct probe_def *def, const char *symbol);
void kprobe_event_remove(unsigned int session, const struct probe_def *def);
void kprobe_events_remove_stale(void);
/* Adds the misses of the session's events to its counters. */
void kprobe_events_count(struct zfstrace *t);
/* Pure parts, for the unit tests. */
bool kprobe_event_pid(const char *line, long *pid, char *event, size_t len);
bool kprobe_profile_missed(const char *line, long pid, unsigned int session, char program[64],
			   uint64_t *missed);

#endif
