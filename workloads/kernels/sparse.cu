// Reads and atomic updates of rows of a table at random.
#ifndef ELASTICO_COMMON
#include "common.cuh"
#endif

// Adds up `pooled` rows of the table for each row of the output; a warp has one output row. Where rows are short, groups
// of `lanes` lanes read several rows at once.
template <class T>
__device__ inline void gather(const T* table, const u64* indices, T* out, u64 lookups, u32 pooled, u32 columns, u32 lanes) {
    const u64 output = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (output * pooled >= lookups) return;
    const u32 lane = threadIdx.x & 31u, groups = 32u / lanes, group = lane / lanes;
    const u64 begin = output * pooled;
    const u32 count = lookups - begin < pooled ? (u32)(lookups - begin) : pooled;
    const bool is_whole = columns % 4 == 0;
    const u32 width = is_whole ? 4u : 1u;
    for (u32 base = 0; base < columns; base += lanes * width) {
        const u32 column = base + (lane % lanes) * width;
        float sum[4] = {0, 0, 0, 0};
        if (column < columns) {
#pragma unroll 4
            for (u32 i = group; i < count; i += groups) {
                const T* from = table + indices[begin + i] * columns + column;
                if (is_whole) {
                    const Four<T> four = *(const Four<T>*)from;
                    for (u32 j = 0; j < 4; ++j) sum[j] += to_float(four.at[j]);
                } else {
                    sum[0] += to_float(*from);
                }
            }
        }
        for (u32 offset = lanes; offset < 32; offset <<= 1)
            for (u32 j = 0; j < 4; ++j) sum[j] += __shfl_xor_sync(ALL_LANES, sum[j], (int)offset);
        if (group == 0 && column < columns) {
            T* to = out + output * columns + column;
            if (is_whole) {
                Four<T> four;
                for (u32 j = 0; j < 4; ++j) four.at[j] = from_float<T>(sum[j]);
                *(Four<T>*)to = four;
            } else {
                *to = from_float<T>(sum[0]);
            }
        }
    }
}

__device__ inline void add_atomically(fp32* table, u64 element, float value) { atomicAdd(table + element, value); }

// No atomic of this width everywhere: exchange the 32-bit word that holds the element until nobody came between.
template <class T>
__device__ inline void add_atomically(T* table, u64 element, float value) {
    const u32 bits = 8 * sizeof(T), in_word = 4 / sizeof(T);
    u32* word = (u32*)table + element / in_word;
    const u32 shift = (u32)(element % in_word) * bits, mask = ((1ull << bits) - 1ull) << shift;
    u32 seen = *(volatile u32*)word;
    for (;;) {
        T number;
        number.bits = (seen & mask) >> shift;
        number = from_float<T>(to_float(number) + value);
        const u32 next = ((u32)number.bits << shift) & mask;
        const u32 found = atomicCAS(word, seen, (seen & ~mask) | next);
        if (found == seen) return;
        seen = found;
    }
}

#if defined(__CUDA_ARCH__)
// Two neighbours in one reduction.
__device__ inline void add_pair(fp16* to, float low, float high) {
    const u32 two = (u32)from_float<fp16>(low).bits | ((u32)from_float<fp16>(high).bits << 16);
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(to), "r"(two) : "memory");
}
#if __CUDA_ARCH__ >= 900
__device__ inline void add_pair(bf16* to, float low, float high) {
    const u32 two = (u32)from_float<bf16>(low).bits | ((u32)from_float<bf16>(high).bits << 16);
    asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(to), "r"(two) : "memory");
}
#endif
#endif
template <class T>
__device__ inline void add_pair(T* to, float low, float high) {
    // The table starts on a word, so that its address tells where in a word an element lies.
    T* word = (T*)((u64)to & ~3ull);
    add_atomically(word, (u64)(to - word), low);
    add_atomically(word, (u64)(to - word) + 1, high);
}

// Adds rows of `updates` (row u of the update is row u % available of the array) to rows of the table; a warp has one.
// Every other step subtracts what the one before added, so that a table stays as it is over a campaign. state[0] counts
// the steps, state[1] the blocks that are done.
template <class T>
__device__ inline void scatter(T* table, const u64* indices, const T* updates, u64 count, u64 available, u32 columns, float rate, u32* state) {
    const u64 update = (u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (state[0] & 1u) rate = -rate;
    if (update < count) {
        const T* from = updates + (update % available) * columns;
        T* to = table + indices[update] * columns;
        const u32 lane = threadIdx.x & 31u;
        if (columns % 2 == 0 && sizeof(T) == 2) {
            for (u32 i = 2 * lane; i < columns; i += 64)
                add_pair(to + i, rate * to_float(from[i]), rate * to_float(from[i + 1]));
        } else {
            for (u32 i = lane; i < columns; i += 32)
                add_atomically(table, indices[update] * columns + i, rate * to_float(from[i]));
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(state + 1, 1u) == gridDim.x - 1) {
            state[0] += 1;
            state[1] = 0;
        }
    }
}

#define GATHER(T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                          \
        gather_##T(const T* table, const u64* indices, T* out, u64 lookups, u32 pooled, u32 columns, u32 lanes) { \
        gather(table, indices, out, lookups, pooled, columns, lanes);                                          \
    }
EACH_FORMAT(GATHER)

#define SCATTER(T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                          \
        scatter_##T(T* table, const u64* indices, const T* updates, u64 count, u64 available, u32 columns, float rate, u32* state) { \
        scatter(table, indices, updates, count, available, columns, rate, state);                              \
    }
EACH_TRAINED_FORMAT(SCATTER)
