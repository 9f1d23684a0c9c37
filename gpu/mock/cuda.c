/* A stand-in for libcuda.so.1: answers what the probe asks, as the macros say. */
#include <stddef.h>
#include <string.h>

#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif

int cuInit(unsigned flags) { return flags == 0 ? INIT_RESULT : 1; }

#ifndef WITHOUT_VERSION
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
#endif

int cuDeviceGetCount(int *count) { *count = 1; return 0; }

int cuDeviceGetName(char *name, int length, int device) {
    if (device != 0) return 101;
    strncpy(name, "Stand-in H100", (size_t)length);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 80000000000u; return 0; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : -1;
    return 0;
}
