// SPDX-License-Identifier: BSD-2-Clause
/*
 * fsyncs [POOL]: prints ten seconds of fsyncs on OpenZFS, by dataset, and the disks' cache flushes.
 * An fsync that takes 50 ms or more is printed as it ends.
 *
 *	cc -o fsyncs fsyncs.c $(pkg-config --cflags --libs zfstrace)
 *	sudo ./fsyncs
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zfstrace.h>

#define SECONDS 10
#define SLOW_NS 50000000
#define MS(ns) ((double)(ns) / 1e6)

/* An error is one line, which a hint on a second line may follow. */
static void complain(const struct zfstrace *t)
{
	const char *error = zfstrace_error(t);
	size_t what = strcspn(error, "\n");

	fprintf(stderr, "fsyncs: error: %.*s\n", (int)what, error);
	if (error[what])
		fprintf(stderr, "hint: %s\n", error + what + 1);
}

/* A session that fails to start has its error; main() closes it like any other. */
static bool start(const char *tracer, const char *pool, struct zfstrace **t)
{
	struct zfstrace_opts opts = { .size = sizeof(opts), .pool = pool, .slow_ns = SLOW_NS };
	struct zfstrace_probe p;

	if (zfstrace_start(tracer, &opts, t)) {
		complain(*t);
		return false;
	}
	for (unsigned int i = 0; zfstrace_probe(*t, i, &p); i++)
		if (p.how == ZFSTRACE_MISSING)
			warnx("no probe %s: %s", p.name, p.why);
	return true;
}

static void show_slow(const struct zfstrace_slow *slow, void *ctx)
{
	unsigned int most = 0;

	(void)ctx;
	for (unsigned int i = 1; i < ZFSTRACE_STAGES; i++)
		if (slow->stage_ns[i] > slow->stage_ns[most])
			most = i;
	printf("%s (%" PRIu32 "): %s took %.1f ms, of which %.1f ms in %s\n", slow->comm, slow->pid,
	       zfstrace_kind_name(slow->kind), MS(slow->total_ns), MS(slow->stage_ns[most]),
	       zfstrace_stage_name(most));
}

static bool watch(struct zfstrace *fsyncs)
{
	time_t end = time(NULL) + SECONDS;

	while (time(NULL) < end) {
		int err = zfstrace_poll(fsyncs, 1000, show_slow, NULL);

		if (err == -EINTR)
			break;
		if (err < 0) {
			complain(fsyncs);
			return false;
		}
	}
	return true;
}

static bool show_datasets(struct zfstrace *fsyncs)
{
	struct zfstrace_losses losses;

	if (zfstrace_refresh(fsyncs)) {
		complain(fsyncs);
		return false;
	}
	for (unsigned int i = 0; i < zfstrace_datasets(fsyncs); i++) {
		const struct zfstrace_dataset *d = zfstrace_dataset(fsyncs, i);

		if (d->total.count == 0)
			continue;
		printf("%s, objset %" PRIu64 ": %" PRIu64 " operations, p50 %.2f ms, p99 %.2f ms\n",
		       d->rest ? "other datasets" : d->pool, d->objset, d->total.count,
		       MS(zfstrace_hist_quantile(&d->total, 500)),
		       MS(zfstrace_hist_quantile(&d->total, 990)));
		for (unsigned int s = 0; s < ZFSTRACE_STAGES; s++)
			if (d->stages[s].sum_ns)
				printf("  %-13s %5.1f %%\n", zfstrace_stage_name(s),
				       100.0 * (double)d->stages[s].sum_ns /
					       (double)d->total.sum_ns);
	}
	zfstrace_losses(fsyncs, &losses);
	printf("lost %" PRIu64 "\n", losses.start + losses.missed + losses.event);
	return true;
}

/* The kernel writes to a table at any time: copy first, compute afterwards. */
static void show_flushes(const struct zfstrace *disks)
{
	static struct zfstrace_hist flushes;
	const struct zfstrace_vdev *vdevs;
	unsigned int entries;

	vdevs = zfstrace_table(disks, "vdevs", &entries, NULL);
	for (unsigned int i = 0; vdevs && i < entries; i++) {
		if (i && !vdevs[i].used)
			continue;
		zfstrace_hist_copy(&flushes, &vdevs[i].classes[ZFSTRACE_IO_FLUSH].device);
		if (flushes.count)
			printf("%s, vdev %llu: %" PRIu64 " flushes, p99 %.2f ms\n",
			       i ? vdevs[i].pool : "other vdevs", vdevs[i].guid, flushes.count,
			       MS(zfstrace_hist_quantile(&flushes, 990)));
	}
}

int main(int argc, char **argv)
{
	const char *pool = argc > 1 ? argv[1] : NULL;
	struct zfstrace *fsyncs = NULL, *disks = NULL;
	bool done = start("fsync", pool, &fsyncs) && start("device", pool, &disks) &&
		    watch(fsyncs) && show_datasets(fsyncs);

	if (done)
		show_flushes(disks);
	zfstrace_close(disks);
	zfstrace_close(fsyncs);
	return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
