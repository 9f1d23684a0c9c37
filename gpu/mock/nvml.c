/* A stand-in for libnvidia-ml.so.1: what telemetry, GPM, MIG and the probe ask, driven by the script (script.h).
 *
 * Keys beside the common ones; times are milliseconds since the first process of the test opened this library:
 *
 *   clock <ms> <MHz>                SM clock from then on (1980 before)
 *   memory_clock <MHz>              3201
 *   throttle <ms> <bits>            throttle reasons from then on, decimal or 0x... (0 before)
 *   power <watts>                   420; energy grows with it
 *   temperature <celsius>           61; memory temperature is 8 above
 *   ecc <ms> <count>                uncorrected errors from then on (0 before)
 *   xid <number> after <ms>         one critical Xid event
 *   lost <ms>                       from then on every call on the device says GPU_IS_LOST
 *   deny <function>                 that call lacks permission
 *   persistence 1, compute_mode <n>, pcie <generation> <lanes>
 *   mig_off 1                       the GPU can be divided and is not (without: MIG is not supported)
 *   gpm 0                           no GPM, as before Hopper
 *   gpm_value <metric id> <value>   `nan` for no number
 *   fault <function> <code>         as in script.h; 3 is NOT_SUPPORTED
 *
 * Every name begins with `Stand-in`, so that no number of it can pass for a measured one. */
#include "script.h"
#include <math.h>

#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif
#ifndef COMPUTE_MODE
#define COMPUTE_MODE 0
#endif

enum { OK, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15 };

/* A handle: a GPU, or one of its instances. */
struct gpu {
    int index, instance; /* position among the script's `mig` lines, or -1 */
};
static struct gpu gpus[8], instances[16];

static int device_count(void) { return (int)mock_number("devices", 1); }

/* CLOCK_MONOTONIC when the first process of the test came here, kept in the folder that they share. */
static uint64_t origin(void) {
    static uint64_t since;
    if (since) return since;
    since = mock_now();
    char path[4096], text[32] = "";
    if (!mock_folder()) return since;
    snprintf(path, sizeof path, "%s/nvml-origin", mock_folder());
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) {
        dprintf(file, "%llu\n", (unsigned long long)since);
        close(file);
    } else {
        for (int i = 0; i < 100 && !strchr(text, '\n'); i++) { /* until the one that made it has written it */
            if ((file = open(path, O_RDONLY | O_CLOEXEC)) < 0) break;
            ssize_t size = read(file, text, sizeof text - 1);
            text[size > 0 ? size : 0] = 0;
            close(file);
            if (!strchr(text, '\n')) mock_sleep(1000000);
        }
        if (*text) since = strtoull(text, NULL, 10);
    }
    return since;
}

static double elapsed_ms(void) { return (double)(mock_now() - origin()) * 1e-6; }

/* The value of a timeline `key <ms> <value>` now. */
static double timeline(const char *key, double before) {
    char line[128], text[64];
    double value = before, at, now = elapsed_ms();
    mock_need_script();
    for (int i = 0; mock_line(key, i, line, sizeof line); i++)
        if (sscanf(line, "%lf %63s", &at, text) == 2 && at <= now)
            value = strncmp(text, "0x", 2) ? atof(text) : (double)strtoull(text, NULL, 16);
    return value;
}

/* What the script wants of a call before it answers. */
static int begin(const char *call, const void *handle) {
    char name[128];
    mock_need_script();
    for (int i = 0; mock_line("deny", i, name, sizeof name); i++)
        if (mock_same_call(name, call)) return NO_PERMISSION;
    int fault = mock_fault(call);
    while (fault == MOCK_HANG) mock_sleep(1000000000);
    if (fault) return fault;
    if (!handle) return OK;
    double lost = mock_number("lost", -1);
    return lost >= 0 && elapsed_ms() >= lost ? LOST : OK;
}
#define BEGIN(handle) do { int code = begin(__func__, handle); if (code) return code; } while (0)

static int copy(char *to, unsigned size, const char *text) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(to, text);
    return OK;
}

