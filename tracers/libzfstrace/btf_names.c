// SPDX-License-Identifier: BSD-2-Clause
/*
 * Which of the given names a kernel's BTF has as types of some kinds, and their ids. libbpf would
 * parse all of vmlinux again for this, which takes longer than attaching;
 * walking the type section once does not. Format: the kernel's
 * Documentation/bpf/btf.rst.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Bytes that follow a struct btf_type, or -1 for a kind we do not know. */
static long trailing_bytes(uint32_t kind, uint32_t vlen)
{
	switch (kind) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return 12;
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_DATASEC:
	case BTF_KIND_ENUM64:
		return 12L * vlen;
	case BTF_KIND_ENUM:
	case BTF_KIND_FUNC_PROTO:
		return 8L * vlen;
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	default:
		return -1;
	}
}

/*
 * base: of the BTF on which split BTF stands: its types are numbered, and its name offsets begin,
 * after those of the base; 0, 0 if it stands alone. Sets the ids of the n names that were found,
 * and what is the base of others. Returns how many were found, or -EINVAL.
 */
int btf_find_names(const void *data, size_t size, struct btf_base base, uint32_t kinds,
		   const char *const *names, uint32_t *ids, unsigned int n, struct btf_base *own)
{
	const struct btf_header *h = data;
	const char *strings, *types, *end;
	uint32_t id = base.types;
	int hits = 0;

	if (size < sizeof(*h) || h->magic != BTF_MAGIC || h->hdr_len < sizeof(*h) ||
	    (uint64_t)h->hdr_len + h->type_off + h->type_len > size ||
	    (uint64_t)h->hdr_len + h->str_off + h->str_len > size || h->str_len == 0)
		return -EINVAL;
	types = (const char *)data + h->hdr_len + h->type_off;
	end = types + h->type_len;
	strings = (const char *)data + h->hdr_len + h->str_off;
	if (strings[h->str_len - 1] != '\0')
		return -EINVAL;
	while (end - types >= (long)sizeof(struct btf_type)) {
		struct btf_type t;
		long more;

		memcpy(&t, types, sizeof(t));
		more = trailing_bytes(BTF_INFO_KIND(t.info), BTF_INFO_VLEN(t.info));
		if (more < 0)
			return -EINVAL;
		types += sizeof(t);
		if (more > end - types)
			return -EINVAL;
		types += more;
		id++;
		if (!(kinds >> BTF_INFO_KIND(t.info) & 1) || t.name_off < base.strings ||
		    t.name_off - base.strings >= h->str_len)
			continue;
		for (unsigned int i = 0; i < n; i++) {
			if (names[i] && !ids[i] &&
			    strcmp(strings + (t.name_off - base.strings), names[i]) == 0) {
				ids[i] = id;
				hits++;
			}
		}
	}
	*own = (struct btf_base) { h->str_len, id };
	return hits;
}

/* A whole file of /sys/kernel/btf; NULL with errno. */
static void *read_btf(const char *name, size_t *size)
{
	size_t room = 1 << 16, used = 0, got;
	char path[128], *data, *more;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/btf/%s", name);
	f = fopen(path, "re");
	if (!f)
		return NULL;
	data = malloc(room);
	while (data && (got = fread(data + used, 1, room - used, f)) > 0) {
		used += got;
		if (used < room)
			continue;
		room *= 2;
		more = realloc(data, room);
		if (!more)
			free(data);
		data = more;
	}
	fclose(f);
	*size = used;
	return data;
}

/* The same for "vmlinux" or a module by name; -ENOENT when it has no BTF. */
int btf_file_names(const char *name, struct btf_base base, uint32_t kinds, const char *const *names,
		   uint32_t *ids, unsigned int n, struct btf_base *own)
{
	size_t size = 0;
	void *data = read_btf(name, &size);
	int err;

	if (!data)
		return -ENOENT;
	err = btf_find_names(data, size, base, kinds, names, ids, n, own);
	free(data);
	return err;
}
