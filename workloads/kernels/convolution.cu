// The three convolutions of a layer as implicit products C[m,n] = sum over k of A[m,k] B[n,k]: patches are gathered into
// shared memory and never written out. Images are [batch, row, column, channel], filters [out, row, column, in].
#ifndef ELASTICO_COMMON
#include "common.cuh"
#endif

#define TILE 64
// A tile is 16 words deep: 16 TF32 or FP32, 32 16-bit, 64 8-bit elements. Rows are 4 words longer, so that eight of them
// fall into different banks.
#define DEPTH 16
#define PITCH (DEPTH + 4)
#define THREADS 128

// TF32 is FP32 in memory and another instruction.
struct tf32 {
    u32 bits;
};
template <class T>
struct InMemory {
    typedef T type;
};
template <>
struct InMemory<tf32> {
    typedef fp32 type;
};
template <class T>
struct Sum {
    typedef float type;
};
template <>
struct Sum<int8> {
    typedef int type;
};

// Division of numbers below 2^31 by one that stays the same (Granlund & Montgomery, PLDI 1994).
struct Divisor {
    u32 by, factor, shift;

    __device__ inline explicit Divisor(u32 divisor) {
        by = divisor;
        shift = 0;
        while ((1ull << shift) < divisor) ++shift;
        factor = (u32)((((1ull << shift) - divisor) << 32) / divisor + 1);
    }

    __device__ inline u32 quotient(u32 value) const { return ((u32)(((u64)value * factor) >> 32) + value) >> shift; }
};

struct Layer {
    u32 batch, channels_in, channels_out, size, side, kernel, stride;

    // Keeps height and width before the stride.
    __device__ inline u32 padding() const { return (kernel - 1) / 2; }
};

#define LAYER_PARAMETERS u32 batch, u32 channels_in, u32 channels_out, u32 size, u32 side, u32 kernel, u32 stride
#define LAYER_VALUE {batch, channels_in, channels_out, size, side, kernel, stride}

// A place in an image.
struct Pixel {
    u32 image;
    int row, column;
    bool is_inside;
};

struct Pixels {
    u32 count;
    Divisor in_image, in_row;

    __device__ inline Pixels(u32 batch, u32 edge) : count(batch * edge * edge), in_image(edge * edge), in_row(edge) {}

    __device__ inline Pixel at(u32 index, u32 limit) const {
        Pixel pixel;
        pixel.image = in_image.quotient(index);
        const u32 rest = index - pixel.image * in_image.by;
        pixel.row = (int)in_row.quotient(rest);
        pixel.column = (int)(rest - (u32)pixel.row * in_row.by);
        pixel.is_inside = index < limit;
        return pixel;
    }
};

// A place in a filter: row and column, and the channel.
struct Tap {
    int row, column;
    u32 channel, index;
    bool is_inside;
};

struct Taps {
    u32 count;
    Divisor by_channel, by_column;

    __device__ inline Taps(u32 kernel, u32 channels) : count(kernel * kernel * channels), by_channel(channels), by_column(kernel) {}

    __device__ inline Tap at(u32 index) const {
        Tap tap;
        tap.index = by_channel.quotient(index);
        tap.channel = index - tap.index * by_channel.by;
        tap.row = (int)by_column.quotient(tap.index);
        tap.column = (int)tap.index - tap.row * (int)by_column.by;
        tap.is_inside = index < count;
        return tap;
    }
};

// Each operand says where the element for a row of the tile and a depth lies (null for a zero), and which of the two runs
// along memory.

// Element (output pixel, tap) of the input.
template <class T>
struct Patch {
    const T* input;
    Layer layer;
    u32 limit;

    __device__ inline const T* at(const Pixel& pixel, const Tap& tap) const {
        const int row = pixel.row * (int)layer.stride + tap.row - (int)layer.padding();
        const int column = pixel.column * (int)layer.stride + tap.column - (int)layer.padding();
        const bool is_inside = pixel.is_inside && tap.is_inside && (u32)row < layer.size && (u32)column < layer.size;
        return is_inside
                   ? input + (((u64)pixel.image * layer.size + row) * layer.size + column) * layer.channels_in + tap.channel
                   : (const T*)0;
    }
};

// A: patches of the input by output pixel.
template <class T>
struct PatchRows : Patch<T> {
    static const bool ALONG_DEPTH = true;
    Pixels pixels;
    Taps taps;

