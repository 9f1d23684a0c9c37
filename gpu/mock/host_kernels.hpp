// CUDA C++ for a host compiler: enough of it to run the kernels of workloads/kernels on a CPU, one block after the other.
//
// build.sh compiles each .cu file behind this header and registers its `extern "C" __global__` functions by name, for the
// functional mode of the stand-in driver. The threads of a block are fibers that change places only where they wait for
// each other: __syncthreads, __syncwarp, shuffles and votes. Whatever runs between two waits runs alone, so atomics are
// plain. __CUDA_ARCH__ is not defined; a kernel that speaks PTX has a second body for that case.
//
// Static shared memory works as written; it begins as zeros, which a kernel must not rely on. Dynamic shared memory is
// host_shared(): `extern __shared__` has no host form.
#ifndef ELASTICO_HOST_KERNELS
#define ELASTICO_HOST_KERNELS

#include <math.h>
#include <stddef.h>
#include <string.h>

struct dim3 {
    unsigned x, y, z;
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

#ifndef __global__ // build.sh looks for kernels with a marker in its place
#define __global__
#endif
#define __device__
#define __host__
#define __constant__ static const
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __grid_constant__

// Dynamic shared memory of the block that runs, aligned to 128 bytes.
void* host_shared();
unsigned long long host_nanoseconds();
void host_sleep(unsigned long long nanoseconds);

// Gives `value` to the other lanes of `mask` and waits for theirs; returns where lane l's value is at [l]. Valid until the
// lane's next exchange.
const unsigned long long* host_exchange(unsigned mask, unsigned long long value);

void __syncthreads();
inline void __syncwarp(unsigned mask = 0xffffffffu) { host_exchange(mask, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned nanoseconds) { host_sleep(nanoseconds); }
inline long long clock64() { return (long long)host_nanoseconds(); }
inline unsigned host_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

template <class T>
inline T host_from_lane(unsigned mask, T value, unsigned lane) {
    static_assert(sizeof(T) <= 8, "lanes exchange at most eight bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    const unsigned long long* all = host_exchange(mask, bits);
    if (mask >> lane & 1) memcpy(&value, &all[lane], sizeof value);
    return value;
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    const unsigned lane = host_lane(), first = lane & ~(unsigned)(width - 1);
    return host_from_lane(mask, value, first + ((unsigned)from & (unsigned)(width - 1)));
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const unsigned lane = host_lane(), from = lane ^ (unsigned)bits;
    return host_from_lane(mask, value, from / (unsigned)width <= lane / (unsigned)width ? from : lane);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const unsigned lane = host_lane();
    return host_from_lane(mask, value, lane % (unsigned)width + delta < (unsigned)width ? lane + delta : lane);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    const unsigned lane = host_lane();
    return host_from_lane(mask, value, lane % (unsigned)width >= delta ? lane - delta : lane);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const unsigned long long* all = host_exchange(mask, predicate != 0);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) votes |= (unsigned)all[lane] << lane;
    return votes;
}

inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
    const unsigned long long* all = host_exchange(mask, value);
    unsigned sum = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1) sum += (unsigned)all[lane];
    return sum;
}

// Each returns what was there before.
template <class T, class U>
inline T atomicAdd(T* at, U value) {
    const T old = *at;
    *at = (T)(old + (T)value);
    return old;
}
template <class T, class U>
inline T atomicSub(T* at, U value) {
    const T old = *at;
    *at = (T)(old - (T)value);
    return old;
}
template <class T, class U>
inline T atomicExch(T* at, U value) {
    const T old = *at;
    *at = (T)value;
    return old;
}
template <class T, class U>
inline T atomicMax(T* at, U value) {
    const T old = *at;
    if ((T)value > old) *at = (T)value;
    return old;
}
template <class T, class U>
inline T atomicMin(T* at, U value) {
    const T old = *at;
    if ((T)value < old) *at = (T)value;
    return old;
}
template <class T, class U>
inline T atomicOr(T* at, U value) {
    const T old = *at;
    *at = (T)(old | (T)value);
    return old;
}
template <class T, class U>
inline T atomicAnd(T* at, U value) {
    const T old = *at;
    *at = (T)(old & (T)value);
    return old;
}
template <class T, class U, class V>
inline T atomicCAS(T* at, U compare, V value) {
    const T old = *at;
    if (old == (T)compare) *at = (T)value;
    return old;
}

inline float __int_as_float(int bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline int __float_as_int(float value) {
    int bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __clz(int value) { return value ? __builtin_clz((unsigned)value) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline float __expf(float value) { return expf(value); }
inline float __logf(float value) { return logf(value); }
inline float __sinf(float value) { return sinf(value); }
inline float __cosf(float value) { return cosf(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
template <class T>
inline T __ldg(const T* at) {
    return *at;
}

// ---- registration ---------------------------------------------------------------------------------------------

// One kernel, as the stand-in driver reads it (cuda_module.h).
struct host_kernel {
    const char* name;
    int parameters;
    const unsigned* sizes;
    void (*run)(const unsigned grid[3], const unsigned block[3], unsigned shared, void** arguments);
};

void host_register(const host_kernel& kernel);
void host_run(const unsigned grid[3], const unsigned block[3], unsigned shared, void (*thread)(void** arguments), void** arguments);

template <int... I>
struct host_indices {};
template <int N, int... I>
struct host_count : host_count<N - 1, N - 1, I...> {};
template <int... I>
struct host_count<0, I...> {
    typedef host_indices<I...> type;
};

template <auto function>
struct host_call;
template <class... A, void (*function)(A...)>
struct host_call<function> {
    static constexpr unsigned sizes[sizeof...(A) + 1] = {(unsigned)sizeof(A)..., 0};
    template <int... I>
    static void spread(void** arguments, host_indices<I...>) {
        (void)arguments;
        function(*(A*)arguments[I]...);
    }
    static void thread(void** arguments) { spread(arguments, typename host_count<sizeof...(A)>::type()); }
    static void run(const unsigned grid[3], const unsigned block[3], unsigned shared, void** arguments) {
        host_run(grid, block, shared, thread, arguments);
    }
    explicit host_call(const char* name) { host_register({name, (int)sizeof...(A), sizes, run}); }
};

#define HOST_KERNEL(name) static const host_call<name> host_kernel_##name(#name);

#endif
