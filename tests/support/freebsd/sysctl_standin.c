// SPDX-License-Identifier: BSD-2-Clause
/*
 * Stands in for the sysctl calls of FreeBSD's libc where there is no FreeBSD: a table in a file,
 * shared by processes, with the types and errors of sys/kern/kern_sysctl.c. It proves that callers
 * have the right signatures, sizes and error paths; it proves nothing about a kernel.
 *
 * SYSCTL_STANDIN_TABLE names the file. A line has four fields, with tabs between them:
 *
 *	vfs/zfs/txg/timeout	uint	wt	5
 *
 * the parts of the name with / between them (they may have dots), the type, flags, the value
 * (strings with \n and \\, opaque ones in hex). Flags: w writable, t tunable, s hidden from next,
 * g longer at each of its first reads, M and m the limits of the ARC, which are checked as in
 * module/os/freebsd/zfs/sysctl_os.c. A line `# generation N` shifts all numbers, as loading a
 * module anew does. SYSCTL_STANDIN_USER in the environment takes the privilege to write.
 *
 * Stricter than the kernel in one point: a new value that is too long is refused as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAXNAME 24
#define FIRST_NUMBER 0x100
#define GROWTH 3000

enum query { QUERY_NAME = 1, QUERY_NEXT, QUERY_NAME2OID, QUERY_OIDFMT, QUERY_NEXTNOSKIP = 7 };
enum ctl { NODE = 1, INT, STRING, S64, OPAQUE, UINT, LONG, ULONG, U64 };

#define CTLFLAG_RD 0x80000000U
#define CTLFLAG_WR 0x40000000U
#define CTLFLAG_SKIP 0x01000000U
#define CTLFLAG_TUN 0x00080000U

static const struct type {
	const char *name;
	enum ctl ctl;
	const char *format;
	size_t size;
} types[] = {
	{ "int", INT, "I", sizeof(int) },     { "uint", UINT, "IU", sizeof(unsigned) },
	{ "long", LONG, "L", sizeof(long) },  { "ulong", ULONG, "LU", sizeof(unsigned long) },
	{ "s64", S64, "Q", sizeof(int64_t) }, { "u64", U64, "QU", sizeof(uint64_t) },
	{ "string", STRING, "A", 0 },	      { "opaque", OPAQUE, "S", 0 },
};

struct entry {
	char *line, *parts[MAXNAME];
	int numbers[MAXNAME], depth;
	const struct type *type;
	char *flags, *value;
	unsigned reads;
};

static struct entry *entries;
static size_t count;
static int generation;

/* --- the table */

static void forget(void)
{
	for (size_t i = 0; i < count; i++)
		free(entries[i].line);
	free(entries);
	entries = NULL;
	count = 0;
}

static int by_parts(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;

	for (int i = 0; i < a->depth && i < b->depth; i++) {
		int order = strcmp(a->parts[i], b->parts[i]);

		if (order)
			return order;
	}
	return a->depth - b->depth;
}

static bool parse(struct entry *entry, char *line)
{
	char *fields[4], *rest = line, *name;
	char *copy = strdup(line);

	*entry = (struct entry) { .line = copy };
	rest = copy;
	for (int i = 0; i < 4; i++) {
		fields[i] = i < 3 ? strsep(&rest, "\t") : rest;
		if (!fields[i])
			return false;
	}
	name = fields[0];
	for (char *part; entry->depth < MAXNAME && (part = strsep(&name, "/"));)
		entry->parts[entry->depth++] = part;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(types[i].name, fields[1]))
			entry->type = &types[i];
	entry->flags = fields[2];
	entry->value = fields[3];
	return entry->type;
}

/* Numbers are those of siblings in order, one node where the beginning is the same. */
static void number(void)
{
	for (size_t i = 0; i < count; i++) {
		bool same = i > 0;

		for (int level = 0; level < entries[i].depth; level++) {
			int first = FIRST_NUMBER + (level ? 1000 * generation : 0);
			const struct entry *last = i ? &entries[i - 1] : NULL;
			bool there = same && level < last->depth;

			entries[i].numbers[level] = there ? last->numbers[level] : first;
			if (there && strcmp(last->parts[level], entries[i].parts[level])) {
				entries[i].numbers[level]++;
				same = false;
			}
			same = same && there;
		}
	}
}

