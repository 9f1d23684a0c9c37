// Loops that press one resource each.
#ifndef ELASTICO_COMMON
#include "common.cuh"
#endif

#define KERNEL extern "C" __global__ void

// ---- memory ---------------------------------------------------------------------------------------------------

// A sweep that carries on from step to step: position[0] is where it stands, position[1] counts the blocks that are done.
struct Sweep {
    u64 at, step, length;

    __device__ inline void next() {
        at += step;
        if (at >= length) at -= length;
    }
};

__device__ inline Sweep sweep(const u64* position, u64 length) {
    const u64 threads = (u64)gridDim.x * blockDim.x;
    Sweep sweep;
    sweep.length = length;
    sweep.step = threads % length;
    sweep.at = (position[0] + (u64)blockIdx.x * blockDim.x + threadIdx.x) % length;
    return sweep;
}

// Every block has read the position before the last one moves it.
__device__ inline void finish_sweep(u64* position, u64 moved, u64 length) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(position + 1, 1ull) == gridDim.x - 1) {
            position[0] = (position[0] + moved) % length;
            position[1] = 0;
        }
    }
}

// How many of `total` words this thread has.
__device__ inline u64 share(u64 total) {
    const u64 threads = (u64)gridDim.x * blockDim.x, thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    return total / threads + (thread < total % threads ? 1 : 0);
}

template <bool STREAMING>
__device__ inline void read(const Words* from, u64 length, u64 moved, u64* position, float* sink) {
    Sweep at = sweep(position, length);
    float sum[4] = {0, 0, 0, 0};
    u64 left = share(moved);
    // Four loads on their way for each thread.
    for (; left >= 4; left -= 4) {
        Words words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            words[i] = STREAMING ? load_streaming(from + at.at) : load_from_l2(from + at.at);
            at.next();
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[j] += bits_to_float(words[i].at[j]);
    }
    for (; left > 0; --left, at.next()) {
        const Words words = load_streaming(from + at.at);
        for (int j = 0; j < 4; ++j) sum[j] += bits_to_float(words.at[j]);
    }
    // Each thread keeps what it read, so that no load can be left out.
    sink[(u64)blockIdx.x * blockDim.x + threadIdx.x] = sum[0] + sum[1] + sum[2] + sum[3];
    finish_sweep(position, moved, length);
}

KERNEL __launch_bounds__(256) stream_read(const Words* from, u64 length, u64 moved, u64* position, float* sink) {
    read<true>(from, length, moved, position, sink);
}

KERNEL __launch_bounds__(256) cyclic_read(const Words* from, u64 length, u64 moved, u64* position, float* sink) {
    read<false>(from, length, moved, position, sink);
}

KERNEL __launch_bounds__(256) stream_write(Words* to, u64 length, u64 moved, u64* position) {
    Sweep at = sweep(position, length);
    // Numbers in 1..2 that differ from place to place.
    for (u64 left = share(moved); left > 0; --left, at.next()) {
        const u32 noise = (u32)at.at * 0x9e3779b9u;
        Words words;
        for (u32 j = 0; j < 4; ++j) words.at[j] = 0x3f800000u | ((noise ^ (j << 20)) >> 9);
        store_streaming(to + at.at, words);
    }
    finish_sweep(position, moved, length);
}

KERNEL __launch_bounds__(256) stream_copy(Words* to, const Words* from, u64 length, u64 moved, u64* position) {
    Sweep at = sweep(position, length);
    u64 left = share(moved);
    for (; left >= 4; left -= 4) {
        Words words[4];
        u64 place[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            place[i] = at.at;
            words[i] = load_streaming(from + at.at);
            at.next();
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) store_streaming(to + place[i], words[i]);
    }
    for (; left > 0; --left, at.next()) store_streaming(to + at.at, load_streaming(from + at.at));
    finish_sweep(position, moved, length);
}

// a = b + x c
KERNEL __launch_bounds__(256) stream_triad(Words* a, const Words* b, const Words* c, float x, u64 length, u64 moved, u64* position) {
    Sweep at = sweep(position, length);
    u64 left = share(moved);
    for (; left >= 2; left -= 2) {
        Words words[2], more[2];
        u64 place[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            place[i] = at.at;
            words[i] = load_streaming(b + at.at);
            more[i] = load_streaming(c + at.at);
            at.next();
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                words[i].at[j] = float_to_bits(fmaf(x, bits_to_float(more[i].at[j]), bits_to_float(words[i].at[j])));
            store_streaming(a + place[i], words[i]);
        }
    }
    for (; left > 0; --left, at.next()) {
        Words words = load_streaming(b + at.at);
        const Words more = load_streaming(c + at.at);
        for (int j = 0; j < 4; ++j)
            words.at[j] = float_to_bits(fmaf(x, bits_to_float(more.at[j]), bits_to_float(words.at[j])));
        store_streaming(a + at.at, words);
    }
    finish_sweep(position, moved, length);
}

