// What all kernels share: integer names, number formats, warp sums, and the few instructions that C++ has no word for.
//
// The files are compiled by NVRTC without any include, and by a host C++ compiler behind a header that supplies
// threads and blocks. Each instruction therefore stands in one small function with two bodies; the host bodies
// exchange values between lanes by __shfl_sync alone.
#ifndef ELASTICO_COMMON
#define ELASTICO_COMMON

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Kernels for each number format: KERNELS is a macro of the format's name. On a device each format is a compilation of its
// own (ONLY is its name), so that a worker compiles what it runs.
#ifdef ONLY
#define EACH_OF(KERNELS, T) KERNELS(T)
#define EACH_FORMAT(KERNELS) EACH_OF(KERNELS, ONLY)
#else
#define EACH_FORMAT(KERNELS) KERNELS(fp32) KERNELS(fp16) KERNELS(bf16) KERNELS(fp8) KERNELS(int8)
#endif

// Gradients and optimisers: formats of 8 bits are not trained.
#if !defined(ONLY)
#define EACH_TRAINED_FORMAT(KERNELS) KERNELS(fp32) KERNELS(fp16) KERNELS(bf16)
#elif defined(ONLY_FP8) || defined(ONLY_INT8)
#define EACH_TRAINED_FORMAT(KERNELS)
#else
#define EACH_TRAINED_FORMAT(KERNELS) EACH_FORMAT(KERNELS)
#endif

#define ALL_LANES 0xffffffffu
// Whether the target has the mma, ldmatrix and cp.async forms of Ampere; the host has them all.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define HAS_AMPERE 1
#else
#define HAS_AMPERE 0
#endif

struct alignas(16) Words {
    u32 at[4];
};

// ---- number formats -------------------------------------------------------------------------------------------

typedef float fp32;
struct fp16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
// E4M3 without infinities.
struct fp8 {
    u8 bits;
};
// A step of 1/32.
struct int8 {
    signed char bits;
};
#define INT8_STEP 0.03125f

__device__ inline float bits_to_float(u32 bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
#endif
}

__device__ inline u32 float_to_bits(float value) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(value);
#else
    u32 bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
#endif
}

// Rounds to a float of EXPONENT and MANTISSA bits, to nearest with ties to even.
template <int EXPONENT, int MANTISSA, bool INFINITE>
__device__ inline u32 round_bits(float value) {
    const int bias = (1 << (EXPONENT - 1)) - 1;
    const u32 most = (1u << (EXPONENT + MANTISSA)) - (INFINITE ? (1u << MANTISSA) : 2u);
    const u32 bits = float_to_bits(value);
    const u32 sign = (bits >> 31) << (EXPONENT + MANTISSA);
    const u32 magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | ((1u << (EXPONENT + MANTISSA)) - 1u);
    int power = (int)(magnitude >> 23) - 127;
    if (power < -126) return sign;
    u32 fraction = (magnitude & 0x7fffffu) | 0x800000u;
    int shift = 23 - MANTISSA;
    if (power < 1 - bias) {
        shift += 1 - bias - power;
        power = 1 - bias;
    }
    if (shift > 25) return sign;
    u32 units = fraction >> shift;
    const u32 rest = fraction & ((1u << shift) - 1u), half = 1u << (shift - 1);
    if (rest > half || (rest == half && (units & 1u))) units += 1;
    const u32 code = ((u32)(power + bias - 1) << MANTISSA) + units;
    return sign | (code < most ? code : most);
}

__device__ inline float to_float(fp32 value) { return value; }

__device__ inline float to_float(bf16 value) { return bits_to_float((u32)value.bits << 16); }

__device__ inline float to_float(fp16 value) {
#ifdef __CUDA_ARCH__
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
#else
    const u32 sign = (u32)(value.bits & 0x8000u) << 16, power = (value.bits >> 10) & 31u, fraction = value.bits & 1023u;
    if (power == 31) return bits_to_float(sign | 0x7f800000u | (fraction << 13));
    if (power == 0) {
        const float small = (float)fraction * 5.9604644775390625e-8f;
        return sign ? -small : small;
    }
    return bits_to_float(sign | ((power + 112u) << 23) | (fraction << 13));
#endif
}

__device__ inline float to_float(fp8 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u32 two;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"((u16)value.bits));
    fp16 low;
    low.bits = (u16)two;
    return to_float(low);
#else
    const u32 sign = (u32)(value.bits & 0x80u) << 24, power = (value.bits >> 3) & 15u, fraction = value.bits & 7u;
    if (power == 15 && fraction == 7) return bits_to_float(sign | 0x7fc00000u);
    if (power == 0) {
        const float small = (float)fraction * 0.001953125f;
        return sign ? -small : small;
    }
    return bits_to_float(sign | ((power + 120u) << 23) | (fraction << 20));
#endif
}

__device__ inline float to_float(int8 value) { return (float)value.bits * INT8_STEP; }

template <class T>
__device__ inline T from_float(float value);

template <>
__device__ inline fp32 from_float<fp32>(float value) {
    return value;
}

