// Norms and softmax over the columns of each row. A warp has a row of up to 1,024 columns, a block a longer one; very
// long rows (batch norm) are split over blocks, which meet in a small array of partial sums. A row is read twice, the
// second time from a cache.
#ifndef ELASTICO_COMMON
#include "common.cuh"
#endif

#define EPSILON 1.0e-5f

// Which elements of a row a thread has, and how sums over the row are made.
struct Row {
    u64 row;
    u32 first, step;
    float* scratch;

    __device__ inline float sum(float value) const { return scratch ? block_sum(value, scratch) : warp_sum(value); }
    __device__ inline float max(float value) const { return scratch ? block_max(value, scratch) : warp_max(value); }
};

// A warp for each row where `scratch` is null, else a block.
__device__ inline Row row_of(float* scratch) {
    Row row;
    row.scratch = scratch;
    row.row = scratch ? blockIdx.x : (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    row.first = scratch ? threadIdx.x : threadIdx.x & 31u;
    row.step = scratch ? blockDim.x : 32u;
    return row;
}

// The sums that a norm needs: of x and x^2, and backward of dy and dy x.
struct Sums {
    float x, xx, y, yx;
};

template <class T>
__device__ inline Sums sums_of(const T* x, const T* y, u64 begin, u64 end, u64 step) {
    Sums sums = {0, 0, 0, 0};
    for (u64 i = begin; i < end; i += step) {
        const float value = to_float(x[i]);
        sums.x += value;
        sums.xx = fmaf(value, value, sums.xx);
        if (y) {
            const float gradient = to_float(y[i]);
            sums.y += gradient;
            sums.yx = fmaf(gradient, value, sums.yx);
        }
    }
    return sums;
}

// Writes out = (x - mean) / deviation, or its gradient: (dy - mean(dy) - xhat mean(dy xhat)) / deviation.
template <class T>
__device__ inline void apply_norm(const T* x, const T* y, T* out, u64 begin, u64 end, u64 step, Sums sums, u64 columns) {
    const float count = 1.0f / (float)columns;
    const float mean = sums.x * count;
    const float scale = 1.0f / sqrtf(fmaxf(sums.xx * count - mean * mean, 0.0f) + EPSILON);
    const float mean_y = sums.y * count, mean_yx = scale * (sums.yx * count - mean * mean_y);
    for (u64 i = begin; i < end; i += step) {
        const float hat = (to_float(x[i]) - mean) * scale;
        out[i] = from_float<T>(y ? (to_float(y[i]) - mean_y - hat * mean_yx) * scale : hat);
    }
}

template <class T>
__device__ inline void norm(const T* x, const T* y, T* out, u64 rows, u32 columns, float* scratch) {
    const Row row = row_of(scratch);
    if (row.row >= rows) return;
    const u64 begin = row.row * columns + row.first, end = (row.row + 1) * columns;
    Sums sums = sums_of(x, y, begin, end, row.step);
    sums.x = row.sum(sums.x);
    sums.xx = row.sum(sums.xx);
    if (y) {
        sums.y = row.sum(sums.y);
        sums.yx = row.sum(sums.yx);
    }
    apply_norm(x, y, out, begin, end, row.step, sums, columns);
}

// The part of a long row that block y has.
struct Part {
    u64 begin, end;
};

__device__ inline Part part_of(u64 columns) {
    const u64 length = (columns + gridDim.y - 1) / gridDim.y;
    Part part;
    part.begin = blockIdx.y * length < columns ? blockIdx.y * length : columns;
    part.end = part.begin + length < columns ? part.begin + length : columns;
    return part;
}

template <class T>
__device__ inline void norm_partial(const T* x, const T* y, float* partial, u64 columns, float* scratch) {
    const Part part = part_of(columns);
    const u64 row = blockIdx.x * columns;
    Sums sums = sums_of(x, y, row + part.begin + threadIdx.x, row + part.end, blockDim.x);
    sums.x = block_sum(sums.x, scratch);
    sums.xx = block_sum(sums.xx, scratch);
    sums.y = block_sum(sums.y, scratch);
    sums.yx = block_sum(sums.yx, scratch);
    if (threadIdx.x == 0) {
        float* to = partial + ((u64)blockIdx.x * gridDim.y + blockIdx.y) * 4;
        to[0] = sums.x;
        to[1] = sums.xx;
        to[2] = sums.y;
        to[3] = sums.yx;
    }
}

template <class T>
__device__ inline void norm_apply(const T* x, const T* y, T* out, const float* partial, u64 columns) {
    Sums sums = {0, 0, 0, 0};
    const float* from = partial + (u64)blockIdx.x * gridDim.y * 4;
    for (u32 i = 0; i < gridDim.y; ++i, from += 4) {
        sums.x += from[0];
        sums.xx += from[1];
        sums.y += from[2];
        sums.yx += from[3];
    }
    const Part part = part_of(columns);
    const u64 row = blockIdx.x * columns;
    apply_norm(x, y, out, row + part.begin + threadIdx.x, row + part.end, blockDim.x, sums, columns);
}

template <class T>
__device__ inline void softmax(const T* x, T* out, u64 rows, u32 columns, float* scratch) {
    const Row row = row_of(scratch);
    if (row.row >= rows) return;
    const u64 begin = row.row * columns + row.first, end = (row.row + 1) * columns;
    // Maximum and sum in one sweep (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018).
    float most = -3.0e38f, sum = 0.0f;
    for (u64 i = begin; i < end; i += row.step) {
        const float value = to_float(x[i]);
        if (value > most) {
            sum *= expf(most - value);
            most = value;
        }
        sum += expf(value - most);
    }
    const float all = row.max(most);
    sum = row.sum(sum * expf(most - all));
    const float scale = 1.0f / sum;
    for (u64 i = begin; i < end; i += row.step) out[i] = from_float<T>(expf(to_float(x[i]) - all) * scale);
}

// dx = p (dy - sum(dy p)). The result may lie where the gradient lies, which is therefore no pointer to constants.
template <class T>
__device__ inline void softmax_backward(const T* p, T* y, T* out, u64 rows, u32 columns, float* scratch) {
    const Row row = row_of(scratch);
    if (row.row >= rows) return;
    const u64 begin = row.row * columns + row.first, end = (row.row + 1) * columns;
    float sum = 0.0f;
    for (u64 i = begin; i < end; i += row.step) sum = fmaf(to_float(p[i]), to_float(y[i]), sum);
    sum = row.sum(sum);
    for (u64 i = begin; i < end; i += row.step) out[i] = from_float<T>(to_float(p[i]) * (to_float(y[i]) - sum));
}

#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#define FORWARD(T)                                                                                             \
    KERNEL norm_warp_##T(const T* x, T* out, u64 rows, u32 columns) { norm(x, (const T*)0, out, rows, columns, (float*)0); }\
    KERNEL norm_block_##T(const T* x, T* out, u64 rows, u32 columns) {                                         \
        __shared__ float scratch[8];                                                                           \
        norm(x, (const T*)0, out, rows, columns, scratch);                                                     \
    }                                                                                                          \
    KERNEL norm_partial_##T(const T* x, float* partial, u64 columns) {                                         \
        __shared__ float scratch[8];                                                                           \
        norm_partial(x, (const T*)0, partial, columns, scratch);                                               \
    }                                                                                                          \
    KERNEL norm_apply_##T(const T* x, T* out, const float* partial, u64 columns) {                             \
        norm_apply(x, (const T*)0, out, partial, columns);                                                     \
    }                                                                                                          \
    KERNEL softmax_warp_##T(const T* x, T* out, u64 rows, u32 columns) { softmax(x, out, rows, columns, (float*)0); }\
    KERNEL softmax_block_##T(const T* x, T* out, u64 rows, u32 columns) {                                      \
        __shared__ float scratch[8];                                                                           \
        softmax(x, out, rows, columns, scratch);                                                               \
    }
