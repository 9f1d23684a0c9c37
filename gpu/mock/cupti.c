/* A stand-in for libcupti.so.13: version, host API, PM sampling, and the activity API (cupti_activity.h).
 *
 * Keys beside the common ones (script.h):
 *
 *   chip GH100                      what cuptiDeviceGetChipName answers; also one of the known chips
 *   deny counters                   insufficient privileges (35) on everything that reads counters
 *   perfmon_busy 1                  cuptiPmSamplingEnable answers hardware busy (26); it does so, too, while another
 *                                   process of the test samples
 *   pm_unsupported <part>           cuptiProfilerDeviceSupported: `architecture`, `vgpu`, `cc` or `wsl`
 *   passes <n>                      of every configuration (1)
 *   unknown_metric <text>           names that contain the text are no metrics; several lines
 *   pm_value <text> <value>         per sample, for names that contain the text; `.sum` values are per second
 *   pm_overflow <n>                 the n-th decode reports an overflow
 *   pm_gap <n>                      the n-th decode loses five samples
 *   pm_missing 1                    every value is NaN
 *   crash <function>                the process aborts in that call
 *   fault <function> <code>         as in script.h: decode errors, `hang`
 *
 * -DVERSION=… and -DRESULT=… set what cuptiGetVersion says and answers. Values are plausible, smooth and made up: the
 * device that they come with is named `Stand-in …`. */
#define _GNU_SOURCE
#include "script.h"
#include <math.h>
#include <stddef.h>
#include <sys/file.h>

#ifndef VERSION
#define VERSION 130001
#endif
#ifndef RESULT
#define RESULT 0
#endif

enum { OK, INVALID_PARAMETER = 1, INVALID_OPERATION = 7, TOO_SMALL = 10, INVALID_NAME = 17, BUSY = 26, NOT_SUPPORTED = 27,
       PRIVILEGES = 35, INVALID_CHIP = 46 };

static int begin(const char *call, bool reads_counters) {
    char line[128];
    mock_need_script();
    for (int i = 0; mock_line("crash", i, line, sizeof line); i++)
        if (mock_same_call(line, call)) {
            fprintf(stderr, "stand-in libcupti: crash in %s, as the script wants\n", call);
            abort();
        }
    int fault = mock_fault(call);
    while (fault == MOCK_HANG) mock_sleep(1000000000);
    if (fault) return fault;
    for (int i = 0; reads_counters && mock_line("deny", i, line, sizeof line); i++)
        if (!strcmp(line, "counters")) return PRIVILEGES;
    return OK;
}
#define BEGIN(reads_counters) do { int code = begin(__func__, reads_counters); if (code) return code; } while (0)
/* The size ends with the last field, as in the real library: a struct with its padding is refused. */
#define SIZE(params, last) do { \
    if ((params)->size != offsetof(__typeof__(*(params)), last) + sizeof (params)->last) return INVALID_PARAMETER; \
} while (0)

API(cuptiGetVersion)(uint32_t *version) { *version = VERSION; return RESULT; }

/* ---- host API */

static const char *const known_chips[] = {"TU102", "TU104", "GA100", "GA102", "GH100", "AD102", "AD104", "GB100", NULL};

struct chips { size_t size; void *private_; size_t count; const char *const *names; };
API(cuptiProfilerHostGetSupportedChips)(struct chips *params) {
    BEGIN(false);
    SIZE(params, names);
    params->names = known_chips;
    for (params->count = 0; known_chips[params->count];) params->count++;
    return OK;
}

struct host { char chip[16]; size_t count; char (*names)[128]; };
struct host_initialize { size_t size; void *private_; int type; const char *chip; const uint8_t *availability; struct host *host; };
API(cuptiProfilerHostInitialize)(struct host_initialize *params) {
    BEGIN(false);
    SIZE(params, host);
    for (int i = 0; known_chips[i]; i++) {
        if (strcmp(known_chips[i], params->chip)) continue;
        params->host = calloc(1, sizeof *params->host);
        strcpy(params->host->chip, params->chip);
        return OK;
    }
    return INVALID_CHIP;
}

struct host_only { size_t size; void *private_; struct host *host; };
API(cuptiProfilerHostDeinitialize)(struct host_only *params) {
    SIZE(params, host);
    free(params->host->names);
    free(params->host);
    return OK;
}

