/* The activity part of the stand-in libcupti: kernels, copies and graph launches of the stand-in driver as records.
 *
 * Records come from the hook of hooks.h. As in CUPTI, a process has one subscriber; records lie in buffers that the
 * client lends; a buffer comes back when it is full or flushed; times are CLOCK_REALTIME unless the client registers a
 * clock of its own (then CLOCK_MONOTONIC is assumed, which is the stand-in driver's). With GRAPH_TRACE enabled a graph
 * launch is one record, without it one per node.
 *
 * Faults of the script by the names of the calls: `fault cuptiSubscribe 39` is a program that is profiled already,
 * `fault cuptiActivityEnable 35` a driver that forbids it. -DWITHOUT_cuptiActivityRegisterTimestampCallback is an old CUPTI.
 */
#ifndef ELASTICO_MOCK_CUPTI_ACTIVITY_H
#define ELASTICO_MOCK_CUPTI_ACTIVITY_H

#include "hooks.h"
#include "script.h"
#include <dlfcn.h>

enum { ACTIVITY_COPY = 1, ACTIVITY_KERNEL = 3, ACTIVITY_CONCURRENT_KERNEL = 10, ACTIVITY_GRAPH = 51, ACTIVITY_KINDS = 64 };
enum { ACTIVITY_INVALID = 1, ACTIVITY_NO_MORE = 12, ACTIVITY_TAKEN = 39 };

/* As in cupti_activity.h up to the fields that clients read; the sizes are those of CUPTI 13.0. */
struct activity_kernel {
    uint32_t kind;
    uint8_t cache, shared_config;
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t static_shared, dynamic_shared;
    uint32_t local_thread, local_total, correlation;
    int64_t grid_id;
    const char *name;
    char rest[96];
} __attribute__((packed, aligned(8)));

struct activity_copy {
    uint32_t kind;
    uint8_t copy_kind, source, target, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, pad;
    char rest[40];
} __attribute__((packed, aligned(8)));

struct activity_graph {
    uint32_t kind, correlation;
    uint64_t start, end;
    uint32_t device, graph, context, stream;
    char rest[16];
};