EACH_FORMAT(FORWARD)

#define BACKWARD(T)                                                                                            \
    KERNEL norm_backward_warp_##T(const T* x, const T* y, T* out, u64 rows, u32 columns) {                     \
        norm(x, y, out, rows, columns, (float*)0);                                                             \
    }                                                                                                          \
    KERNEL norm_backward_block_##T(const T* x, const T* y, T* out, u64 rows, u32 columns) {                    \
        __shared__ float scratch[8];                                                                           \
        norm(x, y, out, rows, columns, scratch);                                                               \
    }                                                                                                          \
    KERNEL norm_backward_partial_##T(const T* x, const T* y, float* partial, u64 columns) {                    \
        __shared__ float scratch[8];                                                                           \
        norm_partial(x, y, partial, columns, scratch);                                                         \
    }                                                                                                          \
    KERNEL norm_backward_apply_##T(const T* x, const T* y, T* out, const float* partial, u64 columns) {        \
        norm_apply(x, y, out, partial, columns);                                                               \
    }                                                                                                          \
    KERNEL softmax_backward_warp_##T(const T* p, T* y, T* out, u64 rows, u32 columns) {                  \
        softmax_backward(p, y, out, rows, columns, (float*)0);                                                 \
    }                                                                                                          \
    KERNEL softmax_backward_block_##T(const T* p, T* y, T* out, u64 rows, u32 columns) {                 \
        __shared__ float scratch[8];                                                                           \
        softmax_backward(p, y, out, rows, columns, scratch);                                                   \
    }
EACH_TRAINED_FORMAT(BACKWARD)
