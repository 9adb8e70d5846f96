// SPDX-License-Identifier: BSD-2-Clause
/* Which of the given names are functions of the loaded ZFS modules. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

/*
 * A line of /proc/kallsyms is "address type name[\t[module]]". Only functions
 * of the modules zfs and spl count (spl is part of zfs in some builds): another
 * module may have a function of the same name.
 */
unsigned int symbols_find(FILE *kallsyms, const char *const *names, bool *found, unsigned int n)
{
	unsigned int hits = 0;
	char line[512];

	while (fgets(line, sizeof(line), kallsyms)) {
		char *name, *module;

		module = strchr(line, '\t');
		if (!module || (strncmp(module, "\t[zfs]", 6) && strncmp(module, "\t[spl]", 6)))
			continue;
		*module = '\0';
		name = strrchr(line, ' ');
		if (!name || name - line < 2 || !strchr("tTwW", name[-1]))
			continue;
		name++;
		for (unsigned int i = 0; i < n; i++) {
			if (names[i] && !found[i] && strcmp(names[i], name) == 0) {
				found[i] = true;
				hits++;
			}
		}
	}
	return hits;
}