// Additions spread evenly over addresses a sector apart. The reduction is spelled out, because a compiler adds up the
// lanes of a warp that meet on one address.
__device__ inline void reduce_add(u32* at, u32 value) {
#ifdef __CUDA_ARCH__
    asm volatile("red.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
#else
    atomicAdd(at, value);
#endif
}

KERNEL __launch_bounds__(256) atomics(u32* counters, u64 updates, u64 addresses) {
    const u64 begin = (u64)blockIdx.x * 1024 + threadIdx.x;
    for (u64 i = begin; i < begin + 1024 && i < updates; i += 256) reduce_add(counters + (i % addresses) * 8, 1u);
}

// ---- registers ------------------------------------------------------------------------------------------------

// Pairs of numbers that turn: x -= s y, y += s x. The map keeps areas, so that values neither grow, vanish nor settle
// for any number of rounds. Each multiply-add is one of the pipe's; pairs do not depend on each other.
#define PAIRS 8

template <class T>
__device__ inline T turned(T* sink, u64 rounds, T angle) {
    T x[PAIRS], y[PAIRS];
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        const u64 bits = mixed(thread, i);
        x[i] = (T)((u32)bits >> 8) * (T)(1.0 / 16777216.0) + (T)0.5;
        y[i] = (T)((u32)(bits >> 32) >> 8) * (T)(1.0 / 16777216.0) - (T)0.5;
    }
#pragma unroll 8
    for (u64 round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            x[i] = fma(-angle, y[i], x[i]);
            y[i] = fma(angle, x[i], y[i]);
        }
    }
    T sum = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) sum += x[i] + y[i];
    sink[thread] = sum;
    return sum;
}

KERNEL fma_fp32(float* sink, u64 rounds, float angle) { turned<float>(sink, rounds, angle); }

KERNEL fma_fp64(double* sink, u64 rounds, double angle) { turned<double>(sink, rounds, angle); }

// Eight independent accumulators of 16 x 8. Every other product is with the negative of A, so that sums stay small. The
// compilers for Hopper and B200 make FP8 products of this form from FP16 ones: only their warpgroup instructions reach the
// FP8 pipe.
#define TILES 8

// Random bits of a format with magnitudes from 1 to 2 (INT8: any step).
__device__ inline u32 random_word(fp16, u32 bits) { return (bits & 0x83ff83ffu) | 0x3c003c00u; }
__device__ inline u32 random_word(bf16, u32 bits) { return (bits & 0x807f807fu) | 0x3f803f80u; }
__device__ inline u32 random_word(fp32, u32 bits) { return (bits & 0x807fe000u) | 0x3f800000u; }
__device__ inline u32 random_word(fp8, u32 bits) { return (bits & 0x87878787u) | 0x38383838u; }
// From -64 to 63, so that the negative exists.
__device__ inline u32 random_word(int8, u32 bits) { return (bits & 0x3f3f3f3fu) | ((bits & 0x40404040u) * 3u & 0xc0c0c0c0u); }

__device__ inline u32 negative_word(fp16, u32 word) { return word ^ 0x80008000u; }
__device__ inline u32 negative_word(bf16, u32 word) { return word ^ 0x80008000u; }
__device__ inline u32 negative_word(fp32, u32 word) { return word ^ 0x80000000u; }
__device__ inline u32 negative_word(fp8, u32 word) { return word ^ 0x80808080u; }
__device__ inline u32 negative_word(int8, u32 word) {
    u32 result = 0;
    for (int i = 0; i < 32; i += 8) result |= ((0u - (word >> i)) & 0xffu) << i;
    return result;
}

template <class T, class Sum>
__device__ inline void tensor(T format, float* sink, u64 rounds) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    u32 plus[4], minus[4], b[TILES][2];
    Sum c[TILES][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        plus[i] = random_word(format, (u32)mixed(thread, i));
        minus[i] = negative_word(format, plus[i]);
    }
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
        for (int i = 0; i < 2; ++i) b[tile][i] = random_word(format, (u32)mixed(thread, 8 + 2 * tile + i));
        for (int i = 0; i < 4; ++i) c[tile][i] = 0;
    }
#pragma unroll 1
    for (u64 round = 0; round < rounds; ++round) {
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) multiply_add(format, c[tile], plus, b[tile]);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) multiply_add(format, c[tile], minus, b[(tile + 1) % TILES]);
    }
    float sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
        for (int i = 0; i < 4; ++i) sum += (float)c[tile][i] * (float)(tile + 1);
    sink[thread] = sum;
}

#define TENSOR(T, SUM) \
    KERNEL tensor_##T(float* sink, u64 rounds) { tensor<T, SUM>(T(), sink, rounds); }
TENSOR(fp16, float)
TENSOR(int8, int)
#if HAS_AMPERE
TENSOR(bf16, float)
KERNEL tensor_tf32(float* sink, u64 rounds) { tensor<fp32, float>(0.0f, sink, rounds); }
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
TENSOR(fp8, float)
#endif

// ---- shared memory, slots, launches ---------------------------------------------------------------------------

__device__ inline u32 load_shared(const u32* from) {
#ifdef __CUDA_ARCH__
    u32 value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"((u32)__cvta_generic_to_shared(from)));
    return value;
#else
    return *from;
#endif
}

// Eight loads in each round. Lane i reads bank i / conflict in row i % conflict, so that exactly `conflict` lanes meet in
// one bank.
KERNEL shared_loads(u32* sink, u64 rounds, u32 conflict) {
    __shared__ u32 bank[1024 + 8 * 32];
    for (u32 i = threadIdx.x; i < 1024 + 8 * 32; i += blockDim.x) bank[i] = (u32)mixed(blockIdx.x, i);
    __syncthreads();
    const u32 lane = threadIdx.x & 31u;
    const u32* from = bank + lane / conflict + 32 * (lane % conflict);
    u32 sum = 0;
#pragma unroll 1
    for (u64 round = 0; round < rounds; ++round) {
        u32 value[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) value[i] = load_shared(from + 32 * i);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += value[i];
    }
    sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Holds its slot, registers and shared memory and does nothing.
KERNEL resident(u64 nanoseconds) {
    const u64 start = global_timer();
#ifdef __CUDA_ARCH__
    while (global_timer() - start < nanoseconds) asm volatile("nanosleep.u32 20000;");
#else
    host_sleep(nanoseconds);
    (void)start;
#endif
}

KERNEL empty() {}
