/* Part of cuda.c: memory of device and host, copies and fills as functions of addresses. */

#define CONTENTS (1u << 20) /* bytes up to which device memory has contents outside functional mode */

struct memory {
    uint64_t address, bytes, counted;
    bool device, contents;
    int place;
};

static struct memory *memories;
static size_t memory_count, memory_room;

/* Under the lock. */
static struct memory *memory_at(uint64_t address) {
    for (size_t i = 0; i < memory_count; i++)
        if (address >= memories[i].address && address < memories[i].address + memories[i].bytes) return &memories[i];
    return NULL;
}

static void *memory_keep(size_t bytes, uint64_t counted, bool device, bool contents, int place) {
    void *address = mmap(NULL, bytes, contents ? PROT_READ | PROT_WRITE : PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return NULL;
    if (memory_count == memory_room) memories = realloc(memories, (memory_room = memory_room * 2 + 64) * sizeof *memories);
    memories[memory_count++] = (struct memory){(uint64_t)address, bytes, counted, device, contents, place};
    return address;
}

static int memory_drop(uint64_t address, bool device) {
    struct memory *memory = memory_at(address);
    if (!memory || memory->address != address || memory->device != device) return INVALID_VALUE;
    munmap((void *)address, memory->bytes);
    if (device) board_self->memory[memory->place] -= memory->counted;
    *memory = memories[--memory_count];
    return 0;
}

/* CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, `0=8G,1=512M`; without one, all. */
static double memory_limit(int device) {
    const char *text = mps_enabled ? getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") : NULL;
    for (; text && *text; text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL) {
        int index;
        double size;
        char unit = 0;
        if (sscanf(text, "%d=%lf%c", &index, &size, &unit) >= 2 && index == device)
            return size * (unit == 'G' ? 1073741824.0 : unit == 'M' ? 1048576.0 : unit == 'K' ? 1024.0 : 1);
    }
    return devices[device].memory;
}

static double memory_free(int device) {
    double used = 0;
    int place = devices[device].place;
    for (int c = 0; c < BOARD_CLIENTS; c++)
        if (board->clients[c].process) used += (double)board->clients[c].memory[place];
    return least(devices[device].memory - used, memory_limit(device) - (double)board_self->memory[place]);
}

static bool capture_forbids(void);

static int allocate(uint64_t *address, size_t bytes) {
    if (!bytes || !address) return INVALID_VALUE;
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    uint64_t page = bytes >= CONTENTS ? 2u << 20 : 512, counted = (bytes + page - 1) / page * page;
    int code = OUT_OF_MEMORY;
    board_lock();
    if ((double)counted <= memory_free(current->device)) {
        bool contents = functional || bytes <= CONTENTS;
        int place = devices[current->device].place;
        void *memory = memory_keep(bytes, counted, true, contents, place);
        if (memory) {
            board_self->memory[place] += counted;
            *address = (uint64_t)memory;
            code = 0;
        }
    }
    board_unlock();
    return code;
}

API(cuMemAlloc_v2)(uint64_t *address, size_t bytes) {
    BEGIN(cuMemAlloc, CONTEXT);
    return allocate(address, bytes);
}

API(cuMemAllocAsync)(uint64_t *address, size_t bytes, void *stream) {
    (void)stream;
    BEGIN(cuMemAllocAsync, CONTEXT);
    return allocate(address, bytes);
}

static int release(uint64_t address, bool device) {
    if (!address) return 0;
    board_lock();
    int code = memory_drop(address, device);
    board_unlock();
    return code;
}

API(cuMemFree_v2)(uint64_t address) {
    BEGIN(cuMemFree, CONTEXT);
    return release(address, true);
}

API(cuMemFreeAsync)(uint64_t address, void *stream) {
    (void)stream;
    BEGIN(cuMemFreeAsync, CONTEXT);
    return release(address, true);
}

static int allocate_host(void **pointer, size_t bytes) {
    if (!bytes || !pointer) return INVALID_VALUE;
    board_lock();
    *pointer = memory_keep(bytes, 0, false, true, 0);
    board_unlock();
    return *pointer ? 0 : OUT_OF_MEMORY;
}

API(cuMemAllocHost_v2)(void **pointer, size_t bytes) {
    BEGIN(cuMemAllocHost, CONTEXT);
    return allocate_host(pointer, bytes);
}

API(cuMemHostAlloc)(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    BEGIN(cuMemHostAlloc, CONTEXT);
    return allocate_host(pointer, bytes);
}

API(cuMemFreeHost)(void *pointer) {
    BEGIN(cuMemFreeHost, CONTEXT);
    return release((uint64_t)pointer, false);
}

API(cuMemHostGetDevicePointer_v2)(uint64_t *address, void *pointer, unsigned flags) {
    (void)flags;
    BEGIN(cuMemHostGetDevicePointer, CONTEXT);
    *address = (uint64_t)pointer;
    return 0;
}

API(cuMemHostGetFlags)(unsigned *flags, void *pointer) {
    (void)pointer;
    BEGIN(cuMemHostGetFlags, CONTEXT);
    *flags = 0;
    return 0;
}

API(cuMemGetInfo_v2)(size_t *free, size_t *total) {
    BEGIN(cuMemGetInfo, CONTEXT);
    board_lock();
    double left = memory_free(current->device);
    board_unlock();
    *free = left > 0 ? (size_t)left : 0;
    *total = (size_t)devices[current->device].memory;
    return 0;
}

/* Whether `bytes` at an address lie inside one device allocation. Takes the lock. */
static bool on_device(uint64_t address, size_t bytes, bool *contents) {
    board_lock();
    struct memory *memory = memory_at(address);
    bool inside = memory && memory->device && address + bytes <= memory->address + memory->bytes;
    if (inside) *contents = memory->contents;
    board_unlock();
    return inside;
}

struct copy {
    uint64_t to, from;
    size_t bytes;
};

static void run_copy(const void *argument) {
    const struct copy *copy = argument;
    bool to = true, from = true;
    on_device(copy->to, copy->bytes, &to);
    on_device(copy->from, copy->bytes, &from);
    if (to && from) memmove((void *)copy->to, (void *)copy->from, copy->bytes);
    else if (to) memset((void *)copy->to, 0, copy->bytes);
}

struct fill {
    uint64_t to;
    uint32_t value;
    size_t width, count;
};

static void run_fill(const void *argument) {
    const struct fill *fill = argument;
    bool contents = false;
    if (!on_device(fill->to, fill->width * fill->count, &contents) || !contents) return;
    for (size_t i = 0; i < fill->count; i++) memcpy((char *)fill->to + i * fill->width, &fill->value, fill->width);
}
