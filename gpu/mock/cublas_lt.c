/* A stand-in for libcublasLt.so.13: dense products, column-major, that take their time on the stand-in driver.
 *
 * In functional mode (`functional 1`) products are really computed, with sums in double precision; TF32 operands lose their
 * low bits first. FP8 and INT8 are served only as the real library does before Blackwell: the first operand transposed, the
 * second not, and sizes that are multiples of 16 or 4; else there is no algorithm.
 *
 * Keys of the script, beside those of script.h:
 *
 *   cublas_version 130101
 *   gemm_teraflops <fp64|fp32|tf32|fp16|fp8> <t>    default 60, 50, 400, 800, 1600; fp16 is BF16's too, fp8 INT8's
 *   gemm_microseconds 3                             least time of one product
 */
#define _GNU_SOURCE
#include "hooks.h"
#include "script.h"
#include <dlfcn.h>

enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
/* cudaDataType */
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_8I = 3, R_32I = 10, R_16BF = 14, R_8F_E4M3 = 28 };
/* cublasComputeType_t */
enum { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32I = 72, COMPUTE_TF32 = 77 };

struct operation {
    int compute, scale, transpose[2];
};

struct layout {
    int type, batch;
    uint64_t rows, columns;
    int64_t leading, stride;
};

struct preference {
    uint64_t workspace;
};

struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