API(nvmlInit_v2)(void) { BEGIN(NULL); origin(); return INIT_RESULT; }
API(nvmlInitWithFlags)(unsigned flags) { (void)flags; BEGIN(NULL); origin(); return INIT_RESULT; }
API(nvmlShutdown)(void) { return OK; }
API(nvmlSystemGetDriverVersion)(char *text, unsigned size) { BEGIN(NULL); return copy(text, size, "580.159.03"); }
API(nvmlSystemGetNVMLVersion)(char *text, unsigned size) { BEGIN(NULL); return copy(text, size, "13.580.159.03"); }
API(nvmlSystemGetCudaDriverVersion_v2)(int *version) { BEGIN(NULL); *version = (int)mock_number("driver_version", 13000); return OK; }
API(nvmlDeviceGetCount_v2)(unsigned *count) { BEGIN(NULL); *count = (unsigned)device_count(); return OK; }

static struct gpu *gpu_handle(int index) {
    gpus[index] = (struct gpu){index, -1};
    return &gpus[index];
}

API(nvmlDeviceGetHandleByIndex_v2)(unsigned index, struct gpu **device) {
    BEGIN(NULL);
    if (index >= 8 || (int)index >= device_count()) return INVALID;
    *device = gpu_handle((int)index);
    return OK;
}

static struct gpu *instance_handle(int nth) {
    struct mock_mig mig;
    if (nth >= 16 || !mock_mig(nth, &mig)) return NULL;
    instances[nth] = (struct gpu){mig.device, nth};
    return &instances[nth];
}

API(nvmlDeviceGetHandleByUUID)(const char *uuid, struct gpu **device) {
    BEGIN(NULL);
    struct mock_mig mig;
    unsigned char bytes[16];
    char text[48];
    for (int i = 0; mock_mig(i, &mig); i++)
        if (!strcmp(mig.uuid, uuid)) return (*device = instance_handle(i)) ? OK : NOT_FOUND;
    for (int i = 0; i < device_count() && i < 8; i++) {
        mock_uuid(i, bytes, text);
        if (!strcmp(text, uuid)) return *device = gpu_handle(i), OK;
    }
    return NOT_FOUND;
}

API(nvmlDeviceGetName)(struct gpu *device, char *text, unsigned size) {
    BEGIN(device);
    char name[128] = "Stand-in H200", whole[256];
    struct mock_mig mig;
    mock_need_script();
    mock_line("name", 0, name, sizeof name);
    if (device->instance < 0 || !mock_mig(device->instance, &mig)) return copy(text, size, name);
    snprintf(whole, sizeof whole, "%s MIG %s", name, mig.profile);
    return copy(text, size, whole);
}

API(nvmlDeviceGetUUID)(struct gpu *device, char *text, unsigned size) {
    BEGIN(device);
    struct mock_mig mig;
    unsigned char bytes[16];
    char uuid[48];
    if (device->instance >= 0 && mock_mig(device->instance, &mig)) return copy(text, size, mig.uuid);
    mock_uuid(device->index, bytes, uuid);
    return copy(text, size, uuid);
}

API(nvmlDeviceGetIndex)(struct gpu *device, unsigned *index) { BEGIN(device); *index = (unsigned)device->index; return OK; }
API(nvmlDeviceGetVbiosVersion)(struct gpu *device, char *text, unsigned size) { BEGIN(device); return copy(text, size, "00.00.00.00.00"); }
API(nvmlDeviceGetPersistenceMode)(struct gpu *device, unsigned *mode) { BEGIN(device); *mode = mock_flag("persistence"); return OK; }
API(nvmlDeviceGetComputeMode)(struct gpu *device, unsigned *mode) { BEGIN(device); *mode = (unsigned)mock_number("compute_mode", COMPUTE_MODE); return OK; }
API(nvmlDeviceGetEccMode)(struct gpu *device, unsigned *now, unsigned *next) { BEGIN(device); *now = *next = 1; return OK; }

/* ---- MIG */

