/* A stand-in for libcuda.so.1: an asynchronous device without a GPU.
 *
 * Work takes its time on the board of device.h: queued work ends when its time has come, waiting really waits, processes
 * slow each other down. Kernels do nothing unless the script says `functional 1`; then those of libhost_kernels.so, beside
 * this library, run on the CPU when they are queued. Memory is counted over all processes. Device memory above 1 MiB has no
 * contents outside functional mode: it reads as zeros and costs no host memory.
 * Handles are never freed, so that use after destruction is seen.
 *
 * Keys of the script, beside those of script.h:
 *
 *   driver_version 13000                 of cuDriverGetVersion
 *   init_result 0                        of cuInit
 *   init_milliseconds 0                  how long cuInit takes
 *   context_milliseconds 0               how long the first use of a device takes
 *   context_bytes 400000000              device memory that each process's context takes
 *   kernel_microseconds <function|*> <t> time of one launch at the full device; default 100
 *   contention 1.0                       see device.h; 0: processes do not slow each other down
 *   jitter 0.002                         standard deviation of one operation's time, as a ratio
 *   memory_gigabytes_per_second 4000     of copies and fills on the device
 *   copy_gigabytes_per_second 50         of copies over the bus, each direction
 *   compute_mode 0                       CUcomputemode
 *   ignore_percentage 1                  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE has no effect
 *   mps_disabled 1                       a running MPS daemon is not used
 *
 * Faults that end a context (700 and its like, 46, 214, 999, 810) stay for all later calls of the process.
 * MPS is on where the daemon's pipe is there (and its process lives, where its id is written beside). The product name
 * begins with `Stand-in`, so that no result can be taken for a measured one.
 * -DINIT_RESULT=n sets the default of init_result; -DWITHOUT_<function> leaves a function out.
 */
#define _GNU_SOURCE
#include "device.h"
#include "hooks.h"
#include "image.h"
#include <dlfcn.h>
#include <stdarg.h>

#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif
#ifdef WITHOUT_VERSION
#define WITHOUT_cuDriverGetVersion 1
#endif

enum {
    INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904,
};

enum { MAGIC_CONTEXT = 0xc1, MAGIC_STREAM, MAGIC_EVENT, MAGIC_MODULE, MAGIC_FUNCTION, MAGIC_GRAPH, MAGIC_EXEC, MAGIC_GREEN, MAGIC_DESC };

/* One device that this process may see. */
struct device {
    int index;  /* of the machine */
    int place;  /* on the board: its own for each MIG instance */
    int multiprocessors;
    double memory;
    bool mig;
    struct mock_mig instance;
    struct context *primary;
};

struct context {
    int magic, device, retained;
    unsigned id;
    double share;   /* below 1: a green context */
    int multiprocessors;
    struct stream *legacy;
};

static struct device devices[BOARD_DEVICES];
static int device_count = -1; /* -1 before cuInit */
static int initialized_process;
static int sticky;
static bool mps_enabled, functional;
static mock_activity_hook activity_hook;
static unsigned next_id = 1;
static __thread struct context *current;
static __thread bool hang_next;

static bool is_sticky(int code) {
    return code == 46 || code == 214 || code == 220 || code == 700 || code == 702 || code == 999 || code == 810 ||
           (code >= 714 && code <= 719);
}

enum { ANY = 0, CONTEXT = 1, WORK = 2 };

/* What each call does first. */
static int begin(const char *call, int needs) {
    if (device_count < 0 || initialized_process != getpid()) return NOT_INITIALIZED;
    if (sticky) return sticky;
    int code = mock_fault(call);
    if (code == MOCK_HANG) {
        if (!(needs & WORK)) for (;;) pause();
        hang_next = true;
        code = 0;
    }
    if (is_sticky(code)) sticky = code;
    if (code) return code;
    return (needs & CONTEXT) && !current ? INVALID_CONTEXT : 0;
}

