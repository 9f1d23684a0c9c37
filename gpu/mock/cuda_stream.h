/* Part of cuda.c: streams and events. */

API(cuStreamCreate)(struct stream **stream, unsigned flags) {
    BEGIN(cuStreamCreate, CONTEXT);
    return stream_open(stream, current, flags);
}

API(cuStreamCreateWithPriority)(struct stream **stream, unsigned flags, int priority) {
    (void)priority;
    BEGIN(cuStreamCreateWithPriority, CONTEXT);
    return stream_open(stream, current, flags);
}

API(cuStreamDestroy_v2)(struct stream *stream) {
    BEGIN(cuStreamDestroy, ANY);
    REQUIRE(is_handle(stream, MAGIC_STREAM), INVALID_HANDLE);
    board_lock();
    settle(stream);
    queue_of(stream)->closing = 1;
    stream->magic = 0;
    struct stream **at = &streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    board_unlock();
    return 0;
}

API(cuStreamSynchronize)(void *handle) {
    BEGIN(cuStreamSynchronize, CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    int code = not_while_captured(stream);
    if (code) return code;
    if (queue_of(stream)->tail) wait_for(stream, queue_of(stream)->tail - 1);
    return 0;
}

API(cuStreamQuery)(void *handle) {
    BEGIN(cuStreamQuery, CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    int code = not_while_captured(stream);
    if (code) return code;
    board_lock();
    settle_all();
    bool done = queue_of(stream)->head == queue_of(stream)->tail;
    board_unlock();
    return done ? 0 : NOT_READY;
}

API(cuStreamGetCtx)(void *handle, struct context **context) {
    BEGIN(cuStreamGetCtx, CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    *context = stream->context;
    return 0;
}

API(cuStreamGetId)(void *handle, unsigned long long *id) {
    BEGIN(cuStreamGetId, CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    *id = stream->id;
    return 0;
}

API(cuStreamIsCapturing)(void *handle, int *status) {
    BEGIN(cuStreamIsCapturing, CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    *status = stream->capture ? stream->origin->invalidated ? 2 : 1 : 0;
    return 0;
}

API(cuStreamGetCaptureInfo_v3)(void *handle, int *status, uint64_t *id, struct graph **graph, void **dependencies,
                               void **edges, size_t *count) {
    int code = cuStreamIsCapturing(handle, status);
    if (code) return code;
    struct stream *stream = stream_of(handle);
    if (id) *id = stream->capture ? stream->capture->id : 0;
    if (graph) *graph = stream->capture;
    if (dependencies) *dependencies = NULL;
    if (edges) *edges = NULL;
    if (count) *count = 0;
    return 0;
}

API(cuCtxSynchronize)(void) {
    BEGIN(cuCtxSynchronize, CONTEXT);
    REQUIRE(!capture_forbids(), CAPTURE_UNSUPPORTED);
    for (struct stream *stream = streams; stream; stream = stream->next)
        if (stream->context == current && queue_of(stream)->tail) wait_for(stream, queue_of(stream)->tail - 1);
    return 0;
}

API(cuEventCreate)(struct event **event, unsigned flags) {
    BEGIN(cuEventCreate, CONTEXT);
    *event = make(sizeof **event, MAGIC_EVENT);
    (*event)->flags = flags;
    return 0;
}

API(cuEventDestroy_v2)(struct event *event) {
    BEGIN(cuEventDestroy, ANY);
    REQUIRE(is_handle(event, MAGIC_EVENT), INVALID_HANDLE);
    event->magic = 0;
    return 0;
}

API(cuEventRecordWithFlags)(struct event *event, void *handle, unsigned flags) {
    (void)flags;
    BEGIN(cuEventRecord, CONTEXT | WORK);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream && is_handle(event, MAGIC_EVENT), INVALID_HANDLE);
    if (stream->capture) {
        event->capture = stream->capture;
        event->stream = stream;
        event->recorded = false;
        return 0;
    }
    bool endless = hang_next;
    hang_next = false;
    board_lock();
    uint64_t sequence = push(stream, endless ? WORK_COMPUTE : WORK_MARKER, endless ? ENDLESS : 0, 0, 0);
    event->capture = NULL;
    event->recorded = true;
    event->complete = false;
    event->stream = stream;
    event->sequence = sequence;
    stream->events[sequence % BOARD_RING] = event;
    settle(stream);
    board_unlock();
    return 0;
}

API(cuEventRecord)(struct event *event, void *handle) { return cuEventRecordWithFlags(event, handle, 0); }

API(cuEventQuery)(struct event *event) {
    BEGIN(cuEventQuery, ANY);
    REQUIRE(is_handle(event, MAGIC_EVENT), INVALID_HANDLE);
    REQUIRE(!event->capture, CAPTURE_UNSUPPORTED);
    board_lock();
    settle_all();
    bool done = !event->recorded || event->complete;
    board_unlock();
    return done ? 0 : NOT_READY;
}

API(cuEventSynchronize)(struct event *event) {
    BEGIN(cuEventSynchronize, ANY);
    REQUIRE(is_handle(event, MAGIC_EVENT), INVALID_HANDLE);
    REQUIRE(!event->capture, CAPTURE_UNSUPPORTED);
    if (event->recorded && !event->complete) wait_for(event->stream, event->sequence);
    return 0;
}

API(cuEventElapsedTime_v2)(float *milliseconds, struct event *begin_event, struct event *end_event) {
    BEGIN(cuEventElapsedTime, ANY);
    REQUIRE(is_handle(begin_event, MAGIC_EVENT) && is_handle(end_event, MAGIC_EVENT), INVALID_HANDLE);
    REQUIRE(begin_event->recorded && end_event->recorded, INVALID_HANDLE);
    REQUIRE(!(begin_event->flags & 2) && !(end_event->flags & 2), INVALID_HANDLE); /* CU_EVENT_DISABLE_TIMING */
    board_lock();
    settle_all();
    bool done = begin_event->complete && end_event->complete;
    board_unlock();
    REQUIRE(done, NOT_READY);
    *milliseconds = (float)(((double)end_event->done - (double)begin_event->done) / 1e6);
    return 0;
}

API(cuEventElapsedTime)(float *milliseconds, struct event *begin_event, struct event *end_event) {
    return cuEventElapsedTime_v2(milliseconds, begin_event, end_event);
}

API(cuStreamWaitEvent)(void *handle, struct event *event, unsigned flags) {
    (void)flags;
    BEGIN(cuStreamWaitEvent, CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream && is_handle(event, MAGIC_EVENT), INVALID_HANDLE);
    if (event->capture) { /* the stream joins that capture, or its branch is joined */
        REQUIRE(!stream->capture || stream->capture == event->capture, CAPTURE_UNSUPPORTED);
        stream->capture = event->capture;
        stream->origin = event->stream->origin;
        if (event->stream != stream) event->stream->unjoined = false;
        return 0;
    }
    if (!event->recorded || event->complete || event->stream == stream) return 0;
    board_lock();
    push(stream, WORK_WAIT, 0, event->stream->queue, event->sequence);
    board_unlock();
    return 0;
}
