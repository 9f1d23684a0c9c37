/* Part of cuda.c: how work is queued, captured, waited for and reported. */

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
