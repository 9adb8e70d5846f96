// SPDX-License-Identifier: BSD-2-Clause
/* What went wrong in a session. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

int fail(struct zfstrace *t, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->error, sizeof(t->error), fmt, ap);
	va_end(ap);
	return err;
}
