// SPDX-License-Identifier: BSD-2-Clause
/*
 * kprobes and kretprobes through tracefs: the misses of an event made in
 * kprobe_events can be read on every kernel, those of perf's own kprobes only
 * from Linux 6.7 on; and perf's own kretprobes have room for
 * max(10, 2 * CPUs) threads at once, where an event says how many it needs.
 * An event outlives a killed process (idle, at no cost); the next session
 * removes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

/* The event's name has the process, too: kprobe_profile shows no group. */
#define GROUP "zfstune_"
#define EVENT_FORMAT "zt%ld_%u_" /* process, session */
#define EVENT_LEN 96

static void event_path(char path[EVENT_LEN], unsigned int session, const char *name)
{
	long pid = getpid();

	snprintf(path, EVENT_LEN, GROUP "%ld/" EVENT_FORMAT "%s", pid, pid, session, name);
}

static const char *tracefs(void)
{
	static const char *const dirs[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	char path[64];

	for (unsigned int i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s/kprobe_events", dirs[i]);
		if (access(path, F_OK) == 0)
			return dirs[i];
	}
	return NULL;
}

static int write_event(const char *line)
{
	const char *dir = tracefs();
	char path[64];
	int fd, err = 0;

	if (!dir)
		return -ENODEV;
	snprintf(path, sizeof(path), "%s/kprobe_events", dir);
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, line, strlen(line)) < 0)
		err = -errno;
	close(fd);
	return err;
}

static int event_config(const char *event, unsigned long long *config)
{
	char path[160];
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "%s/events/%s/id", tracefs(), event);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	n = fscanf(f, "%llu", config);
	fclose(f);
	return n == 1 ? 0 : -EINVAL;
}

/* Returns a perf event to attach a program to, or a negative errno: -ENOENT if
 * there is no such symbol, others if tracefs cannot be used. */
int kprobe_event_open(unsigned int session, const struct probe_def *def, const char *symbol)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr) };
	unsigned long long config;
	char event[EVENT_LEN], line[192];
	int fd, err;

	event_path(event, session, def->program);
	if (def->returns)
		snprintf(line, sizeof(line), "r%d:%s %s\n", KRETPROBE_MAXACTIVE, event, symbol);
	else
		snprintf(line, sizeof(line), "p:%s %s\n", event, symbol);
	err = write_event(line);
	if (err)
		return err;
	err = event_config(event, &config);
	if (err == 0) {
		attr.config = config;
		fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
		if (fd >= 0)
			return fd;
		err = -errno;
	}
	kprobe_event_remove(session, def);
	return err;
}

void kprobe_event_remove(unsigned int session, const struct probe_def *def)
{
	char event[EVENT_LEN], line[EVENT_LEN + 4];

	event_path(event, session, def->program);
	snprintf(line, sizeof(line), "-:%s\n", event);
	(void)write_event(line);
}

/* The process and name of one of our events in a line of kprobe_events,
 * "r4096:zfstune_123/zt123_1_zil_commit_return zil_commit". */
bool kprobe_event_pid(const char *line, long *pid, char *event, size_t len)
{
	const char *p = strchr(line, ':');
	char *end;
	size_t n;

	if (!p || strncmp(p + 1, GROUP, strlen(GROUP)) != 0)
		return false;
	p += 1 + strlen(GROUP);
	*pid = strtol(p, &end, 10);
	if (end == p || *end != '/' || *pid <= 0)
		return false;
	n = strcspn(end + 1, " \t\n");
	if (n == 0 || n >= len)
		return false;
	memcpy(event, end + 1, n);
	event[n] = '\0';
	return true;
}

void kprobe_events_remove_stale(void)
{
	const char *dir = tracefs();
	char path[64], line[512], event[64], stale[256][96];
	unsigned int n = 0;
	long pid;
	FILE *f;

	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/kprobe_events", dir);
	f = fopen(path, "re");
	if (!f)
		return;
	while (n < ARRAY_SIZE(stale) && fgets(line, sizeof(line), f))
		if (kprobe_event_pid(line, &pid, event, sizeof(event)) && kill((pid_t)pid, 0) < 0 &&
		    errno == ESRCH)
			snprintf(stale[n++], sizeof(stale[0]), "-:" GROUP "%ld/%s\n", pid, event);
	fclose(f);
	while (n > 0)
		(void)write_event(stale[--n]);
}

/* The misses of an event of a session, and the program that it is for, in a
 * line of kprobe_profile, "  event   hits   misses". */
bool kprobe_profile_missed(const char *line, long pid, unsigned int session, char program[64],
			   uint64_t *missed)
{
	unsigned long long hits, misses;
	char name[128], want[48];

	if (sscanf(line, "%127s %llu %llu", name, &hits, &misses) != 3)
		return false;
	snprintf(want, sizeof(want), EVENT_FORMAT, pid, session);
	if (strncmp(name, want, strlen(want)) != 0)
		return false;
	snprintf(program, 64, "%.63s", name + strlen(want));
	*missed = misses;
	return true;
}

void kprobe_events_count(struct zfstrace *t)
{
	const char *dir = tracefs();
	char path[64], line[256], program[64];
	uint64_t missed;
	FILE *f;

	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/kprobe_profile", dir);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		if (!kprobe_profile_missed(line, getpid(), t->number, program, &missed))
			continue;
		for (unsigned int i = 0; i < t->probe_count; i++)
			if (strcmp(t->probes[i].def->program, program) == 0)
				*probes_missed(t, t->probes[i].def) += missed;
	}
	fclose(f);
}