static void load(void)
{
	static struct stat last;
	const char *path = getenv("SYSCTL_STANDIN_TABLE");
	FILE *file = path ? fopen(path, "re") : NULL;
	char *line = NULL;
	size_t room = 0;
	ssize_t length;
	struct stat now;

	if (!file || fstat(fileno(file), &now)) {
		forget();
		return;
	}
	if (now.st_ino == last.st_ino && now.st_mtim.tv_nsec == last.st_mtim.tv_nsec &&
	    now.st_mtim.tv_sec == last.st_mtim.tv_sec && entries) {
		fclose(file);
		return;
	}
	last = now;
	forget();
	generation = 0;
	while ((length = getline(&line, &room, file)) > 0) {
		if (line[length - 1] == '\n')
			line[length - 1] = '\0';
		if (sscanf(line, "# generation %d", &generation) == 1 || line[0] == '#' || !line[0])
			continue;
		entries = realloc(entries, (count + 1) * sizeof(*entries));
		if (parse(&entries[count], line))
			count++;
		else
			free(entries[count].line);
	}
	free(line);
	fclose(file);
	qsort(entries, count, sizeof(*entries), by_parts);
	number();
}

static void print(FILE *file, const struct entry *entry, const char *value)
{
	for (int i = 0; i < entry->depth; i++)
		fprintf(file, "%s%s", i ? "/" : "", entry->parts[i]);
	fprintf(file, "\t%s\t%s\t%s\n", entry->type->name, entry->flags, value);
}

/* Writes the table with new values for one or two entries. */
static int save(const struct entry *one, const char *value, const struct entry *other)
{
	const char *path = getenv("SYSCTL_STANDIN_TABLE");
	char new[PATH_MAX];
	FILE *file;

	snprintf(new, sizeof(new), "%s.new.%d", path, (int)getpid());
	file = fopen(new, "we");
	if (!file)
		return EIO;
	fprintf(file, "# generation %d\n", generation);
	for (size_t i = 0; i < count; i++) {
		bool changed = &entries[i] == one || &entries[i] == other;

		print(file, &entries[i], changed ? value : entries[i].value);
	}
	if (fclose(file) || rename(new, path))
		return EIO;
	forget();
	return 0;
}

/* --- finding */

