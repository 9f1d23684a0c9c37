/* Part of cuda.c: contexts. */

API(cuDevicePrimaryCtxRetain)(struct context **context, int device) {
    BEGIN(cuDevicePrimaryCtxRetain, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    struct device *one = &devices[device];
    board_lock();
    if (!one->primary) {
        one->primary = make(sizeof *one->primary, MAGIC_CONTEXT);
        *one->primary = (struct context){MAGIC_CONTEXT, device, 0, next_id++, 1, limited(one->multiprocessors), NULL};
    }
    bool first = !one->primary->retained++;
    if (first) board_self->memory[one->place] += (uint64_t)mock_number("context_bytes", 400e6);
    board_unlock();
    if (first) mock_sleep((uint64_t)(1e6 * mock_number("context_milliseconds", 0)));
    *context = one->primary;
    return 0;
}

API(cuDevicePrimaryCtxRelease_v2)(int device) {
    BEGIN(cuDevicePrimaryCtxRelease, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    struct device *one = &devices[device];
    REQUIRE(one->primary && one->primary->retained, INVALID_CONTEXT);
    board_lock();
    if (!--one->primary->retained) board_self->memory[one->place] -= (uint64_t)mock_number("context_bytes", 400e6);
    board_unlock();
    return 0;
}

API(cuDevicePrimaryCtxGetState)(int device, unsigned *flags, int *active) {
    BEGIN(cuDevicePrimaryCtxGetState, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    *flags = 0;
    *active = devices[device].primary && devices[device].primary->retained;
    return 0;
}

API(cuDevicePrimaryCtxSetFlags_v2)(int device, unsigned flags) {
    (void)flags;
    BEGIN(cuDevicePrimaryCtxSetFlags, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    return 0;
}

API(cuCtxSetCurrent)(struct context *context) {
    BEGIN(cuCtxSetCurrent, ANY);
    REQUIRE(!context || is_handle(context, MAGIC_CONTEXT), INVALID_CONTEXT);
    current = context;
    return 0;
}

API(cuCtxGetCurrent)(struct context **context) {
    BEGIN(cuCtxGetCurrent, ANY);
    *context = current;
    return 0;
}

static __thread struct context *pushed[32];
static __thread int pushed_count;

API(cuCtxPushCurrent_v2)(struct context *context) {
    BEGIN(cuCtxPushCurrent, ANY);
    REQUIRE(is_handle(context, MAGIC_CONTEXT) && pushed_count < 32, INVALID_CONTEXT);
    pushed[pushed_count++] = current;
    current = context;
    return 0;
}

API(cuCtxPopCurrent_v2)(struct context **context) {
    BEGIN(cuCtxPopCurrent, CONTEXT);
    if (context) *context = current;
    current = pushed_count ? pushed[--pushed_count] : NULL;
    return 0;
}

API(cuCtxGetDevice)(int *device) {
    BEGIN(cuCtxGetDevice, CONTEXT);
    *device = current->device;
    return 0;
}

API(cuCtxGetId)(struct context *context, unsigned long long *id) {
    BEGIN(cuCtxGetId, ANY);
    if (!context) context = current;
    REQUIRE(is_handle(context, MAGIC_CONTEXT), INVALID_CONTEXT);
    *id = context->id;
    return 0;
}

API(cuCtxGetStreamPriorityRange)(int *least, int *greatest) {
    BEGIN(cuCtxGetStreamPriorityRange, CONTEXT);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return 0;
}
