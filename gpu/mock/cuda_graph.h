/* Part of cuda.c: capture and graphs. */

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