    __device__ inline PatchRows(const T* input, const Layer& layer)
        : Patch<T>{input, layer, 0}, pixels(layer.batch, layer.side), taps(layer.kernel, layer.channels_in) {}
    __device__ inline Pixel row(u32 index) const { return pixels.at(index, pixels.count); }
    __device__ inline Tap depth(u32 index) const { return taps.at(index); }
    __device__ inline u32 run() const { return this->layer.channels_in; }
};

// B of the filter gradient: the input by tap, the output pixel running along the depth.
template <class T>
struct PatchColumns : Patch<T> {
    static const bool ALONG_DEPTH = false;
    Pixels pixels;
    Taps taps;

    __device__ inline PatchColumns(const T* input, const Layer& layer, u32 end)
        : Patch<T>{input, layer, end}, pixels(layer.batch, layer.side), taps(layer.kernel, layer.channels_in) {}
    __device__ inline Tap row(u32 index) const { return taps.at(index); }
    __device__ inline Pixel depth(u32 index) const { return pixels.at(index, this->limit); }
    __device__ inline const T* at(const Tap& tap, const Pixel& pixel) const { return Patch<T>::at(pixel, tap); }
    __device__ inline u32 run() const { return this->layer.channels_in; }
};

// A of the data gradient: for an input pixel and a tap, the output pixel that saw it there.
template <class T>
struct GradientRows {
    static const bool ALONG_DEPTH = true;
    const T* gradient;
    Layer layer;
    Pixels pixels;
    Taps taps;
    Divisor by_stride;

    __device__ inline GradientRows(const T* gradient, const Layer& layer)
        : gradient(gradient),
          layer(layer),
          pixels(layer.batch, layer.size),
          taps(layer.kernel, layer.channels_out),
          by_stride(layer.stride) {}
    __device__ inline Pixel row(u32 index) const { return pixels.at(index, pixels.count); }
    __device__ inline Tap depth(u32 index) const { return taps.at(index); }
    __device__ inline u32 run() const { return layer.channels_out; }
    __device__ inline const T* at(const Pixel& pixel, const Tap& tap) const {
        const int down = pixel.row + (int)layer.padding() - tap.row, across = pixel.column + (int)layer.padding() - tap.column;
        if (!pixel.is_inside || !tap.is_inside || down < 0 || across < 0) return (const T*)0;
        const u32 row = by_stride.quotient((u32)down), column = by_stride.quotient((u32)across);
        if (row * layer.stride != (u32)down || column * layer.stride != (u32)across || row >= layer.side || column >= layer.side)
            return (const T*)0;
        return gradient + (((u64)pixel.image * layer.side + row) * layer.side + column) * layer.channels_out + tap.channel;
    }
};

// A plain row or column number.
struct Number {
    u32 index;
    bool is_inside;
};

// B: the filter of an output channel, its taps along the depth.
template <class T>
struct FilterRows {
    static const bool ALONG_DEPTH = true;
    const T* filter;
    u32 rows, length;

    __device__ inline FilterRows(const T* filter, const Layer& layer)
        : filter(filter), rows(layer.channels_out), length(layer.kernel * layer.kernel * layer.channels_in) {}
    __device__ inline Number row(u32 index) const { return Number{index, index < rows}; }
    __device__ inline Number depth(u32 index) const { return Number{index, index < length}; }
    __device__ inline u32 run() const { return length; }
    __device__ inline const T* at(const Number& row, const Number& depth) const {
        return row.is_inside && depth.is_inside ? filter + (u64)row.index * length + depth.index : (const T*)0;
    }
};

// B of the data gradient: the filter by input channel, taps and output channels along the depth.
template <class T>
struct FilterColumns {
    static const bool ALONG_DEPTH = false;
    const T* filter;
    u32 channels, area;
    Taps taps;

    __device__ inline FilterColumns(const T* filter, const Layer& layer)
        : filter(filter), channels(layer.channels_in), area(layer.kernel * layer.kernel), taps(layer.kernel, layer.channels_out) {}
    __device__ inline Number row(u32 index) const { return Number{index, index < channels}; }
    __device__ inline Tap depth(u32 index) const { return taps.at(index); }
    __device__ inline u32 run() const { return channels; }
    __device__ inline const T* at(const Number& row, const Tap& tap) const {
        return row.is_inside && tap.is_inside ? filter + ((u64)tap.channel * area + tap.index) * channels + row.index
                                              : (const T*)0;
    }
};