#define BEGIN(call, needs)                    \
    do {                                      \
        int code_ = begin(#call, needs);      \
        if (code_) return code_;              \
    } while (0)
#define REQUIRE(condition, code) \
    do {                         \
        if (!(condition)) return code; \
    } while (0)

static void *make(size_t size, int magic) {
    void *handle = calloc(1, size);
    memcpy(handle, &magic, sizeof magic);
    return handle;
}

static bool is_handle(const void *handle, int magic) { return handle && *(const int *)handle == magic; }

/* --- devices ------------------------------------------------------------------------------------------------------ */

static int capability(int part) {
    char line[64];
    int major = 9, minor = 0;
    mock_need_script();
    if (mock_line("compute_capability", 0, line, sizeof line)) sscanf(line, "%d %d", &major, &minor);
    return part ? minor : major;
}

static void see(int index, const struct mock_mig *instance, int place) {
    if (device_count == BOARD_DEVICES || place >= BOARD_DEVICES) return;
    struct device *device = &devices[device_count++];
    device->index = index;
    device->place = place;
    device->mig = instance != NULL;
    if (instance) device->instance = *instance;
    device->multiprocessors = instance ? instance->multiprocessors : (int)mock_number("multiprocessors", 132);
    device->memory = instance ? instance->memory : mock_number("memory", 144e9);
}

/* A device by its first MIG instance where it has any, as the driver does without CUDA_VISIBLE_DEVICES. */
static void see_index(int index, int machine) {
    struct mock_mig instance;
    for (int i = 0; mock_mig(i, &instance); i++)
        if (instance.device == index) {
            see(index, &instance, machine + i);
            return;
        }
    see(index, NULL, index);
}

static bool see_word(const char *word, int machine) {
    char text[48];
    unsigned char bytes[16];
    struct mock_mig instance;
    if (!strncmp(word, "MIG-", 4)) {
        for (int i = 0; mock_mig(i, &instance); i++)
            if (!strcmp(word, instance.uuid)) {
                see(instance.device, &instance, machine + i);
                return true;
            }
        return false;
    }
    for (int i = 0; i < machine; i++) {
        mock_uuid(i, bytes, text);
        char *end;
        if (!strncmp(word, "GPU-", 4) ? !strncmp(word, text, strlen(word)) : strtol(word, &end, 10) == i && end != word) {
            see_index(i, machine);
            return true;
        }
    }
    return false;
}

static void see_all(void) {
    int machine = (int)mock_number("devices", 1);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    device_count = 0;
    if (!visible) {
        for (int i = 0; i < machine; i++) see_index(i, machine);
        return;
    }
    char copy[1024], *state = NULL;
    snprintf(copy, sizeof copy, "%s", visible);
    for (char *word = strtok_r(copy, ",", &state); word && see_word(word, machine);) word = strtok_r(NULL, ",", &state);
}

static bool mps_daemon_is_there(void) {
    char path[4096];
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (!folder) folder = "/tmp/nvidia-mps";
    snprintf(path, sizeof path, "%s/control", folder);
    if (access(path, F_OK)) return false;
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", folder);
    FILE *file = fopen(path, "r");
    int process = 0;
    bool written = file && fscanf(file, "%d", &process) == 1;
    if (file) fclose(file);
    return !written || process_started(process) != 0;
}

/* Makes this process known to the stand-in daemon. */
static void mps_join(void) {
    char path[4096];
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(path, sizeof path, "%s/clients", folder ? folder : "/tmp/nvidia-mps");
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "%d\n", getpid());
    fclose(file);
}

/* SMs under the MPS limit: whole pairs, since two SMs make one TPC. */
static int limited(int multiprocessors) {
    const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double percent = text ? atof(text) : 100;
    if (!mps_enabled || mock_flag("ignore_percentage") || percent <= 0 || percent >= 100) return multiprocessors;
    int count = (int)rounded_up(multiprocessors * percent / 100);
    count = (count + 1) & ~1;
    return count < multiprocessors ? count : multiprocessors;
}

static void inject(void) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!path || !*path) return;
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "stand-in libcuda: cannot load %s: %s\n", path, dlerror());
        return;
    }
    int (*initialize)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    if (initialize) initialize();
}

API(cuInit)(unsigned flags) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    if (flags) return INVALID_VALUE;
    if (device_count >= 0) return initialized_process == getpid() ? 0 : NOT_INITIALIZED;
    int code = mock_fault("cuInit");
    if (code == MOCK_HANG) for (;;) pause();
    if (!code) code = (int)mock_number("init_result", INIT_RESULT);
    if (code) return code;
    pthread_mutex_lock(&once);
    bool first = device_count < 0;
    if (first) {
        mock_sleep((uint64_t)(1e6 * mock_number("init_milliseconds", 0)));
        functional = mock_flag("functional");
        mps_enabled = !mock_flag("mps_disabled") && mps_daemon_is_there();
        if (mps_enabled) mps_join();
        see_all();
        initialized_process = getpid();
        int all = device_count ? devices[0].multiprocessors : 1;
        if (!device_count || !board_join((double)limited(all) / all)) {
            code = device_count ? 999 : NO_DEVICE;
            device_count = -1;
        }
    }
    pthread_mutex_unlock(&once);
    if (first && !code) inject();
    return code;
}

API(cuDriverGetVersion)(int *version) {
    int code = mock_fault("cuDriverGetVersion");
    if (code) return code;
    *version = (int)mock_number("driver_version", 13000);
    return 0;
}

API(cuDeviceGetCount)(int *count) {
    BEGIN(cuDeviceGetCount, ANY);
    *count = device_count;
    return 0;
}

API(cuDeviceGet)(int *device, int ordinal) {
    BEGIN(cuDeviceGet, ANY);
    REQUIRE(ordinal >= 0 && ordinal < device_count, INVALID_DEVICE);
    *device = ordinal;
    return 0;
}