template <>
__device__ inline fp16 from_float<fp16>(float value) {
    fp16 result;
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
    result.bits = (u16)round_bits<5, 10, true>(value);
#endif
    return result;
}

template <>
__device__ inline bf16 from_float<bf16>(float value) {
    bf16 result;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
    result.bits = (u16)round_bits<8, 7, true>(value);
#endif
    return result;
}

template <>
__device__ inline fp8 from_float<fp8>(float value) {
    fp8 result;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u16 two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(value));
    result.bits = (u8)two;
#else
    result.bits = (u8)round_bits<4, 3, false>(value);
#endif
    return result;
}

template <>
__device__ inline int8 from_float<int8>(float value) {
    int8 result;
    result.bits = (signed char)rintf(fminf(fmaxf(value * (1.0f / INT8_STEP), -127.0f), 127.0f));
    return result;
}

// Four neighbours, moved as one.
template <class T>
struct alignas(4 * sizeof(T)) Four {
    T at[4];
};

// ---- sums over a warp and a block -----------------------------------------------------------------------------

__device__ inline float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(ALL_LANES, value, offset);
    return value;
}

__device__ inline float warp_max(float value) {
    for (int offset = 16; offset > 0; offset >>= 1) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, offset));
    return value;
}

// The sum over a block of at most 32 whole warps, in every thread. `scratch` has one element for each warp.
__device__ inline float block_sum(float value, float* scratch) {
    const u32 warps = blockDim.x >> 5, lane = threadIdx.x & 31u;
    value = warp_sum(value);
    __syncthreads();
    if (lane == 0) scratch[threadIdx.x >> 5] = value;
    __syncthreads();
    return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

__device__ inline float block_max(float value, float* scratch) {
    const u32 warps = blockDim.x >> 5, lane = threadIdx.x & 31u;
    value = warp_max(value);
    __syncthreads();
    if (lane == 0) scratch[threadIdx.x >> 5] = value;
    __syncthreads();
    return warp_max(lane < warps ? scratch[lane] : -3.0e38f);
}

// ---- a random number for each counter -------------------------------------------------------------------------

__device__ inline u64 mixed(u64 key, u64 counter) {
    u64 z = key + counter * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// ---- instructions ---------------------------------------------------------------------------------------------

// Reads that are not kept: evict-first in every cache.
__device__ inline Words load_streaming(const Words* from) {
#ifdef __CUDA_ARCH__
    Words word;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.at[0]), "=r"(word.at[1]), "=r"(word.at[2]), "=r"(word.at[3])
                 : "l"(from));
    return word;
#else
    return *from;
#endif
}

// Reads that go around the first-level cache.
__device__ inline Words load_from_l2(const Words* from) {
#ifdef __CUDA_ARCH__
    Words word;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.at[0]), "=r"(word.at[1]), "=r"(word.at[2]), "=r"(word.at[3])
                 : "l"(from));
    return word;
#else
    return *from;
#endif
}

__device__ inline void store_streaming(Words* to, Words word) {
#ifdef __CUDA_ARCH__
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.at[0]), "r"(word.at[1]),
                 "r"(word.at[2]), "r"(word.at[3])
                 : "memory");
#else
    *to = word;
#endif
}

// Nanoseconds of a clock that all multiprocessors share.
__device__ inline u64 global_timer() {
#ifdef __CUDA_ARCH__
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#else
    return host_nanoseconds();
#endif
}

#if HAS_AMPERE
// Copies 16 bytes to shared memory in the background; zeros where `is_inside` is false, and then `from` is not read.
__device__ inline void copy_async(void* to, const void* from, bool is_inside) {
#ifdef __CUDA_ARCH__
    const u32 address = (u32)__cvta_generic_to_shared(to);
    const int bytes = is_inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
#else
    *(Words*)to = is_inside ? *(const Words*)from : Words{{0, 0, 0, 0}};
#endif
}

__device__ inline void copy_commit() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most PENDING of the latest groups are on their way.
template <int PENDING>
__device__ inline void copy_wait() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}
#endif

// Four 8 x 8 tiles of 16-bit elements: lane i gives the address of row i % 8 of tile i / 8, which is 16-byte aligned.
// Register t of lane i is elements 2 (i % 4) and 2 (i % 4) + 1 of row i / 4 of tile t.
__device__ inline void load_tiles(u32 (&tile)[4], const void* row) {
#ifdef __CUDA_ARCH__
    const u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
                 : "r"(address)
                 : "memory");
#else
    const u32 lane = threadIdx.x & 31u;
    for (u32 t = 0; t < 4; ++t) {
        const u32* words = (const u32*)__shfl_sync(ALL_LANES, (u64)row, (int)(8 * t + lane / 4));
        tile[t] = words[lane % 4];
    }
#endif
}

// As load_tiles, each tile transposed: register t of lane i is rows 2 (i % 4) and 2 (i % 4) + 1 of column i / 4.
__device__ inline void load_tiles_transposed(u32 (&tile)[4], const void* row) {
#ifdef __CUDA_ARCH__
    const u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
                 : "r"(address)
                 : "memory");