// A of the filter gradient: the gradient by output channel, output pixels along the depth.
template <class T>
struct GradientColumns {
    static const bool ALONG_DEPTH = false;
    const T* gradient;
    u32 channels, end;

    __device__ inline GradientColumns(const T* gradient, const Layer& layer, u32 end)
        : gradient(gradient), channels(layer.channels_out), end(end) {}
    __device__ inline Number row(u32 index) const { return Number{index, index < channels}; }
    __device__ inline Number depth(u32 index) const { return Number{index, index < end}; }
    __device__ inline u32 run() const { return channels; }
    __device__ inline const T* at(const Number& row, const Number& depth) const {
        return row.is_inside && depth.is_inside ? gradient + (u64)depth.index * channels + row.index : (const T*)0;
    }
};

// Moves one operand's tile through registers to shared memory: 256 vectors of 16 bytes, two for each thread.
template <class T, class Source>
struct Mover {
    static const u32 VECTOR = 16 / sizeof(T);
    static const u32 DEEP = DEPTH * 4 / sizeof(T);
    T held[2][VECTOR];

    __device__ static inline u32 row_of(u32 vector) {
        return Source::ALONG_DEPTH ? vector / 4 : vector % (TILE / VECTOR) * VECTOR;
    }
    __device__ static inline u32 depth_of(u32 vector) {
        return Source::ALONG_DEPTH ? vector % 4 * VECTOR : vector / (TILE / VECTOR);
    }

    __device__ inline void fetch(const Source& source, u32 first_row, u32 first_depth) {
        const bool is_whole = source.run() % VECTOR == 0;
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            const u32 vector = threadIdx.x + i * THREADS;
            const u32 row = first_row + row_of(vector), depth = first_depth + depth_of(vector);
            if (is_whole) {
                const T* from = source.at(source.row(row), source.depth(depth));
                Words words = {{0, 0, 0, 0}};
                if (from) words = *(const Words*)from;
                unpack(words, held[i]);
            } else {
#pragma unroll
                for (u32 j = 0; j < VECTOR; ++j) {
                    const T* from = source.at(source.row(row + (Source::ALONG_DEPTH ? 0 : j)),
                                              source.depth(depth + (Source::ALONG_DEPTH ? j : 0)));
                    held[i][j] = from ? *from : T();
                }
            }
        }
    }

    __device__ inline void store(u32* tile) const {
        T* to = (T*)tile;
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            const u32 vector = threadIdx.x + i * THREADS, pitch = PITCH * 4 / sizeof(T);
            const u32 row = row_of(vector), depth = depth_of(vector);
            if (Source::ALONG_DEPTH) {
                *(Words*)(to + row * pitch + depth) = packed(held[i]);
            } else {
#pragma unroll
                for (u32 j = 0; j < VECTOR; ++j) to[(row + j) * pitch + depth] = held[i][j];
            }
        }
    }

    __device__ static inline void unpack(const Words& words, fp32 (&to)[4]) {
        for (int i = 0; i < 4; ++i) to[i] = bits_to_float(words.at[i]);
    }
    __device__ static inline Words packed(const fp32 (&from)[4]) {
        Words words;
        for (int i = 0; i < 4; ++i) words.at[i] = float_to_bits(from[i]);
        return words;
    }
    template <class Small>
    __device__ static inline void unpack(const Words& words, Small (&to)[16 / sizeof(Small)]) {
        const u32 in_word = 4 / sizeof(Small);
#pragma unroll
        for (u32 i = 0; i < 16 / sizeof(Small); ++i) to[i].bits = words.at[i / in_word] >> (i % in_word * 8 * sizeof(Small));
    }
    template <class Small>
    __device__ static inline Words packed(const Small (&from)[16 / sizeof(Small)]) {
        const u32 in_word = 4 / sizeof(Small), mask = (1u << (8 * sizeof(Small))) - 1u;
        Words words = {{0, 0, 0, 0}};
#pragma unroll
        for (u32 i = 0; i < 16 / sizeof(Small); ++i)
            words.at[i / in_word] |= ((u32)from[i].bits & mask) << (i % in_word * 8 * sizeof(Small));
        return words;
    }
};

