/* Part of cuda.c: green contexts, which split the SMs inside one process. */

/* CUdevResource of CUDA 13.0: 144 bytes, of which SM resources use four words. */
struct resource {
    int type;
    unsigned char reserved[92];
    unsigned count, smallest, alignment;
    unsigned char rest[36];
};

enum { RESOURCE_SM = 1 };

struct description {
    int magic;
    unsigned count;
};

struct green {
    int magic, device;
    struct context *context;
};

static unsigned sm_alignment(void) { return capability(0) >= 9 ? 8 : capability(0) == 8 ? 2 : 2; }
static unsigned sm_smallest(void) { return capability(0) >= 9 ? 8 : capability(0) == 8 ? 4 : 2; }

static struct resource sm_resource(unsigned count) {
    return (struct resource){.type = RESOURCE_SM, .count = count, .smallest = sm_smallest(), .alignment = sm_alignment()};
}

API(cuDeviceGetDevResource)(int device, struct resource *resource, int type) {
    BEGIN(cuDeviceGetDevResource, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    REQUIRE(resource && type == RESOURCE_SM, INVALID_VALUE);
    *resource = sm_resource((unsigned)limited(devices[device].multiprocessors));
    return 0;
}

API(cuCtxGetDevResource)(struct context *context, struct resource *resource, int type) {
    BEGIN(cuCtxGetDevResource, ANY);
    REQUIRE(is_handle(context, MAGIC_CONTEXT), INVALID_CONTEXT);
    REQUIRE(resource && type == RESOURCE_SM, INVALID_VALUE);
    *resource = sm_resource((unsigned)context->multiprocessors);
    return 0;
}

API(cuDevSmResourceSplitByCount)(struct resource *result, unsigned *groups, const struct resource *input,
                                 struct resource *remaining, unsigned flags, unsigned minimum) {
    (void)flags;
    BEGIN(cuDevSmResourceSplitByCount, ANY);
    REQUIRE(groups && input && input->type == RESOURCE_SM, INVALID_VALUE);
    unsigned each = minimum < sm_smallest() ? sm_smallest() : (minimum + sm_alignment() - 1) / sm_alignment() * sm_alignment();
    REQUIRE(each <= input->count, INVALID_VALUE);
    unsigned made = input->count / each;
    if (result) {
        if (*groups < made) made = *groups;
        for (unsigned i = 0; i < made; i++) result[i] = sm_resource(each);
    }
    *groups = made;
    if (remaining) {
        *remaining = sm_resource(input->count - made * each);
        if (!remaining->count) remaining->type = 0;
    }
    return 0;
}

API(cuDevResourceGenerateDesc)(struct description **description, struct resource *resources, unsigned count) {
    BEGIN(cuDevResourceGenerateDesc, ANY);
    REQUIRE(description && resources && count, INVALID_VALUE);
    struct description *made = make(sizeof *made, MAGIC_DESC);
    for (unsigned i = 0; i < count; i++) {
        REQUIRE(resources[i].type == RESOURCE_SM, INVALID_VALUE);
        made->count += resources[i].count;
    }
    *description = made;
    return 0;
}

API(cuGreenCtxCreate)(struct green **green, struct description *description, int device, unsigned flags) {
    BEGIN(cuGreenCtxCreate, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    REQUIRE(green && is_handle(description, MAGIC_DESC) && flags == 1, INVALID_VALUE); /* CU_GREEN_CTX_DEFAULT_STREAM */
    struct context *primary;
    int code = cuDevicePrimaryCtxRetain(&primary, device);
    if (code) return code;
    struct green *made = make(sizeof *made, MAGIC_GREEN);
    struct context *context = make(sizeof *context, MAGIC_CONTEXT);
    *context = (struct context){MAGIC_CONTEXT, device, 1, next_id++, (double)description->count / primary->multiprocessors,
                                (int)description->count, NULL};
    made->device = device;
    made->context = context;
    *green = made;
    return 0;
}

API(cuGreenCtxDestroy)(struct green *green) {
    BEGIN(cuGreenCtxDestroy, ANY);
    REQUIRE(is_handle(green, MAGIC_GREEN), INVALID_HANDLE);
    green->magic = green->context->magic = 0;
    if (current == green->context) current = NULL;
    return cuDevicePrimaryCtxRelease_v2(green->device);
}

API(cuCtxFromGreenCtx)(struct context **context, struct green *green) {
    BEGIN(cuCtxFromGreenCtx, ANY);
    REQUIRE(is_handle(green, MAGIC_GREEN), INVALID_HANDLE);
    *context = green->context;
    return 0;
}

API(cuGreenCtxGetDevResource)(struct green *green, struct resource *resource, int type) {
    BEGIN(cuGreenCtxGetDevResource, ANY);
    REQUIRE(is_handle(green, MAGIC_GREEN), INVALID_HANDLE);
    REQUIRE(resource && type == RESOURCE_SM, INVALID_VALUE);
    *resource = sm_resource((unsigned)green->context->multiprocessors);
    return 0;
}

API(cuGreenCtxStreamCreate)(struct stream **stream, struct green *green, unsigned flags, int priority) {
    (void)priority;
    BEGIN(cuGreenCtxStreamCreate, ANY);
    REQUIRE(is_handle(green, MAGIC_GREEN), INVALID_HANDLE);
    REQUIRE(flags == 1, INVALID_VALUE); /* CU_STREAM_NON_BLOCKING is demanded */
    return stream_open(stream, green->context, flags);
}
