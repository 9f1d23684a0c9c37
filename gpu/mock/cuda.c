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

#include "cuda_device.h"
#include "cuda_context.h"
#include "cuda_memory.h"
#include "cuda_work.h"
#include "cuda_stream.h"
#include "cuda_graph.h"
#include "cuda_copy.h"
#include "cuda_module.h"
#include "cuda_green.h"

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