static struct {
    pthread_mutex_t lock;
    bool subscribed, hooked, enabled[ACTIVITY_KINDS];
    void (*request)(uint8_t **, size_t *, size_t *);
    void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
    uint64_t (*clock)(void);
    uint8_t *buffer;
    size_t size, used;
    uint64_t dropped;
    struct activity_graph graph; /* under way: its nodes come one after the other */
} activity = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t activity_offset(void) {
    struct timespec real;
    if (activity.clock) return 0;
    clock_gettime(CLOCK_REALTIME, &real);
    return (int64_t)((uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec - mock_now());
}

/* Gives the buffer back. Under the lock. */
static void activity_deliver(void) {
    uint8_t *buffer = activity.buffer;
    activity.buffer = NULL;
    if (buffer) activity.complete(NULL, 0, buffer, activity.size, activity.used);
}

/* Under the lock. */
static void activity_add(const void *record, size_t size) {
    size_t most = 0;
    if (activity.buffer && activity.used + size > activity.size) activity_deliver();
    if (!activity.buffer) {
        activity.used = activity.size = 0;
        activity.request(&activity.buffer, &activity.size, &most);
    }
    if (!activity.buffer || activity.used + size > activity.size) {
        activity.dropped++;
        return;
    }
    memcpy(activity.buffer + activity.used, record, size);
    activity.used += size;
}

static void activity_end_graph(void) {
    if (activity.graph.kind) activity_add(&activity.graph, sizeof activity.graph);
    activity.graph.kind = 0;
}

static void activity_see(const struct mock_activity *seen) {
    pthread_mutex_lock(&activity.lock);
    int64_t offset = activity_offset();
    uint64_t start = seen->begun + (uint64_t)offset, end = seen->done + (uint64_t)offset;
    if (activity.graph.kind && (activity.graph.correlation != seen->correlation || activity.graph.graph != seen->graph))
        activity_end_graph();
    if (seen->graph && activity.enabled[ACTIVITY_GRAPH]) {
        if (!activity.graph.kind)
            activity.graph = (struct activity_graph){ACTIVITY_GRAPH, seen->correlation, start, end, seen->device,
                                                     seen->graph, seen->context, seen->stream, {0}};
        if (end > activity.graph.end) activity.graph.end = end;
    } else if (seen->kind == MOCK_KERNEL && activity.enabled[ACTIVITY_CONCURRENT_KERNEL]) {
        struct activity_kernel record = {.kind = ACTIVITY_CONCURRENT_KERNEL,
                                         .registers = (uint16_t)seen->registers,
                                         .start = start,
                                         .end = end,
                                         .device = seen->device,
                                         .context = seen->context,
                                         .stream = seen->stream,
                                         .static_shared = (int32_t)seen->static_shared,
                                         .dynamic_shared = (int32_t)seen->shared,
                                         .correlation = seen->correlation,
                                         .name = seen->name};
        for (int i = 0; i < 3; i++) record.grid[i] = (int32_t)seen->grid[i], record.block[i] = (int32_t)seen->block[i];
        activity_add(&record, sizeof record);
    } else if (seen->kind == MOCK_COPY && activity.enabled[ACTIVITY_COPY]) {
        struct activity_copy record = {.kind = ACTIVITY_COPY,
                                       .copy_kind = (uint8_t)seen->copy_kind,
                                       .bytes = seen->bytes,
                                       .start = start,
                                       .end = end,
                                       .device = seen->device,
                                       .context = seen->context,
                                       .stream = seen->stream,
                                       .correlation = seen->correlation};
        activity_add(&record, sizeof record);
    }
    pthread_mutex_unlock(&activity.lock);
}

API(cuptiSubscribe)(void **subscriber, void *callback, void *data) {
    (void)callback, (void)data;
    int code = mock_fault("cuptiSubscribe");
    if (code) return code;
    if (!subscriber) return ACTIVITY_INVALID;
    if (activity.subscribed) return ACTIVITY_TAKEN;
    activity.subscribed = true;
    *subscriber = &activity;
    return 0;
}

API(cuptiUnsubscribe)(void *subscriber) {
    if (subscriber != &activity) return ACTIVITY_INVALID;
    activity.subscribed = false;
    return 0;
}

API(cuptiActivityRegisterCallbacks)(void *request, void *complete) {
    int code = mock_fault("cuptiActivityRegisterCallbacks");
    if (code) return code;
    if (!request || !complete) return ACTIVITY_INVALID;
    pthread_mutex_lock(&activity.lock);
    *(void **)&activity.request = request;
    *(void **)&activity.complete = complete;
    pthread_mutex_unlock(&activity.lock);
    return 0;
}

API(cuptiActivityRegisterTimestampCallback)(void *clock) {
    int code = mock_fault("cuptiActivityRegisterTimestampCallback");
    if (code) return code;
    *(void **)&activity.clock = clock;
    return 0;
}

API(cuptiActivityEnable)(uint32_t kind) {
    int code = mock_fault("cuptiActivityEnable");
    if (code) return code;
    if (kind >= ACTIVITY_KINDS) return ACTIVITY_INVALID;
    activity.enabled[kind] = true;
    if (!activity.hooked) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        void (*on_launch)(mock_activity_hook) = NULL;
        if (driver) *(void **)&on_launch = dlsym(driver, "elastico_mock_on_launch");
        if (!on_launch) return 999;
        on_launch(activity_see);
        activity.hooked = true;
    }
    return 0;
}

API(cuptiActivityDisable)(uint32_t kind) {
    if (kind >= ACTIVITY_KINDS) return ACTIVITY_INVALID;
    activity.enabled[kind] = false;
    return 0;
}

API(cuptiActivityFlushAll)(uint32_t forced) {
    pthread_mutex_lock(&activity.lock);
    /* The nodes of a graph come at once, or a few milliseconds apart. */
    uint64_t now = mock_now() + (uint64_t)activity_offset();
    if (forced || now > activity.graph.end + 30000000u) activity_end_graph();
    activity_deliver();
    pthread_mutex_unlock(&activity.lock);
    return 0;
}

API(cuptiActivityGetNextRecord)(uint8_t *buffer, size_t valid, void **record) {
    static const size_t sizes[ACTIVITY_KINDS] = {[ACTIVITY_COPY] = sizeof(struct activity_copy),
                                                 [ACTIVITY_CONCURRENT_KERNEL] = sizeof(struct activity_kernel),
                                                 [ACTIVITY_GRAPH] = sizeof(struct activity_graph)};
    if (!record) return ACTIVITY_INVALID;
    uint8_t *next = *record ? (uint8_t *)*record + sizes[*(uint32_t *)*record] : buffer;
    if (next >= buffer + valid) return ACTIVITY_NO_MORE;
    *record = next;
    return 0;
}

API(cuptiActivityGetNumDroppedRecords)(void *context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    *dropped = __atomic_exchange_n(&activity.dropped, 0, __ATOMIC_RELAXED);
    return 0;
}

API(cuptiGetTimestamp)(uint64_t *timestamp) {
    *timestamp = activity.clock ? activity.clock() : mock_now() + (uint64_t)activity_offset();
    return 0;
}

#endif
