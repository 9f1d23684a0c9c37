/* Part of cuda.c: modules, functions and launches. */

struct function {
    int magic;
    const char *name;
    const struct image_kernel *facts;
    struct module *module;
    double nanoseconds;
    int dynamic_limit; /* bytes of dynamic shared memory allowed so far */
    const struct host_kernel *host;
    struct function *next;
};

struct module {
    int magic;
    struct image image;
    struct function *functions;
};

/* One kernel of libhost_kernels.so, which host_kernels.hpp makes. */
struct host_kernel {
    const char *name;
    int parameters;
    const unsigned *sizes;
    void (*run)(const unsigned grid[3], const unsigned block[3], unsigned shared, void **arguments);
};

static const struct host_kernel *host_kernel(const char *name) {
    static const struct host_kernel *(*find)(const char *);
    static bool looked;
    if (!looked) {
        Dl_info here;
        char path[4096];
        looked = true;
        if (dladdr((void *)cuInit, &here)) {
            const char *slash = strrchr(here.dli_fname, '/');
            snprintf(path, sizeof path, "%.*s/libhost_kernels.so", slash ? (int)(slash - here.dli_fname) : 1, slash ? here.dli_fname : ".");
            void *library = dlopen(path, RTLD_NOW);
            if (library) find = (const struct host_kernel *(*)(const char *))dlsym(library, "elastico_host_kernel");
            else fprintf(stderr, "stand-in libcuda: functional mode without kernels: %s\n", dlerror());
        }
    }
    return find ? find(name) : NULL;
}

/* `kernel_microseconds`: the function's own line, else that of `*`, else 100. */
static double kernel_nanoseconds(const char *name) {
    char line[256], wanted[160];
    double microseconds, general = 100;
    for (int i = 0; mock_line("kernel_microseconds", i, line, sizeof line); i++) {
        if (sscanf(line, "%159s %lf", wanted, &microseconds) != 2) continue;
        if (!strcmp(wanted, name)) return microseconds * 1000;
        if (!strcmp(wanted, "*")) general = microseconds;
    }
    return general * 1000;
}

static int load(struct module **module, const void *data) {
    if (!module || !data) return INVALID_VALUE;
    struct module *made = make(sizeof *made, MAGIC_MODULE);
    if (!image_read(&made->image, data)) return INVALID_IMAGE;
    int major = capability(0), minor = capability(1), image = made->image.architecture;
    if (image / 10 != major || image % 10 > minor) return NO_BINARY;
    *module = made;
    return 0;
}

API(cuModuleLoadData)(struct module **module, const void *data) {
    BEGIN(cuModuleLoadData, CONTEXT);
    return load(module, data);
}

API(cuModuleLoadDataEx)(struct module **module, const void *data, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    BEGIN(cuModuleLoadDataEx, CONTEXT);
    return load(module, data);
}

API(cuModuleUnload)(struct module *module) {
    BEGIN(cuModuleUnload, ANY);
    REQUIRE(is_handle(module, MAGIC_MODULE), INVALID_HANDLE);
    module->magic = 0;
    for (struct function *function = module->functions; function; function = function->next) function->magic = 0;
    return 0;
}

API(cuModuleGetFunction)(struct function **function, struct module *module, const char *name) {
    BEGIN(cuModuleGetFunction, CONTEXT);
    REQUIRE(is_handle(module, MAGIC_MODULE), INVALID_HANDLE);
    const struct image_kernel *facts = image_find(&module->image, name);
    REQUIRE(facts, NOT_FOUND);
    struct function *made = make(sizeof *made, MAGIC_FUNCTION);
    made->name = facts->name;
    made->facts = facts;
    made->module = module;
    made->nanoseconds = kernel_nanoseconds(name);
    made->dynamic_limit = 49152 - facts->shared;
    made->host = functional ? host_kernel(name) : NULL;
    made->next = module->functions;
    module->functions = made;
    *function = made;
    return 0;
}

API(cuModuleGetGlobal_v2)(uint64_t *address, size_t *bytes, struct module *module, const char *name) {
    (void)address, (void)bytes, (void)name;
    BEGIN(cuModuleGetGlobal, CONTEXT);
    REQUIRE(is_handle(module, MAGIC_MODULE), INVALID_HANDLE);
    return NOT_FOUND;
}

API(cuModuleGetFunctionCount)(unsigned *count, struct module *module) {
    BEGIN(cuModuleGetFunctionCount, ANY);
    REQUIRE(is_handle(module, MAGIC_MODULE), INVALID_HANDLE);
    *count = 0;
    for (struct image_kernel *kernel = module->image.kernels; kernel; kernel = kernel->next) ++*count;
    return 0;
}

API(cuFuncGetName)(const char **name, struct function *function) {
    BEGIN(cuFuncGetName, ANY);
    REQUIRE(is_handle(function, MAGIC_FUNCTION), INVALID_HANDLE);
    *name = function->name;
    return 0;
}

API(cuFuncGetModule)(struct module **module, struct function *function) {
    BEGIN(cuFuncGetModule, ANY);
    REQUIRE(is_handle(function, MAGIC_FUNCTION), INVALID_HANDLE);
    *module = function->module;
    return 0;
}

/* As the driver: an index past the last parameter is INVALID_VALUE. */
API(cuFuncGetParamInfo)(struct function *function, size_t index, size_t *offset, size_t *size) {
    BEGIN(cuFuncGetParamInfo, ANY);
    REQUIRE(is_handle(function, MAGIC_FUNCTION), INVALID_HANDLE);
    REQUIRE((int)index < function->facts->parameters, INVALID_VALUE);
    *offset = function->facts->offsets[index];
    if (size) *size = function->facts->sizes[index];
    return 0;
}

