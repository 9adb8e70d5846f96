// SPDX-License-Identifier: BSD-2-Clause
/*
 * What glibc got after 2.28, or a new version of, and what is linked in uses: so the library of
 * `make dist` runs with 2.28, wherever it is built. tests/unit/scripts/test_dist.py names what a
 * later glibc may add.
 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 2.33, an inline function before; the kernel's struct stat is the same on 64-bit machines. */
int fstat(int fd, struct stat *st)
{
	return syscall(SYS_fstat, fd, st);
}

/* 2.38, for whoever defines _GNU_SOURCE: those of C23, which also read binary numbers. */
#define OLD(type, name)                                                                            \
	extern type old_##name(const char *text, char **end, int base) __asm__(#name);             \
	type __isoc23_##name(const char *text, char **end, int base);                              \
	type __isoc23_##name(const char *text, char **end, int base)                               \
	{                                                                                          \
		return old_##name(text, end, base);                                                \
	}
OLD(long, strtol)
OLD(unsigned long, strtoul)
OLD(long long, strtoll)
OLD(unsigned long long, strtoull)

extern int old_vsscanf(const char *text, const char *format,
		       va_list ap) __asm__("__isoc99_vsscanf");
extern int old_vfscanf(FILE *file, const char *format, va_list ap) __asm__("__isoc99_vfscanf");
int __isoc23_sscanf(const char *text, const char *format, ...);
int __isoc23_fscanf(FILE *file, const char *format, ...);

int __isoc23_sscanf(const char *text, const char *format, ...)
{
	va_list ap;
	int read;

	va_start(ap, format);
	read = old_vsscanf(text, format, ap);
	va_end(ap);
	return read;
}

int __isoc23_fscanf(FILE *file, const char *format, ...)
{
	va_list ap;
	int read;

	va_start(ap, format);
	read = old_vfscanf(file, format, ap);
	va_end(ap);
	return read;
}
