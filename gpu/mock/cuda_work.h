/* Part of cuda.c: streams, events, capture and graphs. */

#define ENDLESS 1e18 /* ns: work that never ends */

/* One piece of work, queued or in a graph. */
struct node {
    enum work kind;
    double nanoseconds;
    void (*run)(const void *argument);
    void *argument;
    struct mock_activity facts;
};

struct graph {
    int magic, count, room;
    unsigned id;
    struct node *nodes;
};

/* What the hook is told when an operation has ended: nodes of a graph share its time in proportion. */
struct report {
    int count;
    unsigned graph, correlation;
    const struct node *nodes;
};

struct stream {
    int magic, queue;
    unsigned id, flags;
    struct context *context;
    struct graph *capture; /* while captured */
    struct stream *origin; /* where that capture began; itself there */
    int capture_mode;
    pthread_t capturer;
    bool invalidated, unjoined;
    uint64_t settled;
    struct event *events[BOARD_RING];
    struct report *reports[BOARD_RING];
    struct stream *next;
};

struct event {
    int magic;
    unsigned flags;
    bool recorded, complete;
    struct stream *stream;
    uint64_t sequence, done;
    struct graph *capture; /* recorded inside this capture */
};

static struct stream *streams;
static unsigned next_correlation = 1;

static uint64_t random_bits(void) {
    static __thread uint64_t state;
    if (!state) state = mock_now() * 2654435761u + (uint64_t)getpid() + 1;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

/* One draw of a standard normal: twelve uniforms. */
static double random_normal(void) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(random_bits() >> 11) / 9007199254740992.0;
    return sum;
}

static double jitter(void) {
    static double deviation = -1;
    if (deviation < 0) deviation = mock_number("jitter", 0.002);
    return most(0.1, 1 + deviation * random_normal());
}

static int stream_open(struct stream **stream, struct context *context, unsigned flags) {
    struct stream *made = make(sizeof *made, MAGIC_STREAM);
    made->flags = flags;
    made->context = context;
    board_lock();
    made->id = next_id++;
    made->queue = board_open_queue(devices[context->device].place, context->share);
    made->next = streams;
    streams = made;
    board_unlock();
    *stream = made;
    return made->queue < 0 ? OUT_OF_MEMORY : 0;
}

/* Handles 0, 1 and 2 are the default streams. NULL: no stream. */
static struct stream *stream_of(void *handle) {
    if ((uintptr_t)handle > 2) return is_handle(handle, MAGIC_STREAM) ? handle : NULL;
    if (!current->legacy) stream_open(&current->legacy, current, 0);
    return current->legacy;
}

static struct queue *queue_of(const struct stream *stream) { return &board_self->queues[stream->queue]; }

/* Takes over what ended since the last look. Under the lock. */
static void settle(struct stream *stream) {
    for (uint64_t head = queue_of(stream)->head; stream->settled < head; stream->settled++) {
        size_t slot = stream->settled % BOARD_RING;
        const struct operation *operation = board_operation(board_self, stream->queue, stream->settled);
        struct event *event = stream->events[slot];
        struct report *report = stream->reports[slot];
        if (event && event->stream == stream && event->sequence == stream->settled) {
            event->complete = true;
            event->done = operation->done;
        }
        double whole = 0, past = 0, length = (double)(operation->done - operation->begun);
        for (int i = 0; report && i < report->count; i++) whole += report->nodes[i].nanoseconds;
        for (int i = 0; report && activity_hook && i < report->count; i++) {
            struct mock_activity facts = report->nodes[i].facts;
            facts.begun = operation->begun + (uint64_t)(whole > 0 ? length * past / whole : 0);
            past += report->nodes[i].nanoseconds;
            facts.done = operation->begun + (uint64_t)(whole > 0 ? length * past / whole : length);
            facts.device = (unsigned)devices[stream->context->device].index;
            facts.context = stream->context->id;
            facts.stream = stream->id;
            facts.correlation = report->correlation;
            facts.graph = report->graph;
            activity_hook(&facts);
        }
        free(report);
        stream->events[slot] = NULL;
        stream->reports[slot] = NULL;
    }
}

