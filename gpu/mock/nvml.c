/* A stand-in for libnvidia-ml.so.1 with one GPU whose persistence is off and whose MIG question is not supported. */
#include <string.h>

#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif

int nvmlInit_v2(void) { return INIT_RESULT; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { strncpy(text, "580.1", length); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)0x1; return index ? 2 : 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned length) { (void)device; strncpy(text, "Stand-in H100", length); return 0; }
int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode) { (void)device; *mode = 0; return 0; }
int nvmlDeviceGetComputeMode(void *device, unsigned *mode) { (void)device; *mode = COMPUTE_MODE; return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *next) { (void)device; *now = *next = 0; return 3; }
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *clock) { (void)device; *clock = kind == 1 ? 1200 : 2600; return 0; }
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *clock) { (void)device; *clock = kind == 1 ? 1980 : 2600; return 0; }