static int compare(const int *a, int a_depth, const int *b, int b_depth)
{
	for (int i = 0; i < a_depth && i < b_depth; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return a_depth - b_depth;
}

static struct entry *find(const int *name, int depth)
{
	for (size_t i = 0; i < count; i++)
		if (entries[i].depth >= depth && !compare(entries[i].numbers, depth, name, depth))
			return &entries[i];
	return NULL;
}

/* The leaf with a name like vfs/zfs/arc/max. */
static struct entry *leaf(const char *name)
{
	for (size_t i = 0; i < count; i++) {
		size_t used = 0;
		bool same = true;

		for (int level = 0; same && level < entries[i].depth; level++) {
			size_t length = strlen(entries[i].parts[level]);

			same = !strncmp(name + used, entries[i].parts[level], length);
			used += length;
			same = same && name[used] == (level + 1 < entries[i].depth ? '/' : '\0');
			used++;
		}
		if (same)
			return &entries[i];
	}
	return NULL;
}

/* --- giving and taking */

struct request {
	void *old;
	size_t *old_size;
	const void *new;
	size_t new_size;
};

/* As sysctl_old_user() and userland_sysctl(): what fits is copied, and its size told. */
static int give(const struct request *request, const void *data, size_t size)
{
	size_t room = request->old_size ? *request->old_size : 0;

	if (!request->old) {
		if (request->old_size)
			*request->old_size = size;
		return 0;
	}
	memcpy(request->old, data, size < room ? size : room);
	*request->old_size = size < room ? size : room;
	return size > room ? ENOMEM : 0;
}

static int give_text(struct entry *entry, const struct request *request)
{
	size_t length = strlen(entry->value), used = 0;
	char *text = calloc(1, length + 4 * GROWTH);
	int error;

	for (const char *c = entry->value; *c; c++) {
		if (*c == '\\' && c[1])
			text[used++] = *++c == 'n' ? '\n' : *c;
		else
			text[used++] = *c;
	}
	if (strchr(entry->flags, 'g')) {
		if (request->old && entry->reads < 2)
			entry->reads++;
		memset(text + used, '\n', entry->reads * GROWTH);
		used += entry->reads * GROWTH;
	}
	error = give(request, text, used + 1);
	free(text);
	return error;
}

static int give_opaque(const struct entry *entry, const struct request *request)
{
	unsigned char data[256];
	size_t size = strlen(entry->value) / 2;

	for (size_t i = 0; i < size && i < sizeof(data); i++)
		sscanf(entry->value + 2 * i, "%2hhx", &data[i]);
	return give(request, data, size);
}

static int give_integer(const struct entry *entry, const struct request *request)
{
	bool negative = entry->value[0] == '-';
	uint64_t wide = negative ? (uint64_t)strtoll(entry->value, NULL, 10)
				 : strtoull(entry->value, NULL, 10);
	uint32_t narrow = (uint32_t)wide;

	return entry->type->size == 4 ? give(request, &narrow, 4) : give(request, &wide, 8);
}

static uint64_t value_of(const char *name)
{
	const struct entry *entry = leaf(name);

	return entry ? strtoull(entry->value, NULL, 10) : 0;
}

static int take_integer(struct entry *entry, const struct request *request)
{
	const char *lower = "kstat/zfs/misc/arcstats/c_min",
		   *upper = "kstat/zfs/misc/arcstats/c_max";
	const struct entry *limit = NULL;
	uint64_t value = 0;
	char text[32];

	if (request->new_size != entry->type->size)
		return EINVAL;
	memcpy(&value, request->new, request->new_size);
	if (strchr(entry->flags, 'M') && value) {
		if (value < 64 << 20 || value <= value_of(lower) || value >= value_of("hw/physmem"))
			return EINVAL;
		limit = leaf(upper);
	}
	if (strchr(entry->flags, 'm') && value) {
		if (value < 32 << 20 || value > value_of(upper))
			return EINVAL;
		limit = leaf(lower);
	}
	if (entry->type->ctl == INT)
		snprintf(text, sizeof(text), "%d", (int)value);
	else if (entry->type->ctl == LONG || entry->type->ctl == S64)
		snprintf(text, sizeof(text), "%lld", (long long)value);
	else
		snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return save(entry, text, limit);
}

static int access_leaf(struct entry *entry, const struct request *request)
{
	int error;

	if (request->new && (!strchr(entry->flags, 'w') || getenv("SYSCTL_STANDIN_USER")))
		return EPERM;
	if (entry->type->ctl == STRING)
		error = give_text(entry, request);
	else if (entry->type->ctl == OPAQUE)
		error = give_opaque(entry, request);
	else
		error = give_integer(entry, request);
	if (error || !request->new)
		return error;
	return entry->type->size ? take_integer(entry, request) : EINVAL;
}

/* --- questions about OIDs */

static int give_name(const int *name, int depth, const struct request *request)
{
	const struct entry *entry = find(name, depth);
	char text[1024] = "";
	size_t used = 0;

	if (!entry)
		return ENOENT;
	for (int i = 0; i < depth; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? "." : "",
					 entry->parts[i]);
	return give(request, text, used + 1);
}

static int give_format(const int *name, int depth, const struct request *request)
{
	const struct entry *entry = find(name, depth);
	unsigned kind = CTLFLAG_RD;
	char data[16];

	if (!entry)
		return ENOENT;
	if (entry->depth > depth) {
		kind |= NODE;
		strcpy(data + sizeof(kind), "N");
	} else {
		kind |= entry->type->ctl | (strchr(entry->flags, 'w') ? CTLFLAG_WR : 0) |
			(strchr(entry->flags, 't') ? CTLFLAG_TUN : 0) |
			(strchr(entry->flags, 's') ? CTLFLAG_SKIP : 0);
		strcpy(data + sizeof(kind), entry->type->format);
	}
	memcpy(data, &kind, sizeof(kind));
	return give(request, data, sizeof(kind) + strlen(data + sizeof(kind)) + 1);
}

static int give_next(const int *name, int depth, bool hidden, const struct request *request)
{
	for (size_t i = 0; i < count; i++) {
		const struct entry *entry = &entries[i];
		int length = hidden ? 1 : entry->depth;

		if (!hidden && strchr(entry->flags, 's'))
			continue;
		for (; length <= entry->depth; length++)
			if (compare(entry->numbers, length, name, depth) > 0)
				return give(request, entry->numbers, (size_t)length * sizeof(int));
	}
	return ENOENT;
}

static int give_oid(const struct request *request)
{
	char name[1024];

	if (!request->new || !request->new_size || request->new_size >= sizeof(name))
		return ENOENT;
	memcpy(name, request->new, request->new_size);
	name[request->new_size] = '\0';
	for (size_t i = 0; i < count; i++) {
		char copy[1024], *rest = copy;
		bool same = true;
		int level = 0;

		strcpy(copy, name);
		for (; same && rest && level < entries[i].depth; level++)
			same = !strcmp(strsep(&rest, "."), entries[i].parts[level]);
		if (same && !rest)
			return give(request, entries[i].numbers, (size_t)level * sizeof(int));
	}
	return ENOENT;
}

static int query(const int *name, int depth, const struct request *request)
{
	switch (name[1]) {
	case QUERY_NAME:
		return give_name(name + 2, depth - 2, request);
	case QUERY_NEXT:
	case QUERY_NEXTNOSKIP:
		return give_next(name + 2, depth - 2, name[1] == QUERY_NEXTNOSKIP, request);
	case QUERY_NAME2OID:
		return give_oid(request);
	case QUERY_OIDFMT:
		return give_format(name + 2, depth - 2, request);
	}
	return ENOENT;
}

static int answer(const int *name, unsigned depth, const struct request *request)
{
	struct entry *entry;

	if (depth < 2 || depth > MAXNAME)
		return EINVAL;
	load();
	if (name[0] == 0)
		return query(name, (int)depth, request);
	entry = find(name, (int)depth);
	if (!entry)
		return ENOENT;
	return entry->depth > (int)depth ? EISDIR : access_leaf(entry, request);
}

/* --- what libc has */

/* Not by the name of sysctl: glibc has one as well, which would be called from here. */
static int ask(const int *name, unsigned depth, void *old, size_t *old_size, const void *new,
	       size_t new_size)
{
	struct request request = { old, old_size, new, new_size };
	const char *path = getenv("SYSCTL_STANDIN_TABLE");
	char lock_path[PATH_MAX];
	int error, lock = -1;

	if (new && path) {
		snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
		lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (lock >= 0)
			flock(lock, LOCK_EX);
	}
	error = answer(name, depth, &request);
	if (lock >= 0)
		close(lock);
	errno = error;
	return error ? -1 : 0;
}

int sysctl(const int *name, unsigned depth, void *old, size_t *old_size, const void *new,
	   size_t new_size)
{
	return ask(name, depth, old, old_size, new, new_size);
}

int sysctlnametomib(const char *name, int *mib, size_t *depth)
{
	int question[2] = { 0, QUERY_NAME2OID };
	size_t size = *depth * sizeof(int);

	if (ask(question, 2, mib, &size, name, strlen(name)))
		return -1;
	*depth = size / sizeof(int);
	return 0;
}

int sysctlbyname(const char *name, void *old, size_t *old_size, const void *new, size_t new_size)
{
	int mib[MAXNAME];
	size_t depth = MAXNAME;

	if (sysctlnametomib(name, mib, &depth))
		return -1;
	return ask(mib, (unsigned)depth, old, old_size, new, new_size);
}

/* Notes who is spared in TABLE.protected. As procctl(2): root only, 0 is the caller. */
int procctl(int id_type, int64_t id, int command, void *data)
{
	const char *path = getenv("SYSCTL_STANDIN_TABLE");
	char protected[PATH_MAX];
	FILE *file;

	errno = id_type != 0 || command != 1 || *(int *)data != 1 ? EINVAL : 0;
	if (!errno && (!path || getenv("SYSCTL_STANDIN_USER")))
		errno = EPERM;
	if (errno)
		return -1;
	snprintf(protected, sizeof(protected), "%s.protected", path);
	file = fopen(protected, "we");
	if (!file)
		return -1;
	fprintf(file, "%d\n", id ? (int)id : (int)getpid());
	return fclose(file);
}