static bool is_metric(const char *name) {
    char text[128];
    if (!strstr(name, "__") || !strchr(name, '.')) return false;
    for (int i = 0; mock_line("unknown_metric", i, text, sizeof text); i++)
        if (strstr(name, text)) return false;
    return true;
}

struct properties { size_t size; void *private_; struct host *host; const char *name, *description, *unit, *dimension; int type; };
API(cuptiProfilerHostGetMetricProperties)(struct properties *params) {
    BEGIN(false);
    SIZE(params, type);
    if (!is_metric(params->name)) return INVALID_NAME;
    params->description = "of a stand-in";
    params->unit = "sm";
    params->dimension = strstr(params->name, ".pct") ? "percent" : "unit";
    params->type = 0;
    return OK;
}

struct add { size_t size; void *private_; struct host *host; const char **names; size_t count; };
API(cuptiProfilerHostConfigAddMetrics)(struct add *params) {
    BEGIN(false);
    SIZE(params, count);
    struct host *host = params->host;
    for (size_t i = 0; i < params->count; i++)
        if (!is_metric(params->names[i]) || strlen(params->names[i]) > 127) return INVALID_PARAMETER;
    host->names = realloc(host->names, (host->count + params->count) * sizeof *host->names);
    for (size_t i = 0; i < params->count; i++) strcpy(host->names[host->count++], params->names[i]);
    return OK;
}

/* A configuration: its passes. */
struct config { uint64_t magic, passes; };
#define CONFIG_MAGIC 0x636f6e666967u

struct config_size { size_t size; void *private_; struct host *host; size_t bytes; };
API(cuptiProfilerHostGetConfigImageSize)(struct config_size *params) {
    BEGIN(false);
    SIZE(params, bytes);
    params->bytes = sizeof(struct config);
    return OK;
}

struct config_get { size_t size; void *private_; struct host *host; size_t bytes; uint8_t *image; };
API(cuptiProfilerHostGetConfigImage)(struct config_get *params) {
    BEGIN(false);
    SIZE(params, image);
    if (params->bytes < sizeof(struct config)) return TOO_SMALL;
    struct config config = {CONFIG_MAGIC, (uint64_t)mock_number("passes", 1)};
    memcpy(params->image, &config, sizeof config);
    return OK;
}

static int read_config(const uint8_t *image, size_t bytes, struct config *config) {
    if (bytes < sizeof *config) return TOO_SMALL;
    memcpy(config, image, sizeof *config);
    return config->magic == CONFIG_MAGIC ? OK : INVALID_PARAMETER;
}

struct passes { size_t size; void *private_; size_t bytes; const uint8_t *image; size_t passes; };
API(cuptiProfilerHostGetNumOfPasses)(struct passes *params) {
    BEGIN(false);
    SIZE(params, passes);
    struct config config;
    int code = read_config(params->image, params->bytes, &config);
    params->passes = config.passes;
    return code;
}

/* ---- the device */

static const char *chip(void) {
    static char name[16];
    mock_need_script();
    if (!*name && !mock_line("chip", 0, name, sizeof name)) strcpy(name, "GH100");
    return name;
}

struct chip_name { size_t size; void *private_; size_t device; const char *name; };
API(cuptiDeviceGetChipName)(struct chip_name *params) {
    BEGIN(false);
    SIZE(params, name);
    if (params->device >= (size_t)mock_number("devices", 1)) return 2;
    params->name = chip();
    return OK;
}

struct initialize { size_t size; void *private_; };
API(cuptiProfilerInitialize)(struct initialize *params) { BEGIN(false); SIZE(params, private_); return OK; }

struct supported { size_t size; void *private_; int device; unsigned all, architecture, sli, vgpu, confidential, cmp, wsl, api; };
API(cuptiProfilerDeviceSupported)(struct supported *params) {
    BEGIN(false);
    SIZE(params, api);
    char part[32] = "";
    mock_line("pm_unsupported", 0, part, sizeof part);
    params->architecture = strcmp(part, "architecture") ? 3 : 1;
    params->vgpu = strcmp(part, "vgpu") ? 3 : 2;
    params->confidential = strcmp(part, "cc") ? 3 : 1;
    params->wsl = strcmp(part, "wsl") ? 3 : 1;
    params->sli = params->cmp = 3;
    params->all = *part ? 1 : 3;
    return OK;
}

struct availability { size_t size; void *private_; size_t device, bytes; uint8_t *image; };
API(cuptiPmSamplingGetCounterAvailability)(struct availability *params) {
    BEGIN(true);
    SIZE(params, image);
    if (!params->image) return params->bytes = 64, OK;
    if (params->bytes < 64) return TOO_SMALL;
    memset(params->image, 1, 64);
    return OK;
}