static void settle_all(void) {
    for (struct stream *stream = streams; stream; stream = stream->next)
        if (stream->queue >= 0 && stream->magic == MAGIC_STREAM) settle(stream);
}

/* Adds one operation, waiting for room as the driver does when its queue is full. Under the lock. */
static uint64_t push(struct stream *stream, int kind, double nanoseconds, int queue, uint64_t sequence) {
    settle_all();
    while (queue_of(stream)->tail - stream->settled >= BOARD_RING - 1) {
        board_unlock();
        mock_sleep(200000);
        board_lock();
        settle_all();
    }
    if (hang_next && kind < WORK_MARKER) {
        nanoseconds = ENDLESS;
        hang_next = false;
    }
    return board_push(stream->queue, kind, nanoseconds < ENDLESS ? nanoseconds * jitter() : nanoseconds, queue, sequence);
}

/* Queues nodes; neighbours of one kind become one operation. */
static void submit(struct stream *stream, const struct node *nodes, int count, unsigned graph) {
    for (int i = 0; i < count; i++)
        if (nodes[i].run) nodes[i].run(nodes[i].argument);
    board_lock();
    unsigned correlation = next_correlation++;
    for (int from = 0, to; from < count; from = to) {
        double nanoseconds = 0;
        for (to = from; to < count && nodes[to].kind == nodes[from].kind; to++) nanoseconds += nodes[to].nanoseconds;
        struct report *report = NULL;
        if (activity_hook) {
            struct node *copy = NULL;
            report = malloc(sizeof *report + (graph ? 0 : sizeof *copy * (size_t)(to - from)));
            if (!graph) copy = memcpy(report + 1, nodes + from, sizeof *copy * (size_t)(to - from));
            *report = (struct report){to - from, graph, correlation, graph ? nodes + from : copy};
        }
        uint64_t sequence = push(stream, nodes[from].kind, nanoseconds, 0, 0);
        /* It may have ended at once; then it is settled with the next call. */
        stream->reports[sequence % BOARD_RING] = report;
    }
    settle_all();
    board_unlock();
}

static int enqueue(struct stream *stream, struct node node, size_t argument_bytes) {
    if (!stream->capture) {
        submit(stream, &node, 1, 0);
        return 0;
    }
    if (stream->origin->invalidated) return CAPTURE_INVALIDATED;
    struct graph *graph = stream->capture;
    board_lock();
    if (graph->count == graph->room)
        graph->nodes = realloc(graph->nodes, (size_t)(graph->room = graph->room * 2 + 64) * sizeof node);
    if (argument_bytes) node.argument = memcpy(malloc(argument_bytes), node.argument, argument_bytes);
    if (hang_next) node.nanoseconds = ENDLESS;
    hang_next = false;
    graph->nodes[graph->count++] = node;
    if (stream != stream->origin) stream->unjoined = true;
    board_unlock();
    return 0;
}

/* Waits until an operation ended; sleeps for as long as the board expects, looking again at least every millisecond. */
static void wait_for(struct stream *stream, uint64_t sequence) {
    for (;;) {
        board_lock();
        settle_all();
        bool done = queue_of(stream)->head > sequence;
        double left = done ? 0 : board_estimate(stream->queue, sequence);
        board_unlock();
        if (done) return;
        mock_sleep((uint64_t)least(1e6, most(20e3, left)));
    }
}

/* Waiting for a stream that is captured ends the capture. */
static int not_while_captured(struct stream *stream) {
    if (!stream->capture) return 0;
    stream->origin->invalidated = true;
    return CAPTURE_UNSUPPORTED;
}

/* A capture in global mode forbids calls such as cuMemAlloc to all threads, one in thread mode to its own. */
static bool capture_forbids(void) {
    bool forbids = false;
    board_lock();
    for (struct stream *stream = streams; stream; stream = stream->next)
        if (stream->capture && stream->origin == stream &&
            (stream->capture_mode == 0 || (stream->capture_mode == 1 && pthread_equal(stream->capturer, pthread_self()))))
            forbids = stream->invalidated = true;
    board_unlock();
    return forbids;
}

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