static bool has_instances(int index) {
    struct mock_mig mig;
    for (int i = 0; mock_mig(i, &mig); i++)
        if (mig.device == index) return true;
    return false;
}

API(nvmlDeviceGetMigMode)(struct gpu *device, unsigned *now, unsigned *next) {
    BEGIN(device);
    *now = *next = has_instances(device->index);
    return *now || mock_flag("mig_off") ? OK : NOT_SUPPORTED;
}
API(nvmlDeviceGetMaxMigDeviceCount)(struct gpu *device, unsigned *count) { BEGIN(device); *count = has_instances(device->index) ? 7 : 0; return OK; }
API(nvmlDeviceGetMigDeviceHandleByIndex)(struct gpu *device, unsigned index, struct gpu **instance) {
    BEGIN(device);
    struct mock_mig mig;
    unsigned nth = 0;
    for (int i = 0; mock_mig(i, &mig); i++)
        if (mig.device == device->index && nth++ == index) return (*instance = instance_handle(i)) ? OK : NOT_FOUND;
    return NOT_FOUND;
}
API(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(struct gpu *instance, struct gpu **device) {
    BEGIN(instance);
    if (instance->instance < 0) return INVALID;
    *device = gpu_handle(instance->index);
    return OK;
}
API(nvmlDeviceIsMigDeviceHandle)(struct gpu *device, unsigned *is) { BEGIN(NULL); *is = device->instance >= 0; return OK; }
API(nvmlDeviceGetGpuInstanceId)(struct gpu *device, unsigned *id) { BEGIN(device); *id = (unsigned)device->instance + 1; return device->instance < 0 ? INVALID : OK; }
API(nvmlDeviceGetComputeInstanceId)(struct gpu *device, unsigned *id) { BEGIN(device); *id = 0; return device->instance < 0 ? INVALID : OK; }

struct attributes {
    unsigned multiprocessors, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_megabytes;
};
API(nvmlDeviceGetAttributes_v2)(struct gpu *device, struct attributes *attributes) {
    BEGIN(device);
    struct mock_mig mig;
    if (device->instance < 0 || !mock_mig(device->instance, &mig)) return NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessors = (unsigned)mig.multiprocessors;
    attributes->gpu_slices = attributes->compute_slices = 1;
    attributes->memory_megabytes = (unsigned long long)(mig.memory / 1048576);
    return OK;
}

/* ---- clocks, power, heat; all of the whole GPU, as on a real one */

#define BOARD(device) do { BEGIN(device); if ((device)->instance >= 0) return NOT_SUPPORTED; } while (0)

static double sm_clock(void) { return timeline("clock", 1980); }
static double power(void) { return mock_number("power", 420); }

API(nvmlDeviceGetClockInfo)(struct gpu *device, int kind, unsigned *clock) {
    BOARD(device);
    *clock = (unsigned)(kind == 2 ? mock_number("memory_clock", 3201) : sm_clock());
    return OK;
}
API(nvmlDeviceGetMaxClockInfo)(struct gpu *device, int kind, unsigned *clock) { BOARD(device); *clock = kind == 2 ? 3201 : 1980; return OK; }
API(nvmlDeviceGetPowerUsage)(struct gpu *device, unsigned *milliwatts) { BOARD(device); *milliwatts = (unsigned)(power() * 1e3); return OK; }
API(nvmlDeviceGetEnforcedPowerLimit)(struct gpu *device, unsigned *milliwatts) { BOARD(device); *milliwatts = 700000; return OK; }
API(nvmlDeviceGetPowerManagementLimit)(struct gpu *device, unsigned *milliwatts) { BOARD(device); *milliwatts = 700000; return OK; }
API(nvmlDeviceGetTotalEnergyConsumption)(struct gpu *device, unsigned long long *millijoules) {
    BOARD(device);
    *millijoules = (unsigned long long)(1e9 + power() * elapsed_ms());
    return OK;
}
API(nvmlDeviceGetTemperature)(struct gpu *device, int sensor, unsigned *celsius) { (void)sensor; BOARD(device); *celsius = (unsigned)mock_number("temperature", 61); return OK; }
API(nvmlDeviceGetCurrentClocksThrottleReasons)(struct gpu *device, unsigned long long *bits) {
    BOARD(device);
    *bits = (unsigned long long)timeline("throttle", 0);
    return OK;
}
API(nvmlDeviceGetTotalEccErrors)(struct gpu *device, int kind, int counter, unsigned long long *count) {
    (void)counter;
    BOARD(device);
    *count = kind == 1 ? (unsigned long long)timeline("ecc", 0) : 0;
    return OK;
}

struct memory { unsigned version; unsigned long long total, reserved, free, used; };
API(nvmlDeviceGetMemoryInfo_v2)(struct gpu *device, struct memory *memory) {
    BEGIN(device);
    struct mock_mig mig;
    double total = mock_number("memory", 144000000000.0);
    if (device->instance >= 0 && mock_mig(device->instance, &mig)) total = mig.memory;
    memory->total = (unsigned long long)total;
    memory->reserved = memory->total / 200;
    memory->used = memory->total / 100;
    memory->free = memory->total - memory->used - memory->reserved;
    return OK;
}

/* ---- the host link */

static void link_now(unsigned *generation, unsigned *lanes) {
    char line[64];
    *generation = 5, *lanes = 16;
    mock_need_script();
    if (mock_line("pcie", 0, line, sizeof line)) sscanf(line, "%u %u", generation, lanes);
}
API(nvmlDeviceGetCurrPcieLinkGeneration)(struct gpu *device, unsigned *generation) { unsigned lanes; BOARD(device); link_now(generation, &lanes); return OK; }
API(nvmlDeviceGetCurrPcieLinkWidth)(struct gpu *device, unsigned *lanes) { unsigned generation; BOARD(device); link_now(&generation, lanes); return OK; }
API(nvmlDeviceGetPcieThroughput)(struct gpu *device, int counter, unsigned *kilobytes) {
    BOARD(device);
    mock_sleep(20000000); /* as the driver does */
    *kilobytes = counter == 0 ? 2000 : 1000;
    return OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
API(nvmlDeviceGetPciInfo_v3)(struct gpu *device, struct pci *pci) {
    BOARD(device);
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x18 + (unsigned)device->index;
    pci->id = 0x233510de;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    return OK;
}

/* ---- fields */

struct field { unsigned id, scope; long long at, latency; unsigned type; int result; union { double d; unsigned u; unsigned long long ull; } value; };
API(nvmlDeviceGetFieldValues)(struct gpu *device, int count, struct field *fields) {
    BOARD(device);
    for (int i = 0; i < count; i++) {
        struct field *field = &fields[i];
        field->result = OK;
        field->type = 3; /* unsigned long long */
        field->value.ull = 0;
        switch (field->id) {
        case 82: field->type = 1; field->value.u = (unsigned)mock_number("temperature", 61) + 8; break;
        case 197: field->value.ull = (unsigned long long)(elapsed_ms() * 2e6); break; /* 2 GB/s to the host */
        case 198: field->value.ull = (unsigned long long)(elapsed_ms() * 1e6); break; /* 1 GB/s to the device */
        default: field->result = NOT_SUPPORTED;
        }
    }
    return OK;
}

/* ---- events */

struct event { struct gpu *device; unsigned long long kind, data; unsigned gpu_instance, compute_instance; };
struct set { struct gpu *device; unsigned taken; };

API(nvmlEventSetCreate)(struct set **set) { BEGIN(NULL); *set = calloc(1, sizeof **set); return *set ? OK : 20; }
API(nvmlEventSetFree)(struct set *set) { free(set); return OK; }
API(nvmlDeviceGetSupportedEventTypes)(struct gpu *device, unsigned long long *kinds) { BOARD(device); *kinds = 8; return OK; }
API(nvmlDeviceRegisterEvents)(struct gpu *device, unsigned long long kinds, struct set *set) {
    BOARD(device);
    if (!(kinds & 8)) return NOT_SUPPORTED;
    set->device = device;
    return OK;
}
API(nvmlEventSetWait_v2)(struct set *set, struct event *event, unsigned timeout_ms) {
    BEGIN(set->device);
    uint64_t deadline = mock_now() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        char line[64];
        unsigned long long number;
        double after;
        for (int i = 0; i < 32 && mock_line("xid", i, line, sizeof line); i++) {
            if (set->taken >> i & 1 || sscanf(line, "%llu after %lf", &number, &after) != 2) continue;
            if (after > elapsed_ms()) continue;
            set->taken |= 1u << i;
            *event = (struct event){set->device, 8, number, 0xffffffffu, 0xffffffffu};
            return OK;
        }
        if (mock_now() >= deadline) return TIMEOUT;
        mock_sleep(1000000);
    }
}

/* ---- processes: nobody but us */

API(nvmlDeviceGetComputeRunningProcesses_v3)(struct gpu *device, unsigned *count, void *processes) { (void)processes; BEGIN(device); *count = 0; return OK; }

/* ---- GPM */

struct gpm_support { unsigned version, supported; };
struct gpm_sample { uint64_t at; };
struct gpm_metric { unsigned id; int result; double value; const char *name, *long_name, *unit; };
struct gpm_request { unsigned version, count; struct gpm_sample *first, *second; struct gpm_metric metrics[210]; };

API(nvmlGpmQueryDeviceSupport)(struct gpu *device, struct gpm_support *support) { BOARD(device); support->supported = mock_number("gpm", 1) != 0; return OK; }
API(nvmlGpmSampleAlloc)(struct gpm_sample **sample) { BEGIN(NULL); *sample = calloc(1, sizeof **sample); return *sample ? OK : 20; }
API(nvmlGpmSampleFree)(struct gpm_sample *sample) { free(sample); return OK; }
API(nvmlGpmSampleGet)(struct gpu *device, struct gpm_sample *sample) {
    BOARD(device);
    if (has_instances(device->index)) return NOT_SUPPORTED; /* a GPU in MIG mode is sampled by instance */
    sample->at = mock_now();
    return OK;
}
API(nvmlGpmMigSampleGet)(struct gpu *device, unsigned instance, struct gpm_sample *sample) {
    BOARD(device);
    if (!instance || !instance_handle((int)instance - 1)) return INVALID;
    sample->at = mock_now();
    return OK;
}

static const struct { unsigned id; double value; const char *unit; } gpm_defaults[] = {
    {1, 97, "%"}, {2, 93, "%"}, {3, 41, "%"}, {5, 62, "%"}, {10, 48, "%"}, {11, 0.2, "%"}, {12, 21, "%"},
    {20, 2048, "MiB/s"}, {21, 1024, "MiB/s"}, {172, 900, ""}, {174, 1.5, "%"},
};

API(nvmlGpmMetricsGet)(struct gpm_request *request) {
    BEGIN(NULL);
    if (request->version != 1 || request->count > 210) return INVALID;
    if (request->second->at <= request->first->at) return INVALID;
    for (unsigned i = 0; i < request->count; i++) {
        struct gpm_metric *metric = &request->metrics[i];
        char line[64], text[32];
        unsigned id;
        metric->result = NOT_SUPPORTED;
        for (size_t d = 0; d < sizeof gpm_defaults / sizeof *gpm_defaults; d++) {
            if (gpm_defaults[d].id != metric->id) continue;
            metric->result = OK;
            metric->value = gpm_defaults[d].value;
            metric->unit = gpm_defaults[d].unit;
            metric->name = metric->long_name = "stand-in";
        }
        for (int n = 0; mock_line("gpm_value", n, line, sizeof line); n++) {
            if (sscanf(line, "%u %31s", &id, text) != 2 || id != metric->id) continue;
            if (!strcmp(text, "unsupported")) metric->result = NOT_SUPPORTED;
            else metric->value = strcmp(text, "nan") ? atof(text) : NAN;
        }
    }
    return OK;
}