/* ---- PM sampling */

struct sampling {
    int owner; /* the file whose lock is the performance monitor */
    bool configured, running;
    uint64_t interval, started, stopped, decoded; /* ns, CLOCK_MONOTONIC; decoded: end of the last decoded sample */
    long decodes;
};

struct enable { size_t size; void *private_; size_t device; struct sampling *sampling; };
API(cuptiPmSamplingEnable)(struct enable *params) {
    BEGIN(true);
    SIZE(params, sampling);
    char path[4096];
    int owner = -1;
    if (mock_flag("perfmon_busy")) return BUSY;
    if (mock_folder()) {
        snprintf(path, sizeof path, "%s/perfmon-%zu", mock_folder(), params->device);
        owner = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        if (owner >= 0 && flock(owner, LOCK_EX | LOCK_NB)) {
            close(owner);
            return BUSY;
        }
    }
    params->sampling = calloc(1, sizeof *params->sampling);
    params->sampling->owner = owner;
    return OK;
}

struct sampling_only { size_t size; void *private_; struct sampling *sampling; };
API(cuptiPmSamplingDisable)(struct sampling_only *params) {
    BEGIN(false);
    SIZE(params, sampling);
    if (params->sampling->owner >= 0) close(params->sampling->owner);
    free(params->sampling);
    return OK;
}

struct set_config { size_t size; void *private_; struct sampling *sampling; size_t bytes; const uint8_t *config; size_t buffer; uint64_t interval; int trigger, append; };
API(cuptiPmSamplingSetConfig)(struct set_config *params) {
    BEGIN(false);
    SIZE(params, append);
    struct config config;
    int code = read_config(params->config, params->bytes, &config);
    if (code) return code;
    bool has_timer = strcmp(chip(), "GA100") && strncmp(chip(), "TU", 2);
    if (config.passes != 1 || (params->trigger == 1 && !has_timer)) return NOT_SUPPORTED;
    if (!params->interval || !params->buffer) return INVALID_PARAMETER;
    params->sampling->interval = params->interval; /* the stand-in's system clock runs at 1 GHz */
    params->sampling->configured = true;
    return OK;
}

/* An image of decoded samples. */
struct sample { uint64_t start, end, index; };
struct image { uint64_t magic, room, count, sample_ns; struct sample samples[]; };
#define IMAGE_MAGIC 0x696d616765u

struct data_size { size_t size; void *private_; struct sampling *sampling; const char **names; size_t count; uint32_t samples; size_t bytes; };
API(cuptiPmSamplingGetCounterDataSize)(struct data_size *params) {
    BEGIN(false);
    SIZE(params, bytes);
    params->bytes = sizeof(struct image) + params->samples * sizeof(struct sample);
    return OK;
}

struct data_initialize { size_t size; void *private_; struct sampling *sampling; size_t bytes; uint8_t *image; };
API(cuptiPmSamplingCounterDataImageInitialize)(struct data_initialize *params) {
    BEGIN(false);
    SIZE(params, image);
    if (params->bytes < sizeof(struct image) + sizeof(struct sample)) return TOO_SMALL;
    struct image *image = (struct image *)params->image;
    *image = (struct image){IMAGE_MAGIC, (params->bytes - sizeof *image) / sizeof(struct sample), 0, params->sampling->interval};
    return OK;
}

API(cuptiPmSamplingStart)(struct sampling_only *params) {
    BEGIN(false);
    SIZE(params, sampling);
    struct sampling *sampling = params->sampling;
    if (!sampling->configured || sampling->running) return INVALID_OPERATION;
    sampling->running = true;
    sampling->started = sampling->decoded = mock_now();
    return OK;
}

API(cuptiPmSamplingStop)(struct sampling_only *params) {
    BEGIN(false);
    SIZE(params, sampling);
    if (!params->sampling->running) return INVALID_OPERATION;
    params->sampling->running = false;
    params->sampling->stopped = mock_now();
    return OK;
}

