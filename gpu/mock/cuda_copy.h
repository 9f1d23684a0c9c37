/* Part of cuda.c: copies and fills as calls, and the work of other libraries. */

static int copy(void *handle, uint64_t to, uint64_t from, size_t bytes, enum work kind, bool wait) {
    struct stream *stream = stream_of(handle);
    bool contents;
    if (!stream) return INVALID_HANDLE;
    if (wait && capture_forbids()) return CAPTURE_UNSUPPORTED;
    if (!bytes) return 0;
    if ((kind != WORK_TO_HOST && !on_device(to, bytes, &contents)) || (kind != WORK_TO_DEVICE && !on_device(from, bytes, &contents)))
        return INVALID_VALUE;
    double speed = kind == WORK_COMPUTE ? mock_number("memory_gigabytes_per_second", 4000) / 2
                                        : mock_number("copy_gigabytes_per_second", 50);
    struct copy argument = {to, from, bytes};
    struct node node = {kind, 1000 + (double)bytes / speed, run_copy, &argument,
                        {.kind = MOCK_COPY, .bytes = bytes, .copy_kind = kind == WORK_TO_DEVICE ? 1 : kind == WORK_TO_HOST ? 2 : 8}};
    int code = enqueue(stream, node, sizeof argument);
    if (wait && !code) wait_for(stream, queue_of(stream)->tail - 1);
    return code;
}

#define COPY(name, to_type, from_type, work)                                                        \
    API(cuMemcpy##name##_v2)(to_type to, from_type from, size_t bytes) {                            \
        BEGIN(cuMemcpy##name, CONTEXT | WORK);                                                      \
        return copy(NULL, (uint64_t)to, (uint64_t)from, bytes, work, true);                         \
    }                                                                                               \
    API(cuMemcpy##name##Async_v2)(to_type to, from_type from, size_t bytes, void *stream) {         \
        BEGIN(cuMemcpy##name##Async, CONTEXT | WORK);                                               \
        return copy(stream, (uint64_t)to, (uint64_t)from, bytes, work, false);                      \
    }
COPY(HtoD, uint64_t, const void *, WORK_TO_DEVICE)
COPY(DtoH, void *, uint64_t, WORK_TO_HOST)
COPY(DtoD, uint64_t, uint64_t, WORK_COMPUTE)

/* Unified addresses: the direction is seen. */
static int copy_any(void *handle, uint64_t to, uint64_t from, size_t bytes, bool wait) {
    bool contents, to_device = on_device(to, 1, &contents), from_device = on_device(from, 1, &contents);
    return copy(handle, to, from, bytes, !to_device ? WORK_TO_HOST : from_device ? WORK_COMPUTE : WORK_TO_DEVICE, wait);
}

API(cuMemcpy)(uint64_t to, uint64_t from, size_t bytes) {
    BEGIN(cuMemcpy, CONTEXT | WORK);
    return copy_any(NULL, to, from, bytes, true);
}

API(cuMemcpyAsync)(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    BEGIN(cuMemcpyAsync, CONTEXT | WORK);
    return copy_any(stream, to, from, bytes, false);
}

static int fill(void *handle, uint64_t to, uint32_t value, size_t width, size_t count) {
    struct stream *stream = stream_of(handle);
    bool contents;
    if (!stream) return INVALID_HANDLE;
    if (!count) return 0;
    if (!on_device(to, width * count, &contents) || to % width) return INVALID_VALUE;
    struct fill argument = {to, value, width, count};
    struct node node = {WORK_COMPUTE, 1000 + (double)(width * count) / mock_number("memory_gigabytes_per_second", 4000),
                        run_fill, &argument, {.kind = MOCK_SET, .bytes = width * count}};
    return enqueue(stream, node, sizeof argument);
}

#define FILL(bits, type)                                                                      \
    API(cuMemsetD##bits##_v2)(uint64_t to, type value, size_t count) {                        \
        BEGIN(cuMemsetD##bits, CONTEXT | WORK);                                               \
        return fill(NULL, to, value, bits / 8, count);                                        \
    }                                                                                         \
    API(cuMemsetD##bits##Async)(uint64_t to, type value, size_t count, void *stream) {        \
        BEGIN(cuMemsetD##bits##Async, CONTEXT | WORK);                                        \
        return fill(stream, to, value, bits / 8, count);                                      \
    }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)

void elastico_mock_on_launch(mock_activity_hook hook) { activity_hook = hook; }

int elastico_mock_enqueue(void *handle, const char *name, double nanoseconds, void (*run)(const void *argument),
                          const void *argument, size_t bytes) {
    REQUIRE(current, INVALID_CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    struct node node = {WORK_COMPUTE, nanoseconds, functional ? run : NULL, (void *)argument,
                        {.kind = MOCK_KERNEL, .name = name, .grid = {1, 1, 1}, .block = {128, 1, 1}, .registers = 128}};
    return enqueue(stream, node, bytes);
}