#else
    const u32 lane = threadIdx.x & 31u;
    for (u32 t = 0; t < 4; ++t) {
        const u16* even = (const u16*)__shfl_sync(ALL_LANES, (u64)row, (int)(8 * t + 2 * (lane % 4)));
        const u16* odd = (const u16*)__shfl_sync(ALL_LANES, (u64)row, (int)(8 * t + 2 * (lane % 4) + 1));
        tile[t] = (u32)even[lane / 4] | ((u32)odd[lane / 4] << 16);
    }
#endif
}

// ---- matrix multiply-accumulate -------------------------------------------------------------------------------
//
// All forms are the same in 32-bit words: A is 16 rows of 8 words, B 8 columns of 8 words, a word being two 16-bit, one
// TF32 or four 8-bit elements along k. Lane i has of A words i % 4 and i % 4 + 4 of rows i / 4 and i / 4 + 8, of B words
// i % 4 and i % 4 + 4 of column i / 4, of C columns 2 (i % 4) and 2 (i % 4) + 1 of rows i / 4 and i / 4 + 8.

#ifndef __CUDA_ARCH__
inline float dot_word(fp16, u32 a, u32 b) {
    const fp16 a0 = {(u16)a}, a1 = {(u16)(a >> 16)}, b0 = {(u16)b}, b1 = {(u16)(b >> 16)};
    return to_float(a0) * to_float(b0) + to_float(a1) * to_float(b1);
}
inline float dot_word(bf16, u32 a, u32 b) {
    const bf16 a0 = {(u16)a}, a1 = {(u16)(a >> 16)}, b0 = {(u16)b}, b1 = {(u16)(b >> 16)};
    return to_float(a0) * to_float(b0) + to_float(a1) * to_float(b1);
}
// The tensor pipe drops the low 13 bits of a TF32 operand.
inline float dot_word(fp32, u32 a, u32 b) {
    return bits_to_float(a & 0xffffe000u) * bits_to_float(b & 0xffffe000u);
}
inline float dot_word(fp8, u32 a, u32 b) {
    float sum = 0.0f;
    for (int i = 0; i < 32; i += 8) {
        const fp8 x = {(u8)(a >> i)}, y = {(u8)(b >> i)};
        sum += to_float(x) * to_float(y);
    }
    return sum;
}
inline int dot_word(int8, u32 a, u32 b) {
    int sum = 0;
    for (int i = 0; i < 32; i += 8) sum += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
    return sum;
}

template <class T, class Sum>
inline void host_multiply_add(T format, Sum (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    const int row = (int)(threadIdx.x & 31u) / 4, column = 2 * ((int)(threadIdx.x & 31u) % 4);
    for (int t = 0; t < 4; ++t) {
        u32 left[4], right[2][2];
        for (int i = 0; i < 4; ++i) left[i] = __shfl_sync(ALL_LANES, a[i], row * 4 + t);
        for (int j = 0; j < 2; ++j)
            for (int i = 0; i < 2; ++i) right[j][i] = __shfl_sync(ALL_LANES, b[i], (column + j) * 4 + t);
        for (int j = 0; j < 2; ++j) {
            c[j] += dot_word(format, left[0], right[j][0]) + dot_word(format, left[2], right[j][1]);
            c[2 + j] += dot_word(format, left[1], right[j][0]) + dot_word(format, left[3], right[j][1]);
        }
    }
}
#endif

#ifdef __CUDA_ARCH__
#define MULTIPLY_ADD(SHAPE_AND_TYPES, CONSTRAINT)                                                              \
    asm volatile("mma.sync.aligned." SHAPE_AND_TYPES " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : CONSTRAINT(c[0]), CONSTRAINT(c[1]), CONSTRAINT(c[2]), CONSTRAINT(c[3])                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
#define MULTIPLY_ADD(SHAPE_AND_TYPES, CONSTRAINT) host_multiply_add(format, c, a, b)
#endif

#if HAS_AMPERE
__device__ inline void multiply_add(fp16 format, float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    MULTIPLY_ADD("m16n8k16.row.col.f32.f16.f16.f32", "+f");
}
__device__ inline void multiply_add(bf16 format, float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    MULTIPLY_ADD("m16n8k16.row.col.f32.bf16.bf16.f32", "+f");
}
__device__ inline void multiply_add(fp32 format, float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    MULTIPLY_ADD("m16n8k8.row.col.f32.tf32.tf32.f32", "+f");
}
__device__ inline void multiply_add(int8 format, int (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    MULTIPLY_ADD("m16n8k32.row.col.s32.s8.s8.s32", "+r");
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
__device__ inline void multiply_add(fp8 format, float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    MULTIPLY_ADD("m16n8k32.row.col.f32.e4m3.e4m3.f32", "+f");
}
#endif
#elif defined(__CUDA_ARCH__)
// Turing has the half-size forms: two of them make one.
__device__ inline void multiply_add(fp16, float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b[1]));
}
__device__ inline void multiply_add(int8, int (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    for (int half = 0; half < 2; ++half)
        for (int row = 0; row < 2; ++row)
            asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                         : "+r"(c[2 * row]), "+r"(c[2 * row + 1])
                         : "r"(a[2 * half + row]), "r"(b[half]));
}
#endif

#endif