#define FAULT(call)                     \
    do {                                \
        int code_ = mock_fault(#call);  \
        if (code_ > 0) return code_;    \
    } while (0)

EXPORT(size_t, cublasLtGetVersion)(void) { return (size_t)mock_number("cublas_version", 130101); }

API(cublasLtCreate)(void **handle) {
    FAULT(cublasLtCreate);
    *handle = calloc(1, 16);
    return 0;
}

API(cublasLtDestroy)(void *handle) {
    free(handle);
    return 0;
}

API(cublasLtMatmulDescCreate)(struct operation **operation, int compute, int scale) {
    FAULT(cublasLtMatmulDescCreate);
    *operation = calloc(1, sizeof **operation);
    **operation = (struct operation){compute, scale, {0, 0}};
    return 0;
}

API(cublasLtMatmulDescDestroy)(struct operation *operation) {
    free(operation);
    return 0;
}

API(cublasLtMatmulDescSetAttribute)(struct operation *operation, int attribute, const void *value, size_t size) {
    FAULT(cublasLtMatmulDescSetAttribute);
    if (attribute == 3 || attribute == 4) {
        if (size != sizeof(int)) return INVALID_VALUE;
        memcpy(&operation->transpose[attribute - 3], value, size);
    }
    return 0;
}

API(cublasLtMatrixLayoutCreate)(struct layout **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    FAULT(cublasLtMatrixLayoutCreate);
    *layout = calloc(1, sizeof **layout);
    **layout = (struct layout){type, 1, rows, columns, leading, 0};
    return 0;
}

API(cublasLtMatrixLayoutDestroy)(struct layout *layout) {
    free(layout);
    return 0;
}

API(cublasLtMatrixLayoutSetAttribute)(struct layout *layout, int attribute, const void *value, size_t size) {
    FAULT(cublasLtMatrixLayoutSetAttribute);
    if (attribute == 5 && size == sizeof layout->batch) memcpy(&layout->batch, value, size);
    else if (attribute == 6 && size == sizeof layout->stride) memcpy(&layout->stride, value, size);
    else return INVALID_VALUE;
    return 0;
}

API(cublasLtMatmulPreferenceCreate)(struct preference **preference) {
    FAULT(cublasLtMatmulPreferenceCreate);
    *preference = calloc(1, sizeof **preference);
    return 0;
}

API(cublasLtMatmulPreferenceDestroy)(struct preference *preference) {
    free(preference);
    return 0;
}

API(cublasLtMatmulPreferenceSetAttribute)(struct preference *preference, int attribute, const void *value, size_t size) {
    FAULT(cublasLtMatmulPreferenceSetAttribute);
    if (attribute == 1 && size == sizeof preference->workspace) memcpy(&preference->workspace, value, size);
    return 0;
}

/* m, n, k of op(A) op(B), or false where the sizes do not fit. */
static bool sizes(const struct operation *operation, const struct layout *a, const struct layout *b, const struct layout *d,
                  uint64_t *m, uint64_t *n, uint64_t *k) {
    *m = operation->transpose[0] ? a->columns : a->rows;
    *k = operation->transpose[0] ? a->rows : a->columns;
    *n = operation->transpose[1] ? b->rows : b->columns;
    return *k == (operation->transpose[1] ? b->columns : b->rows) && *m == d->rows && *n == d->columns &&
           a->batch == b->batch && a->batch == d->batch && a->leading >= (int64_t)a->rows && b->leading >= (int64_t)b->rows;
}

API(cublasLtMatmulAlgoGetHeuristic)(void *handle, struct operation *operation, struct layout *a, struct layout *b,
                                    struct layout *c, struct layout *d, struct preference *preference, int wanted,
                                    struct heuristic *results, int *found) {
    uint64_t m, n, k;
    (void)c;
    FAULT(cublasLtMatmulAlgoGetHeuristic);
    *found = 0;
    if (!handle) return NOT_INITIALIZED;
    if (!sizes(operation, a, b, d, &m, &n, &k) || wanted < 1) return INVALID_VALUE;
    bool narrow = a->type == R_8F_E4M3 || a->type == R_8I;
    uint64_t multiple = a->type == R_8F_E4M3 ? 16 : 4;
    if (narrow && (!operation->transpose[0] || operation->transpose[1] || m % multiple || n % multiple || k % multiple))
        return NOT_SUPPORTED;
    memset(results, 0, sizeof *results);
    results->algorithm[0] = 0x454c4743; /* which cublasLtMatmul asks for again */
    /* Long inner dimensions are split, for which partial sums are kept. */
    results->workspace = k >= 4096 && preference->workspace >= m * n * 8 ? m * n * 8 : 0;
    results->waves = 1;
    *found = 1;
    return 0;
}

static size_t element(int type) {
    return type == R_64F ? 8 : type == R_32F || type == R_32I ? 4 : type == R_16F || type == R_16BF ? 2 : 1;
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* A number of `exponent` and `mantissa` bits below a sign; `finite`: the highest exponent is not kept for infinities. */
static double small_float(uint32_t bits, int exponent, int mantissa, bool finite) {
    int power = (int)(bits >> mantissa & ((1u << exponent) - 1)), bias = (1 << (exponent - 1)) - 1;
    uint32_t fraction = bits & ((1u << mantissa) - 1);
    double sign = bits >> (exponent + mantissa) & 1 ? -1 : 1, scale = 1.0 / (double)(1u << mantissa);
    if (power == (1 << exponent) - 1 && (!finite || fraction == (1u << mantissa) - 1)) return sign * (fraction ? __builtin_nan("") : __builtin_inf());
    int shift = power ? power - bias : 1 - bias;
    double value = (power ? 1 : 0) + fraction * scale;
    return sign * __builtin_ldexp(value, shift);
}

static double load(const void *at, uint64_t index, int type, bool tensor) {
    const char *place = (const char *)at + index * element(type);
    uint32_t word = 0;
    double value;
    switch (type) {
        case R_64F: memcpy(&value, place, 8); return value;
        case R_32F: memcpy(&word, place, 4); return from_bits(tensor ? word & 0xffffe000u : word);
        case R_32I: { int32_t number; memcpy(&number, place, 4); return number; }
        case R_8I: return *(const signed char *)place;
        case R_16BF: memcpy(&word, place, 2); return from_bits(word << 16);
        case R_16F: memcpy(&word, place, 2); return small_float(word, 5, 10, false);
        default: memcpy(&word, place, 1); return small_float(word, 4, 3, true);
    }
}

/* Rounds to nearest, ties to even; FP8 saturates. */
static uint32_t to_small_float(double value, int exponent, int mantissa, bool finite) {
    int bias = (1 << (exponent - 1)) - 1, power;
    uint32_t sign = __builtin_signbit(value) ? 1u << (exponent + mantissa) : 0, all = (1u << (exponent + mantissa)) - 1;
    double magnitude = __builtin_fabs(value);
    if (magnitude != magnitude) return sign | all;
    if (magnitude == 0) return sign;
    __builtin_frexp(magnitude, &power);
    int shift = (power - 1 < 1 - bias ? 1 - bias : power - 1) - mantissa;
    double units = __builtin_nearbyint(__builtin_ldexp(magnitude, -shift));
    uint32_t most = finite ? all - 1 : all - ((1u << mantissa) - 1);
    /* The code of a subnormal is its units; a normal one has its exponent above them. */
    double code = (double)(shift + mantissa + bias - 1) * (double)(1u << mantissa) + units;
    return sign | (code < (double)most ? (uint32_t)code : most);
}

static void store(void *at, uint64_t index, int type, double value) {
    char *place = (char *)at + index * element(type);
    float single = (float)value;
    uint32_t word;
    int32_t number;
    switch (type) {
        case R_64F: memcpy(place, &value, 8); break;
        case R_32F: memcpy(place, &single, 4); break;
        case R_32I: number = (int32_t)value; memcpy(place, &number, 4); break;
        case R_8I: *(signed char *)place = (signed char)(value > 127 ? 127 : value < -128 ? -128 : value); break;
        case R_16BF: word = to_small_float(single, 8, 7, false); memcpy(place, &word, 2); break;
        case R_16F: word = to_small_float(single, 5, 10, false); memcpy(place, &word, 2); break;
        default: word = to_small_float(single, 4, 3, true); memcpy(place, &word, 1);
    }
}

struct product {
    struct operation operation;
    struct layout a, b, c, d;
    const void *a_at, *b_at, *c_at;
    void *d_at;
    double alpha, beta;
};

static void run(const void *argument) {
    const struct product *p = argument;
    uint64_t m, n, k;
    bool tensor = p->operation.compute == COMPUTE_TF32;
    if (!sizes(&p->operation, &p->a, &p->b, &p->d, &m, &n, &k)) return;
    double *left = malloc(sizeof(double) * m * k + 8), *right = malloc(sizeof(double) * k + 8);
    for (int batch = 0; batch < p->d.batch; batch++) {
        uint64_t a = (uint64_t)(batch * p->a.stride), b = (uint64_t)(batch * p->b.stride), c = (uint64_t)(batch * p->c.stride), d = (uint64_t)(batch * p->d.stride);
        for (uint64_t i = 0; i < m; i++)
            for (uint64_t l = 0; l < k; l++)
                left[i * k + l] = load(p->a_at, a + (p->operation.transpose[0] ? l + i * (uint64_t)p->a.leading : i + l * (uint64_t)p->a.leading), p->a.type, tensor);
        for (uint64_t j = 0; j < n; j++) {
            for (uint64_t l = 0; l < k; l++)
                right[l] = load(p->b_at, b + (p->operation.transpose[1] ? j + l * (uint64_t)p->b.leading : l + j * (uint64_t)p->b.leading), p->b.type, tensor);
            for (uint64_t i = 0; i < m; i++) {
                double sum = 0;
                for (uint64_t l = 0; l < k; l++) sum += left[i * k + l] * right[l];
                sum *= p->alpha;
                if (p->beta != 0) sum += p->beta * load(p->c_at, c + i + j * (uint64_t)p->c.leading, p->c.type, false);
                store(p->d_at, d + i + j * (uint64_t)p->d.leading, p->d.type, sum);
            }
        }
    }
    free(left);
    free(right);
}

static double nanoseconds(const struct operation *operation, int type, double flops) {
    static const struct { const char *name; double teraflops; } speeds[] = {{"fp64", 60}, {"fp32", 50}, {"tf32", 400}, {"fp16", 800}, {"fp8", 1600}};
    int kind = type == R_64F ? 0 : type == R_32F ? (operation->compute == COMPUTE_TF32 ? 2 : 1) : type == R_8I || type == R_8F_E4M3 ? 4 : 3;
    double teraflops = speeds[kind].teraflops, given, least = mock_number("gemm_microseconds", 3) * 1000;
    char line[128], name[32];
    for (int i = 0; mock_line("gemm_teraflops", i, line, sizeof line); i++)
        if (sscanf(line, "%31s %lf", name, &given) == 2 && !strcmp(name, speeds[kind].name) && given > 0) teraflops = given;
    double time = flops / teraflops / 1000;
    return time > least ? time : least;
}

static double scalar(const void *value, int type) {
    return load(value, 0, type == R_64F ? R_64F : type == R_32I ? R_32I : R_32F, false);
}

API(cublasLtMatmul)(void *handle, struct operation *operation, const void *alpha, const void *a, struct layout *a_layout,
                    const void *b, struct layout *b_layout, const void *beta, const void *c, struct layout *c_layout, void *d,
                    struct layout *d_layout, const uint64_t *algorithm, void *workspace, size_t workspace_bytes, void *stream) {
    static __typeof__(elastico_mock_enqueue) *enqueue;
    uint64_t m, n, k;
    (void)workspace, (void)workspace_bytes;
    FAULT(cublasLtMatmul);
    if (!handle) return NOT_INITIALIZED;
    if (!a || !b || !d || !sizes(operation, a_layout, b_layout, d_layout, &m, &n, &k)) return INVALID_VALUE;
    if (algorithm && algorithm[0] != 0x454c4743) return INVALID_VALUE;
    if (!enqueue) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        enqueue = (__typeof__(enqueue))dlsym(driver ? driver : RTLD_DEFAULT, "elastico_mock_enqueue");
        if (!enqueue) return NOT_INITIALIZED; /* the driver is not the stand-in */
    }
    struct product product = {*operation, *a_layout, *b_layout, *c_layout, *d_layout, a, b, c, d,
                              scalar(alpha, operation->scale), scalar(beta, operation->scale)};
    double flops = 2.0 * (double)m * (double)n * (double)k * d_layout->batch;
    int code = enqueue(stream, "stand_in_gemm", nanoseconds(operation, a_layout->type, flops), run, &product, sizeof product);
    return code ? EXECUTION_FAILED : 0;
}
