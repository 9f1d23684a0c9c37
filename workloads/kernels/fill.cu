// Initial contents of big buffers, a device clock and a checksum.
#ifndef ELASTICO_COMMON
#include "common.cuh"
#endif

// Four 16-bit numbers add up exactly, so that host and device agree bit for bit.
__device__ inline float normal(u64 bits, float factor) {
    const int sum = (int)(bits & 0xffff) + (int)((bits >> 16) & 0xffff) + (int)((bits >> 32) & 0xffff) + (int)(bits >> 48);
    return (float)(sum - 131070) * factor;
}

template <class T>
__device__ inline void fill_normal(T* out, u64 elements, u64 key, float factor) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += step)
        out[i] = from_float<T>(normal(mixed(key, i), factor));
}

#define FILL_NORMAL(T)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) fill_normal_##T(T* out, u64 elements, u64 key, float factor) { \
        fill_normal(out, elements, key, factor);                                                               \
    }
FILL_NORMAL(fp32)
FILL_NORMAL(fp16)
FILL_NORMAL(bf16)
FILL_NORMAL(fp8)
FILL_NORMAL(int8)

extern "C" __global__ void __launch_bounds__(256) fill_positive_fp32(float* out, u64 elements, u64 key, float largest) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += step)
        out[i] = (float)((u32)(mixed(key, i) >> 40) + 1u) * (largest / 16777216.0f);
}

extern "C" __global__ void __launch_bounds__(256) fill_zero(u32* out, u64 words) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) out[i] = 0;
}

// Writes the device's clock to a slot.
extern "C" __global__ void mark(u64* slots, u32 slot) {
    if (threadIdx.x == 0 && blockIdx.x == 0) slots[slot] = global_timer();
}

// Adds a hash of each word and its place to *sum, in any order.
extern "C" __global__ void __launch_bounds__(256) checksum(const u32* words, u64 count, u64* sum) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    u64 part = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) part += mixed(words[i], i);
    for (int offset = 16; offset > 0; offset >>= 1) part += __shfl_xor_sync(ALL_LANES, part, offset);
    if ((threadIdx.x & 31u) == 0) atomicAdd(sum, part);
}