API(cuFuncGetAttribute)(int *value, int attribute, struct function *function) {
    BEGIN(cuFuncGetAttribute, ANY);
    REQUIRE(is_handle(function, MAGIC_FUNCTION), INVALID_HANDLE);
    switch (attribute) {
        case 0: *value = function->facts->threads; break;
        case 1: *value = function->facts->shared; break;
        case 4: *value = function->facts->registers; break;
        case 5: case 6: *value = function->module->image.architecture; break;
        case 8: *value = function->dynamic_limit; break;
        default: *value = 0;
    }
    return 0;
}

API(cuFuncSetAttribute)(struct function *function, int attribute, int value) {
    int limit = 0;
    BEGIN(cuFuncSetAttribute, ANY);
    REQUIRE(is_handle(function, MAGIC_FUNCTION), INVALID_HANDLE);
    if (attribute != 8) return 0;
    cuDeviceGetAttribute(&limit, 97, current ? current->device : 0);
    REQUIRE(value >= 0 && value + function->facts->shared <= limit, INVALID_VALUE);
    function->dynamic_limit = value;
    return 0;
}

API(cuFuncSetCacheConfig)(struct function *function, int configuration) {
    (void)configuration;
    BEGIN(cuFuncSetCacheConfig, ANY);
    REQUIRE(is_handle(function, MAGIC_FUNCTION), INVALID_HANDLE);
    return 0;
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, struct function *function, int threads, size_t shared) {
    int limit = 0;
    BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessor, CONTEXT);
    REQUIRE(is_handle(function, MAGIC_FUNCTION), INVALID_HANDLE);
    REQUIRE(threads > 0 && threads <= function->facts->threads, INVALID_VALUE);
    cuDeviceGetAttribute(&limit, 81, current->device);
    int by_threads = 2048 / ((threads + 31) / 32 * 32);
    int by_registers = 65536 / (function->facts->registers * ((threads + 31) / 32 * 32));
    int by_shared = limit / (int)(1024 + shared + (size_t)function->facts->shared);
    *blocks = by_threads < 32 ? by_threads : 32;
    if (by_registers < *blocks) *blocks = by_registers;
    if (by_shared < *blocks) *blocks = by_shared;
    return 0;
}

/* A kernel's arguments and shape, kept with the work. */
struct call {
    const struct host_kernel *kernel;
    unsigned grid[3], block[3], shared;
    size_t offsets[IMAGE_PARAMETERS];
    unsigned char bytes[IMAGE_PARAMETERS * 8];
};

static void run_call(const void *argument) {
    struct call call = *(const struct call *)argument;
    void *arguments[IMAGE_PARAMETERS];
    for (int i = 0; i < call.kernel->parameters; i++) arguments[i] = call.bytes + call.offsets[i];
    call.kernel->run(call.grid, call.block, call.shared, arguments);
}

static int launch(struct function *function, const unsigned grid[3], const unsigned block[3], unsigned shared, void *handle,
                  void **arguments, void **extra) {
    struct stream *stream = stream_of(handle);
    REQUIRE(stream && is_handle(function, MAGIC_FUNCTION), INVALID_HANDLE);
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    REQUIRE(threads && threads <= 1024 && block[2] <= 64 && threads <= (uint64_t)function->facts->threads, INVALID_VALUE);
    REQUIRE(grid[0] && grid[1] && grid[2] && grid[0] <= 2147483647 && grid[1] <= 65535 && grid[2] <= 65535, INVALID_VALUE);
    REQUIRE((int)shared <= function->dynamic_limit, INVALID_VALUE);
    REQUIRE(arguments || extra || !function->facts->parameters, INVALID_VALUE);
    struct call call = {.kernel = function->host, .grid = {grid[0], grid[1], grid[2]}, .block = {block[0], block[1], block[2]}, .shared = shared};
    struct node node = {WORK_COMPUTE, function->nanoseconds, NULL, NULL,
                        {.kind = MOCK_KERNEL, .name = function->name, .grid = {grid[0], grid[1], grid[2]},
                         .block = {block[0], block[1], block[2]}, .shared = shared,
                         .registers = (unsigned)function->facts->registers, .static_shared = (unsigned)function->facts->shared}};
    if (!functional) return enqueue(stream, node, 0);
    if (!function->host || !arguments || function->host->parameters != function->facts->parameters) {
        fprintf(stderr, "stand-in libcuda: kernel `%s` is not among the host kernels as the module has it\n", function->name);
        return NOT_SUPPORTED;
    }
    size_t used = 0;
    for (int i = 0; i < function->host->parameters; i++) {
        size_t size = function->host->sizes[i];
        used = (used + 7) / 8 * 8;
        if (used + size > sizeof call.bytes) return NOT_SUPPORTED;
        call.offsets[i] = used;
        memcpy(call.bytes + used, arguments[i], size);
        used += size;
    }
    node.run = run_call;
    node.argument = &call;
    return enqueue(stream, node, sizeof call);
}

API(cuLaunchKernel)(struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra) {
    BEGIN(cuLaunchKernel, CONTEXT | WORK);
    unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return launch(function, grid, block, shared, stream, arguments, extra);
}

/* CUlaunchConfig; attributes such as clusters are taken without effect. */
struct launch_configuration {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned count;
};

API(cuLaunchKernelEx)(const struct launch_configuration *configuration, struct function *function, void **arguments,
                      void **extra) {
    BEGIN(cuLaunchKernel, CONTEXT | WORK);
    REQUIRE(configuration, INVALID_VALUE);
    return launch(function, configuration->grid, configuration->block, configuration->shared, configuration->stream,
                  arguments, extra);
}