API(cuDeviceGetName)(char *name, int length, int device) {
    char text[256] = "Stand-in H200", whole[320];
    BEGIN(cuDeviceGetName, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    REQUIRE(name && length > 0, INVALID_VALUE);
    mock_line("name", 0, text, sizeof text);
    snprintf(whole, sizeof whole, "%s%s%s", text, devices[device].mig ? " MIG " : "", devices[device].mig ? devices[device].instance.profile : "");
    snprintf(name, (size_t)length, "%s", whole);
    return 0;
}

API(cuDeviceTotalMem_v2)(size_t *bytes, int device) {
    BEGIN(cuDeviceTotalMem, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    *bytes = (size_t)devices[device].memory;
    return 0;
}

API(cuDeviceGetUuid_v2)(unsigned char *uuid, int device) {
    char text[48];
    BEGIN(cuDeviceGetUuid, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    mock_uuid(devices[device].index, uuid, text);
    if (devices[device].mig) { /* the sixteen bytes that its text names */
        int at = 0;
        for (const char *p = devices[device].instance.uuid + 4; *p && at < 16; p++) {
            unsigned value;
            if (*p != '-' && sscanf(p, "%2x", &value) == 1) uuid[at++] = (unsigned char)value, p++;
        }
    }
    return 0;
}

API(cuDeviceGetUuid)(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

API(cuDeviceGetPCIBusId)(char *text, int length, int device) {
    BEGIN(cuDeviceGetPCIBusId, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    snprintf(text, (size_t)length, "0000:%02X:00.0", 0x17 + devices[device].index);
    return 0;
}

API(cuDeviceGetAttribute)(int *value, int attribute, int device) {
    BEGIN(cuDeviceGetAttribute, ANY);
    REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
    int major = capability(0), big = major >= 9 ? 232448 : major == 8 && !capability(1) ? 166912 : major == 8 ? 101376 : 65536;
    switch (attribute) {
        case 1: case 2: case 3: *value = 1024; break;        /* threads per block, x, y */
        case 4: *value = 64; break;
        case 5: *value = 2147483647; break;                   /* grid */
        case 6: case 7: *value = 65535; break;
        case 8: *value = 49152; break;                        /* shared memory per block */
        case 9: *value = 65536; break;
        case 10: *value = 32; break;                          /* warp */
        case 12: case 82: *value = 65536; break;              /* registers */
        case 13: *value = 1980000; break;                     /* clock, kHz */
        case 16: *value = limited(devices[device].multiprocessors); break;
        case 20: *value = (int)mock_number("compute_mode", 0); break;
        case 31: case 41: case 78: case 79: case 80: case 83: case 90: case 95: case 102: case 115: *value = 1; break;
        case 32: *value = 1; break;                           /* ECC */
        case 33: *value = 0x17 + devices[device].index; break;
        case 36: *value = 2619000; break;
        case 37: *value = 6144; break;
        case 38: *value = major >= 10 ? 132120576 : major == 9 ? 62914560 : 41943040; break; /* L2 */
        case 39: *value = 2048; break;
        case 40: *value = 3; break;
        case 75: *value = major; break;
        case 76: *value = capability(1); break;
        case 81: *value = big + 1024; break;
        case 97: *value = big; break;
        case 106: *value = 32; break;
        case 111: *value = 1024; break;
        case 120: *value = major >= 9; break;
        case 133: *value = mps_enabled; break;
        default: *value = 0;
    }
    return 0;
}

/* --- contexts ----------------------------------------------------------------------------------------------------- */

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

#include "cuda_memory.h"
#include "cuda_work.h"
#include "cuda_module.h"
#include "cuda_green.h"

/* --- the rest ----------------------------------------------------------------------------------------------------- */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int error_text(int code, const char **text, bool name) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *text = name ? errors[i].name : errors[i].text;
            return 0;
        }
    *text = NULL;
    return INVALID_VALUE;
}

/* NVRTC asks for a table of the driver's compile cache and takes it for granted unless told no. */
API(cuGetExportTable)(const void **table, const void *id) { (void)id; *table = NULL; return NOT_SUPPORTED; }
API(cuGetErrorName)(int code, const char **text) { return error_text(code, text, true); }
API(cuGetErrorString)(int code, const char **text) { return error_text(code, text, false); }

API(cuGetProcAddress_v2)(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    Dl_info here;
    char name[128];
    void *library = dladdr((void *)cuInit, &here) ? dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    *function = NULL;
    for (int suffix = 4; suffix >= 1 && !*function && library; suffix--) {
        snprintf(name, sizeof name, suffix > 1 ? "%s_v%d" : "%s", symbol, suffix);
        *function = dlsym(library, name);
    }
    if (library) dlclose(library);
    if (status) *status = *function ? 0 : 1;
    return *function ? 0 : NOT_FOUND;
}