// What a thread adds up: on tensor cores a warp has 32 x 32 results of the tile, as 2 x 4 products.
template <class Format>
struct Accumulator {
    typename Sum<Format>::type c[2][4][4];

    __device__ inline void clear() {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 4; ++j)
                for (int k = 0; k < 4; ++k) c[i][j][k] = 0;
    }

    __device__ static inline void one(tf32, float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { multiply_add(fp32(), c, a, b); }
    template <class Other, class Number>
    __device__ static inline void one(Other format, Number (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
        multiply_add(format, c, a, b);
    }

    __device__ inline void add(const u32* a_tile, const u32* b_tile) {
        const u32 lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
#pragma unroll
        for (u32 step = 0; step < DEPTH / 8; ++step) {
            u32 a[2][4], b[2][4];
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                load_tiles(a[i], a_tile + (warp % 2 * 32 + i * 16 + lane % 16) * PITCH + step * 8 + lane / 16 * 4);
                load_tiles(b[i], b_tile + (warp / 2 * 32 + i * 16 + lane % 8 + lane / 16 * 8) * PITCH + step * 8 + lane / 8 % 2 * 4);
            }
#pragma unroll
            for (u32 i = 0; i < 2; ++i)
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    const u32 pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                    one(Format(), c[i][j], a[i], pair);
                }
        }
    }

    // Hands each result to `store` with its row and column in the tile.
    template <class Store>
    __device__ inline void each(const Store& store) const {
        const u32 lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
#pragma unroll
            for (u32 j = 0; j < 4; ++j)
#pragma unroll
                for (u32 k = 0; k < 4; ++k)
                    store(warp % 2 * 32 + i * 16 + lane / 4 + k / 2 * 8, warp / 2 * 32 + j * 8 + lane % 4 * 2 + k % 2, (float)c[i][j][k]);
    }
};

// FP32 on the FMA pipe: a thread has 4 x 8 results.
template <>
struct Accumulator<fp32> {
    float c[4][8];

    __device__ inline void clear() {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 8; ++j) c[i][j] = 0.0f;
    }

    __device__ inline void add(const u32* a_tile, const u32* b_tile) {
        const u32 down = threadIdx.x / 8, across = threadIdx.x % 8;
#pragma unroll
        for (u32 k = 0; k < DEPTH; k += 4) {
            Words a[4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) a[i] = *(const Words*)(a_tile + (down + 16 * i) * PITCH + k);
#pragma unroll
            for (u32 j = 0; j < 8; ++j) {
                const Words b = *(const Words*)(b_tile + (across + 8 * j) * PITCH + k);
#pragma unroll
                for (u32 i = 0; i < 4; ++i)
#pragma unroll
                    for (u32 l = 0; l < 4; ++l) c[i][j] = fmaf(bits_to_float(a[i].at[l]), bits_to_float(b.at[l]), c[i][j]);
            }
        }
    }

    template <class Store>
    __device__ inline void each(const Store& store) const {
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
#pragma unroll
            for (u32 j = 0; j < 8; ++j) store(threadIdx.x / 8 + 16 * i, threadIdx.x % 8 + 8 * j, c[i][j]);
    }
};

// Writes row-major results of a format.
template <class T>
struct Result {
    T* out;
    u32 first_row, first_column, rows, columns;
    float scale;

    __device__ inline void operator()(u32 row, u32 column, float value) const {
        row += first_row;
        column += first_column;
        if (row < rows && column < columns) out[(u64)row * columns + column] = from_float<T>(value * scale);
    }
};

// One tile of the product over depths from `begin` to `end`.
template <class Format, class A, class B, class Store>
__device__ inline void product(const A& a, const B& b, u32 begin, u32 end, const Store& store) {
    typedef typename InMemory<Format>::type T;
    __shared__ Words words[2][2][TILE * PITCH / 4];
    Mover<T, A> a_mover;
    Mover<T, B> b_mover;
    Accumulator<Format> sums;
    sums.clear();
    const u32 deep = DEPTH * 4 / sizeof(T);
    a_mover.fetch(a, store.first_row, begin);
    b_mover.fetch(b, store.first_column, begin);
    a_mover.store((u32*)words[0][0]);
    b_mover.store((u32*)words[0][1]);
    __syncthreads();
    u32 current = 0;
    for (u32 depth = begin; depth < end; depth += deep) {
        // The next tile is on its way while this one is multiplied.
        const bool has_next = depth + deep < end;
        if (has_next) {
            a_mover.fetch(a, store.first_row, depth + deep);
            b_mover.fetch(b, store.first_column, depth + deep);
        }
        sums.add((const u32*)words[current][0], (const u32*)words[current][1]);
        if (has_next) {
            a_mover.store((u32*)words[current ^ 1][0]);
            b_mover.store((u32*)words[current ^ 1][1]);
        }
        __syncthreads();
        current ^= 1;
    }
    sums.each(store);
}