struct decode { size_t size; void *private_; struct sampling *sampling; uint8_t *image; size_t bytes; unsigned reason; uint8_t overflow; };
API(cuptiPmSamplingDecodeData)(struct decode *params) {
    BEGIN(false);
    SIZE(params, overflow);
    struct sampling *sampling = params->sampling;
    struct image *image = (struct image *)params->image;
    if (image->magic != IMAGE_MAGIC) return INVALID_PARAMETER;
    if (!sampling->configured) return INVALID_OPERATION;
    long nth = ++sampling->decodes;
    params->overflow = nth == (long)mock_number("pm_overflow", 0);
    if (nth == (long)mock_number("pm_gap", 0)) sampling->decoded += 5 * sampling->interval;
    uint64_t now = sampling->running ? mock_now() : sampling->stopped;
    while (image->count < image->room && sampling->decoded + sampling->interval <= now) {
        uint64_t start = sampling->decoded, end = start + sampling->interval;
        image->samples[image->count++] = (struct sample){start, end, (start - sampling->started) / sampling->interval};
        sampling->decoded = end;
    }
    params->reason = sampling->decoded + sampling->interval <= now ? 1 : 2;
    return OK;
}

struct data_info { size_t size; void *private_; const uint8_t *image; size_t bytes, total, populated, completed; };
API(cuptiPmSamplingGetCounterDataInfo)(struct data_info *params) {
    BEGIN(false);
    SIZE(params, completed);
    const struct image *image = (const struct image *)params->image;
    params->total = image->room;
    params->populated = params->completed = image->count;
    return OK;
}

struct sample_info { size_t size; void *private_; struct sampling *sampling; const uint8_t *image; size_t bytes, index; uint64_t start, end; };
API(cuptiPmSamplingCounterDataGetSampleInfo)(struct sample_info *params) {
    BEGIN(false);
    SIZE(params, end);
    const struct image *image = (const struct image *)params->image;
    if (params->index >= image->count) return INVALID_PARAMETER;
    params->start = image->samples[params->index].start;
    params->end = image->samples[params->index].end;
    return OK;
}

/* What a busy H200 might show: percentages per sample, sums per second. */
static const struct { const char *part; double value; } defaults[] = {
    {"sm__cycles_elapsed.avg", 1.755e9}, {"sm__cycles_active", 94}, {"gr__cycles_active", 98}, {"warps_active", 43},
    {"pipe_tensor", 61}, {"pipe_fmaheavy", 22}, {"pipe_fmalite", 20}, {"pipe_fma", 21}, {"pipe_fp64", 0.5},
    {"pipe_alu", 12}, {"pipe_shared", 15}, {"inst_executed_realtime", 55}, {"mem_shared", 18}, {"hit_rate", 71},
    {"lts__", 37}, {"dram__bytes_read.sum", 1.9e12}, {"dram__bytes_write.sum", 0.6e12}, {"read_throughput", 40},
    {"write_throughput", 12}, {"throughput", 52}, {"pcie__read_bytes.sum", 1.0e9}, {"pcie__write_bytes.sum", 2.0e9},
    {"pcie__read_bytes", 1.6}, {"pcie__write_bytes", 3.2}, {"ctxsw", 0.1}, {"queue_async", 2}, {"queue_sync", 96},
    {"dispatch_count.sum", 42000}, {"ctas_launched", 5.5e6}, {"registers_allocated", 51}, {"bytes_allocated", 29},
};

static double value_of(const char *name, uint64_t index, double seconds) {
    double value = 10;
    char line[192], part[128], text[64];
    if (mock_flag("pm_missing")) return NAN;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (strstr(name, defaults[i].part)) {
            value = defaults[i].value;
            break;
        }
    for (int i = 0; mock_line("pm_value", i, line, sizeof line); i++)
        if (sscanf(line, "%127s %63s", part, text) == 2 && strstr(name, part)) value = strcmp(text, "nan") ? atof(text) : NAN;
    value *= 1 + 0.01 * sin(0.7 * (double)index);
    if (!strstr(name, ".pct")) return value * seconds;
    return value > 100 ? 100 : value; /* a NaN stays one */
}

struct evaluate { size_t size; void *private_; struct host *host; const uint8_t *image; size_t bytes, index; const char **names; size_t count; double *values; };
API(cuptiProfilerHostEvaluateToGpuValues)(struct evaluate *params) {
    BEGIN(false);
    SIZE(params, values);
    const struct image *image = (const struct image *)params->image;
    if (params->index >= image->count) return INVALID_PARAMETER;
    const struct sample *sample = &image->samples[params->index];
    for (size_t i = 0; i < params->count; i++)
        params->values[i] = value_of(params->names[i], sample->index, (double)(sample->end - sample->start) * 1e-9);
    return OK;
}

#include "cupti_activity.h"