API(cuStreamBeginCapture_v2)(void *handle, int mode) {
    BEGIN(cuStreamBeginCapture, CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    REQUIRE((uintptr_t)handle > 2 && !stream->capture, CAPTURE_UNSUPPORTED);
    struct graph *graph = make(sizeof *graph, MAGIC_GRAPH);
    graph->id = next_id++;
    board_lock();
    stream->capture = graph;
    stream->origin = stream;
    stream->capture_mode = mode;
    stream->capturer = pthread_self();
    stream->invalidated = false;
    board_unlock();
    return 0;
}

API(cuStreamEndCapture)(void *handle, struct graph **graph) {
    BEGIN(cuStreamEndCapture, CONTEXT);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    REQUIRE(stream->capture && stream->origin == stream, CAPTURE_UNMATCHED);
    int code = stream->invalidated ? CAPTURE_INVALIDATED : 0;
    struct graph *made = stream->capture;
    board_lock();
    for (struct stream *other = streams; other; other = other->next)
        if (other->capture == made) {
            if (other->unjoined && !code) code = CAPTURE_UNJOINED;
            other->capture = NULL;
            other->origin = NULL;
            other->unjoined = false;
        }
    board_unlock();
    *graph = code ? NULL : made;
    return code;
}

API(cuGraphCreate)(struct graph **graph, unsigned flags) {
    BEGIN(cuGraphCreate, ANY);
    REQUIRE(!flags, INVALID_VALUE);
    *graph = make(sizeof **graph, MAGIC_GRAPH);
    (*graph)->id = next_id++;
    return 0;
}

API(cuGraphGetNodes)(struct graph *graph, void **nodes, size_t *count) {
    BEGIN(cuGraphGetNodes, ANY);
    REQUIRE(is_handle(graph, MAGIC_GRAPH), INVALID_HANDLE);
    for (int i = 0; nodes && i < graph->count && (size_t)i < *count; i++) nodes[i] = &graph->nodes[i];
    *count = (size_t)graph->count;
    return 0;
}

API(cuGraphInstantiateWithFlags)(struct graph **executable, struct graph *graph, unsigned long long flags) {
    (void)flags;
    BEGIN(cuGraphInstantiate, CONTEXT);
    REQUIRE(is_handle(graph, MAGIC_GRAPH), INVALID_HANDLE);
    struct graph *made = make(sizeof *made, MAGIC_EXEC);
    made->id = graph->id;
    made->count = made->room = graph->count;
    made->nodes = memcpy(malloc(sizeof *made->nodes * (size_t)(graph->count + 1)), graph->nodes ? graph->nodes : (void *)"",
                         sizeof *made->nodes * (size_t)graph->count);
    *executable = made;
    return 0;
}

API(cuGraphDestroy)(struct graph *graph) {
    BEGIN(cuGraphDestroy, ANY);
    REQUIRE(is_handle(graph, MAGIC_GRAPH), INVALID_HANDLE);
    graph->magic = 0;
    return 0;
}

API(cuGraphExecDestroy)(struct graph *executable) {
    BEGIN(cuGraphExecDestroy, ANY);
    REQUIRE(is_handle(executable, MAGIC_EXEC), INVALID_HANDLE);
    executable->magic = 0;
    return 0;
}

API(cuGraphUpload)(struct graph *executable, void *handle) {
    BEGIN(cuGraphUpload, CONTEXT);
    REQUIRE(is_handle(executable, MAGIC_EXEC) && stream_of(handle), INVALID_HANDLE);
    return 0;
}

API(cuGraphLaunch)(struct graph *executable, void *handle) {
    BEGIN(cuGraphLaunch, CONTEXT | WORK);
    struct stream *stream = stream_of(handle);
    REQUIRE(stream && is_handle(executable, MAGIC_EXEC), INVALID_HANDLE);
    if (!stream->capture) {
        submit(stream, executable->nodes, executable->count, executable->id);
        return 0;
    }
    int code = 0;
    for (int i = 0; i < executable->count && !code; i++) code = enqueue(stream, executable->nodes[i], 0);
    return code;
}

/* --- copies and fills --------------------------------------------------------------------------------------------- */

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
