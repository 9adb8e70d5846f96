// SPDX-License-Identifier: BSD-2-Clause
/* The probes: what they watch, what their absence costs, and how each can be
 * attached on this kernel. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* Order matters little: nothing is counted before all are attached. */
const struct probe_def probe_defs[] = {
	{ .name = "zil_commit",
	  /* from 2.4 every path goes through zil_commit_flags (commit by 2.4.0) */
	  .symbols = { "zil_commit_flags", "zil_commit" },
	  .program = "zil_commit",
	  .required = true,
	  .cost = "nothing can be measured" },
	{ .name = "zil_commit:return",
	  .symbols = { "zil_commit_flags", "zil_commit" },
	  .program = "zil_commit_return",
	  .returns = true,
	  .required = true,
	  .cost = "nothing can be measured" },
	{ .name = "zpl_fsync",
	  .symbols = { "zpl_fsync" },
	  .program = "zpl_fsync",
	  .cost = "no `writeback`; fsyncs are known by their ZIL commit only, with sync=disabled "
		  "not at all" },
	{ .name = "zpl_fsync:return",
	  .symbols = { "zpl_fsync" },
	  .program = "zpl_fsync_return",
	  .returns = true,
	  .cost = "as zpl_fsync" },
	{ .name = "zfs_fsync",
	  .symbols = { "zfs_fsync" },
	  .program = "zfs_fsync",
	  .cost = "`writeback` includes entering the file system" },
	{ .name = "zil_async_to_sync:return",
	  .symbols = { "zil_async_to_sync" },
	  .program = "async_to_sync_return",
	  .returns = true,
	  .required = true,
	  .cost = "ZIL commits cannot be told from early exits" },
	{ .name = "dmu_tx_wait",
	  .symbols = { "dmu_tx_wait" },
	  .program = "tx_wait",
	  .cost = "`tx_assign` is part of `issue`" },
	{ .name = "dmu_tx_wait:end",
	  .symbols = { "spa_tx_assign_add_nsecs" },
	  .program = "tx_waited",
	  .cost = "all that follows a throttle wait is part of `tx_assign`" },
	{ .name = "lock:contention_begin",
	  .symbols = { "contention_begin" },
	  .program = "contention_begin",
	  .tracepoint = true,
	  .cost = "`issuer_lock` is part of `issue`" },
	{ .name = "lock:contention_end",
	  .symbols = { "contention_end" },
	  .program = "contention_end",
	  .tracepoint = true,
	  .cost = "`issue` after a lock wait is part of `issuer_lock`" },
	{ .name = "zil_lwb_write_issue",
	  .symbols = { "zil_lwb_write_issue" },
	  .program = "write_issue",
	  .cost = "`issue` after a batch wait is part of `batch_wait`" },
	{ .name = "zil_lwb_add_block",
	  .symbols = { "zil_lwb_add_block" },
	  .program = "add_block",
	  .required = true,
	  .cost = "log blocks cannot be followed" },
	{ .name = "zil_lwb_write_done",
	  .symbols = { "zil_lwb_write_done" },
	  .program = "write_done",
	  .cost = "`flush` is part of `log_write`" },
	{ .name = "zil_lwb_flush_vdevs_done",
	  .symbols = { "zil_lwb_flush_vdevs_done" },
	  .program = "flush_done",
	  .cost = "`wakeup` is part of `flush`" },
	{ .name = "cv_wait",
	  .symbols = { "__cv_wait" },
	  .program = "cv_wait",
	  .required = true,
	  .cost = "waiting cannot be told from issuing" },
	{ .name = "cv_timedwait",
	  .symbols = { "cv_timedwait_hires" },
	  .program = "cv_timedwait",
	  .cost = "`batch_wait` is part of `issue`" },
	{ .name = "txg_wait_synced",
	  .symbols = { "txg_wait_synced_flags", "txg_wait_synced" },
	  .program = "txg_wait",
	  .cost = "`txg_fallback` is part of `issue` or `other`" },
	{ .name = "zil_free",
	  .symbols = { "zil_free" },
	  .program = "zil_free",
	  .cost = "after an export a new dataset may be counted under an old name" },
};
const unsigned int probe_count = ARRAY_SIZE(probe_defs);
_Static_assert(ARRAY_SIZE(probe_defs) <= MAX_PROBES, "MAX_PROBES is too small");

/* The names of all definitions, [probe][symbol]; tracepoints or functions. */
static void list_names(const char *names[][MAX_SYMBOLS], bool tracepoints)
{
	for (unsigned int i = 0; i < probe_count; i++)
		for (unsigned int j = 0; j < MAX_SYMBOLS; j++)
			names[i][j] = probe_defs[i].tracepoint == tracepoints
					      ? probe_defs[i].symbols[j]
					      : NULL;
}