// Two blocks at least: left alone the compiler makes room for more and spills.
#define KERNEL(NAME, FORMAT) extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME##_##FORMAT
#define FORWARD(FORMAT)                                                                                    \
    KERNEL(convolution_forward, FORMAT)(const InMemory<FORMAT>::type* input, const InMemory<FORMAT>::type* filter, InMemory<FORMAT>::type* output, LAYER_PARAMETERS, float scale) { \
        typedef InMemory<FORMAT>::type T;                                                                      \
        const Layer layer = LAYER_VALUE;                                                                       \
        const PatchRows<T> a(input, layer);                                                                    \
        const FilterRows<T> b(filter, layer);                                                                  \
        const Result<T> store = {output, blockIdx.x * TILE, blockIdx.y * TILE, a.pixels.count, channels_out, scale}; \
        product<FORMAT>(a, b, 0, a.taps.count, store);                                                         \
    }

#define GRADIENTS(FORMAT)                                                                                      \
    KERNEL(convolution_data, FORMAT)(const InMemory<FORMAT>::type* gradient, const InMemory<FORMAT>::type* filter, InMemory<FORMAT>::type* output, LAYER_PARAMETERS, float scale) { \
        typedef InMemory<FORMAT>::type T;                                                                      \
        const Layer layer = LAYER_VALUE;                                                                       \
        const GradientRows<T> a(gradient, layer);                                                              \
        const FilterColumns<T> b(filter, layer);                                                               \
        const Result<T> store = {output, blockIdx.x * TILE, blockIdx.y * TILE, a.pixels.count, channels_in, scale}; \
        product<FORMAT>(a, b, 0, a.taps.count, store);                                                         \
    }                                                                                                          \
    KERNEL(convolution_filter, FORMAT)(const InMemory<FORMAT>::type* input, const InMemory<FORMAT>::type* gradient, float* partial, LAYER_PARAMETERS, u32 splits) { \
        typedef InMemory<FORMAT>::type T;                                                                      \
        const Layer layer = LAYER_VALUE;                                                                       \
        const u32 pixels = batch * side * side, part = (pixels + splits - 1) / splits;                         \
        const u32 begin = blockIdx.z * part < pixels ? blockIdx.z * part : pixels;                             \
        const u32 end = begin + part < pixels ? begin + part : pixels;                                         \
        const GradientColumns<T> a(gradient, layer, end);                                                      \
        const PatchColumns<T> b(input, layer, end);                                                            \
        const u32 columns = b.taps.count;                                                                      \
        const Result<float> store = {partial + (u64)blockIdx.z * channels_out * columns, blockIdx.x * TILE, blockIdx.y * TILE, channels_out, columns, 1.0f}; \
        product<FORMAT>(a, b, begin, end, store);                                                              \
    }                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) convolution_reduce_##FORMAT(const float* partial, InMemory<FORMAT>::type* out, u64 elements, u32 splits, float scale) { \
        const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;                                              \
        if (i >= elements) return;                                                                             \
        float sum = 0.0f;                                                                                      \
        for (u32 split = 0; split < splits; ++split) sum += partial[split * elements + i];                     \
        out[i] = from_float<InMemory<FORMAT>::type>(sum * scale);                                              \
    }

#if defined(__CUDA_ARCH__) && ((defined(ONLY_FP8) && __CUDA_ARCH__ < 890) || ((defined(ONLY_TF32) || defined(ONLY_BF16)) && __CUDA_ARCH__ < 800))
// This device has no product of the format.
#else
EACH_FORMAT(FORWARD)
EACH_TRAINED_FORMAT(GRADIENTS)
#ifndef ONLY
FORWARD(tf32)
GRADIENTS(tf32)
#endif
#endif
