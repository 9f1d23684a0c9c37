// Pointwise functions and optimisers: memory-bound, four elements for each thread.
#ifndef ELASTICO_COMMON
#include "common.cuh"
#endif

template <class T>
struct Inputs {
    // `first` arrays one after the other at a, then `second` at b, of `elements` each.
    const T* a;
    const T* b;
    u32 first, second;
    u64 elements;

    __device__ inline const T* array(u32 index) const {
        return index < first ? a + index * elements : b + (index - first) * elements;
    }
};

// A weighted sum; where `is_bounded`, then `rounds` multiply-adds and a smooth limit at 2, so that products behind it
// cannot blow up.
__device__ inline float combined(float sum, float first, u32 is_bounded, u32 rounds) {
    if (!is_bounded) return sum;
    for (u32 i = 0; i < rounds; ++i) sum = fmaf(sum, 0.9375f, 0.0625f * first);
    return 2.0f * sum / (1.0f + fabsf(sum));
}

template <class T>
__device__ inline void pointwise(Inputs<T> inputs, T* out, u32 outputs, u32 is_bounded, u32 rounds) {
    const u64 elements = inputs.elements;
    const u64 begin = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (begin >= elements) return;
    const u32 arrays = inputs.first + inputs.second;
    // Arrays stay aligned to four only where their length is a multiple of four.
    const bool is_whole = elements % 4 == 0;
    const u32 width = is_whole || elements - begin >= 4 ? 4u : (u32)(elements - begin);
    float sum[4] = {0, 0, 0, 0}, first[4] = {0, 0, 0, 0};
    for (u32 array = 0; array < arrays; ++array) {
        const T* from = inputs.array(array) + begin;
        Four<T> four;
        if (is_whole) {
            four = *(const Four<T>*)from;
        } else {
            for (u32 i = 0; i < 4; ++i) four.at[i] = from[i < width ? i : 0];
        }
        for (u32 i = 0; i < 4; ++i) {
            const float value = to_float(four.at[i]);
            if (array == 0) first[i] = value;
            sum[i] = fmaf(sum[i], 0.75f, value);
        }
    }
    for (u32 output = 0; output < outputs; ++output) {
        T* to = out + output * elements + begin;
        Four<T> four;
        for (u32 i = 0; i < 4; ++i) {
            const float value = combined(sum[i], first[i], is_bounded, rounds);
            four.at[i] = from_float<T>(output & 1u ? 0.5f * value : value);
        }
        if (is_whole) {
            *(Four<T>*)to = four;
        } else {
            for (u32 i = 0; i < 4; ++i)
                if (i < width) to[i] = four.at[i];
        }
    }
}

#define POINTWISE(T)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                          \
        pointwise_##T(const T* a, u32 first, const T* b, u32 second, T* out, u32 outputs, u64 elements, u32 is_bounded, u32 rounds) { \
        Inputs<T> inputs;                                                                                      \
        inputs.a = a;                                                                                          \
        inputs.b = b;                                                                                          \
        inputs.first = first;                                                                                  \
        inputs.second = second;                                                                                \
        inputs.elements = elements;                                                                            \
        pointwise(inputs, out, outputs, is_bounded, rounds);                                                         \
    }
EACH_FORMAT(POINTWISE)

#if !defined(ONLY) || defined(ONLY_INT8)
// Sums of INT8 products to INT8: `scale` takes a sum to the result in steps.
extern "C" __global__ void __launch_bounds__(256) requantise_int8(const int* sums, int8* out, u64 elements, float scale) {
    const u64 begin = (u64)blockIdx.x * 1024 + threadIdx.x;
    for (u64 i = begin; i < begin + 1024 && i < elements; i += 256)
        out[i] = from_float<int8>((float)sums[i] * scale * INT8_STEP);
}
#endif

// Gradients are clipped, as in most training; this also keeps a stray infinity out of the state.
__device__ inline float clipped(float gradient) { return fminf(fmaxf(gradient, -1.0e4f), 1.0e4f); }

// AdamW without bias correction, whose factors are 1 after the first thousand steps. Formats of 16 bits have a master
// copy of the weights; for FP32 `master` is the weights.
template <class T>
__device__ inline void adam(T* weight, float* master, float* mean, float* square, const T* gradient, u64 elements, float rate) {
    const u64 begin = (u64)blockIdx.x * 1024 + threadIdx.x;
    for (u64 i = begin; i < begin + 1024 && i < elements; i += 256) {
        const float g = clipped(to_float(gradient[i]));
        const float m = fmaf(0.9f, mean[i], 0.1f * g), v = fmaf(0.999f, square[i], 0.001f * g * g);
        const float w = master[i];
        const float next = w - rate * (m / (sqrtf(v) + 1.0e-8f) + 0.01f * w);
        mean[i] = m;
        square[i] = v;
        master[i] = next;
        if (sizeof(T) < 4) weight[i] = from_float<T>(next);
    }
}

#define ADAM(T)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                          \
        adam_##T(T* weight, float* master, float* mean, float* square, const T* gradient, u64 elements, float rate) { \
        adam(weight, master, mean, square, gradient, elements, rate);                                          \
    }
EACH_TRAINED_FORMAT(ADAM)

// SGD with momentum; the update is limited to `rate`, so that a gradient that stays the same cannot carry weights away
// within a campaign.
template <class T>
__device__ inline void momentum(T* weight, float* master, float* velocity, const T* gradient, u64 elements, float rate) {
    const u64 begin = (u64)blockIdx.x * 1024 + threadIdx.x;
    for (u64 i = begin; i < begin + 1024 && i < elements; i += 256) {
        const float v = fmaf(0.9f, velocity[i], clipped(to_float(gradient[i])));
        const float next = master[i] - rate * v / (1.0f + fabsf(v));
        velocity[i] = v;
        master[i] = next;
        if (sizeof(T) < 4) weight[i] = from_float<T>(next);
    }
}

#define MOMENTUM(T)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                          \
        momentum_##T(T* weight, float* master, float* velocity, const T* gradient, u64 elements, float rate) { \
        momentum(weight, master, velocity, gradient, elements, rate);                                          \
    }
EACH_TRAINED_FORMAT(MOMENTUM)
