/* What the stand-in driver offers to the other stand-ins. They find it by dlsym in the loaded libcuda.so.1. */
#ifndef ELASTICO_MOCK_HOOKS_H
#define ELASTICO_MOCK_HOOKS_H

#include <stddef.h>
#include <stdint.h>

enum mock_activity_kind { MOCK_KERNEL, MOCK_COPY, MOCK_SET };

/* One piece of finished work. Times are CLOCK_MONOTONIC, ns. */
struct mock_activity {
    enum mock_activity_kind kind;
    const char *name; /* of a kernel; lives as long as the process */
    unsigned grid[3], block[3], shared; /* dynamic shared bytes */
    unsigned registers, static_shared;
    unsigned copy_kind; /* CUpti_ActivityMemcpyKind: 1 to device, 2 to host, 8 on the device */
    uint64_t bytes;
    unsigned device, context, stream, correlation, graph; /* graph: 0, or its id */
    uint64_t begun, done;
};

/* Called under the driver's lock, in the process that launched, at its next call after the work ended: must not call
 * the driver. One hook; NULL removes it. */
typedef void (*mock_activity_hook)(const struct mock_activity *activity);
void elastico_mock_on_launch(mock_activity_hook hook);

/* Queues work of a library: `nanoseconds` on the stream, and `run(argument)` now in functional mode (a copy of
 * `bytes` bytes is kept for graphs). Returns a CUresult. */
int elastico_mock_enqueue(void *stream, const char *name, double nanoseconds, void (*run)(const void *argument),
                          const void *argument, size_t bytes);

#endif
