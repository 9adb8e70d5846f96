/* SPDX-License-Identifier: BSD-2-Clause */
/* What the unit tests in C have in common: a check that fails is told, and the test goes on. */
#ifndef ZFSTUNE_CHECK_H
#define ZFSTUNE_CHECK_H

#include <stdio.h>

static unsigned int failures;

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #cond);                          \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

/* Says how the program has ended; its status. */
static inline int checked(const char *tests)
{
	if (failures)
		printf("%s: %u checks failed\n", tests, failures);
	else
		printf("%s: all passed\n", tests);
	return failures != 0;
}

#endif
