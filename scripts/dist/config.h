/* elfutils' config.h, for libelf on Linux alone: its configure need not run. */
#pragma once

#define _GNU_SOURCE 1
#define HAVE_ERR_H 1
#define HAVE_VISIBILITY 1
#define HAVE_GCC_STRUCT 1
#define HAVE_DECL_MEMRCHR 1
#define HAVE_DECL_RAWMEMCHR 1
#define HAVE_DECL_POWEROF2 1
#define HAVE_DECL_MEMPCPY 1
#define HAVE_DECL_REALLOCARRAY 1

#include <eu-config.h>
