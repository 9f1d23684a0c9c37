/* A stand-in for libcupti.so.13. */
#define _GNU_SOURCE
#include "cupti_activity.h"

int cuptiGetVersion(unsigned *version) { *version = VERSION; return RESULT; }