static int find_tracepoints(struct zfstrace *t)
{
	const char *names[MAX_PROBES][MAX_SYMBOLS];
	char types[MAX_PROBES][64];
	bool found[MAX_PROBES][MAX_SYMBOLS] = {};
	int hits;

	list_names(names, true);
	for (unsigned int i = 0; i < probe_count; i++) {
		if (!names[i][0])
			continue;
		snprintf(types[i], sizeof(types[i]), "btf_trace_%s", names[i][0]);
		names[i][0] = types[i];
	}
	hits = btf_file_names("vmlinux", BTF_KIND_TYPEDEF, &names[0][0], &found[0][0],
			      probe_count * MAX_SYMBOLS);
	if (hits < 0)
		return fail(t, -ENOTSUP,
			    "this kernel has no BTF (/sys/kernel/btf/vmlinux): use one built with "
			    "CONFIG_DEBUG_INFO_BTF");
	for (unsigned int i = 0; i < probe_count; i++) {
		if (!names[i][0])
			continue;
		if (found[i][0]) {
			t->probes[i].symbol = probe_defs[i].symbols[0];
			t->probes[i].how = ZFSTRACE_TRACEPOINT;
		} else {
			snprintf(t->probes[i].why, sizeof(t->probes[i].why),
				 "the kernel has no such tracepoint (Linux 5.19 has)");
		}
	}
	return 0;
}

static void take_functions(struct zfstrace *t, bool (*found)[MAX_SYMBOLS], const char *module,
			   enum zfstrace_how how)
{
	for (unsigned int i = 0; i < probe_count; i++)
		for (unsigned int j = MAX_SYMBOLS; j-- > 0;)
			if (found[i][j]) { /* the first of the list wins */
				t->probes[i].symbol = probe_defs[i].symbols[j];
				t->probes[i].module = module;
				t->probes[i].how = how;
			}
}

static const char *const modules[] = { "zfs", "spl" };
#define ALL_MODULES ((1U << ARRAY_SIZE(modules)) - 1)

/* Functions in the modules' BTF: fentry knows their arguments. */
static void find_in_btf(struct zfstrace *t, bool no_fentry)
{
	const char *names[MAX_PROBES][MAX_SYMBOLS];

	list_names(names, false);
	for (unsigned int m = 0; m < ARRAY_SIZE(modules); m++) {
		bool found[MAX_PROBES][MAX_SYMBOLS] = {};

		if (btf_file_names(modules[m], BTF_KIND_FUNC, &names[0][0], &found[0][0],
				   probe_count * MAX_SYMBOLS) <= 0)
			continue;
		t->module_btf |= 1U << m;
		take_functions(t, found, modules[m], no_fentry ? ZFSTRACE_KPROBE : ZFSTRACE_FENTRY);
	}
}

static int find_in_kallsyms(struct zfstrace *t)
{
	const char *names[MAX_PROBES][MAX_SYMBOLS];
	bool found[MAX_PROBES][MAX_SYMBOLS] = {};
	FILE *f = fopen("/proc/kallsyms", "re");

	if (!f)
		return fail(t, -errno, "cannot read /proc/kallsyms (%s): is /proc mounted?",
			    strerror(errno));
	list_names(names, false);
	(void)symbols_find(f, &names[0][0], &found[0][0], probe_count * MAX_SYMBOLS);
	fclose(f);
	for (unsigned int i = 0; i < probe_count; i++)
		for (unsigned int j = 0; j < MAX_SYMBOLS; j++)
			found[i][j] = found[i][j] && !t->probes[i].how;
	take_functions(t, found, NULL, ZFSTRACE_KPROBE);
	return 0;
}

/*
 * The kernel skips an fentry program while another thread is preempted inside
 * of it on the same CPU (prog->active, __bpf_prog_enter_recur); with full or
 * lazy preemption that loses some of a thousand calls. kprobes run with
 * preemption off. `modes` is the text of /sys/kernel/debug/sched/preempt, the
 * present mode in parentheses.
 */
bool preemptible(const char *modes)
{
	return strstr(modes, "(full)") || strstr(modes, "(lazy)");
}

static bool kernel_preemptible(void)
{
	FILE *f = fopen("/sys/kernel/debug/sched/preempt", "re");
	char modes[128] = "";

	if (!f)
		return false; /* what is skipped is counted as lost all the same */
	if (!fgets(modes, sizeof(modes), f))
		modes[0] = '\0';
	fclose(f);
	return preemptible(modes);
}

int probes_resolve(struct zfstrace *t, bool no_fentry, bool survey)
{
	int err;

	if (access("/sys/module/zfs", F_OK))
		return fail(t, -ENOENT, "ZFS is not loaded: load it with `modprobe zfs`");
	err = find_tracepoints(t);
	if (err)
		return err;
	find_in_btf(t, no_fentry || kernel_preemptible());
	if (t->module_btf != ALL_MODULES && survey) {
		err = find_in_kallsyms(t);
		if (err)
			return err;
	}
	for (unsigned int i = 0; i < probe_count; i++) {
		struct probe *p = &t->probes[i];

		if (p->how || probe_defs[i].tracepoint)
			continue;
		if (t->module_btf != ALL_MODULES && !survey)
			p->how = ZFSTRACE_KPROBE; /* attaching will tell */
		else if (probe_defs[i].required)
			return fail(t, -ENOENT, "this ZFS has no symbol %s: %s",
				    probe_defs[i].symbols[0], probe_defs[i].cost);
		else
			snprintf(p->why, sizeof(p->why), "no symbol %s", probe_defs[i].symbols[0]);
	}
	return 0;
}
