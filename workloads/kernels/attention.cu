// Fused attention: scores are never written to memory. Arrays are [batch, position, head, dimension]; a row (one position)
// may be part of a wider one, as in the output of a product that makes queries, keys and values at once.
#ifndef ELASTICO_COMMON
#include "common.cuh"
#endif

#define NEVER (-1.0e30f)
#define LOG2E 1.4426950408889634f

struct Shape {
    u32 heads, kv_heads, query, context, head_dim, q_row, kv_row, causal;
    float scale;

    // How many keys the query at position `i` sees.
    __device__ inline u32 seen(u32 i) const { return causal ? context - query + i + 1 : context; }
};

#define SHAPE_PARAMETERS u32 heads, u32 kv_heads, u32 query, u32 context, u32 head_dim, u32 q_row, u32 kv_row, u32 causal, float scale
#define SHAPE_VALUE {heads, kv_heads, query, context, head_dim, q_row, kv_row, causal, scale}

// ---- forward on tensor cores ----------------------------------------------------------------------------------
//
// Dao, "FlashAttention-2", 2023: a block has 64 queries, a warp 16 of them; keys and values come in tiles of 64, the next
// keys while the values are multiplied and the values while the scores are.

#if HAS_AMPERE
#define TILE 64

// The format of the products; 8-bit formats are widened, which is exact.
template <class T>
struct Widened {
    typedef T type;
};
template <>
struct Widened<fp8> {
    typedef fp16 type;
};
template <>
struct Widened<int8> {
    typedef fp16 type;
};

__device__ inline u32 pack(fp16, float low, float high) {
#ifdef __CUDA_ARCH__
    u32 two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
#else
    return (u32)from_float<fp16>(low).bits | ((u32)from_float<fp16>(high).bits << 16);
#endif
}

__device__ inline u32 pack(bf16, float low, float high) {
#ifdef __CUDA_ARCH__
    u32 two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
#else
    return (u32)from_float<bf16>(low).bits | ((u32)from_float<bf16>(high).bits << 16);
#endif
}

// Eight elements to shared memory, or zeros.
__device__ inline void stage(u16* to, const fp16* from, bool is_inside) { copy_async(to, from, is_inside); }
__device__ inline void stage(u16* to, const bf16* from, bool is_inside) { copy_async(to, from, is_inside); }
template <class T>
__device__ inline void stage(u16* to, const T* from, bool is_inside) {
    Words words = {{0, 0, 0, 0}};
    if (is_inside) {
        const Four<T> low = *(const Four<T>*)from, high = *(const Four<T>*)(from + 4);
        for (int i = 0; i < 2; ++i) {
            words.at[i] = pack(fp16(), to_float(low.at[2 * i]), to_float(low.at[2 * i + 1]));
            words.at[2 + i] = pack(fp16(), to_float(high.at[2 * i]), to_float(high.at[2 * i + 1]));
        }
    }
    *(Words*)to = words;
}

// 64 rows from `first` on. Rows in shared memory are 16 bytes longer, so that eight of them fall into different banks.
template <class T, int D>
__device__ inline void stage_tile(u16* tile, const T* from, u32 row, u32 first, u32 limit) {
    for (u32 i = threadIdx.x; i < TILE * D / 8; i += 128) {
        const u32 r = i / (D / 8), column = i % (D / 8) * 8;
        const bool is_inside = first + r < limit;
        stage(tile + r * (D + 8) + column, from + (is_inside ? (u64)(first + r) * row + column : 0), is_inside);
    }
    copy_commit();
}

template <class T>
struct alignas(2 * sizeof(T)) Two {
    T at[2];
};

template <class T, int D>
__device__ inline void attention(const T* q, const T* k, const T* v, T* out, Shape shape) {
    typedef typename Widened<T>::type M;
    __shared__ Words key_words[TILE * (D + 8) / 8];
    __shared__ Words value_words[TILE * (D + 8) / 8];
    u16 *keys = (u16*)key_words, *values = (u16*)value_words;
    const u32 lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
    const u32 head = blockIdx.y, kv_head = head / (shape.heads / shape.kv_heads);
    // The longest rows of a masked square first, so that the device fills up with short ones at the end.
    const u32 first = (gridDim.x - 1 - blockIdx.x) * TILE;
    q += (u64)blockIdx.z * shape.query * shape.q_row + head * D;
    k += (u64)blockIdx.z * shape.context * shape.kv_row + kv_head * D;
    v += (u64)blockIdx.z * shape.context * shape.kv_row + kv_head * D;

    u32 query[D / 16][4];
    stage_tile<T, D>(keys, q, shape.q_row, first, shape.query);
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int part = 0; part < D / 16; ++part)
        load_tiles(query[part], keys + (warp * 16 + lane % 16) * (D + 8) + part * 16 + lane / 16 * 8);
    __syncthreads();

    // This thread's two queries, and how many keys they see; queries past the end are like the last.
    u32 position[2], seen[2];
    for (int half = 0; half < 2; ++half) {
        position[half] = first + warp * 16 + lane / 4 + 8 * half;
        seen[half] = shape.seen(position[half] < shape.query ? position[half] : shape.query - 1);
    }
    const u32 last = first + TILE <= shape.query ? first + TILE - 1 : shape.query - 1;
    const u32 tiles = (shape.seen(last) + TILE - 1) / TILE;
    const u32 all_seen = shape.seen(first < shape.query ? first : shape.query - 1);
    const float scale = shape.scale * LOG2E;

    float sum[2] = {0, 0}, most[2] = {NEVER, NEVER}, o[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
        for (int i = 0; i < 4; ++i) o[n][i] = 0.0f;

    stage_tile<T, D>(keys, k, shape.kv_row, 0, shape.context);
    for (u32 tile = 0; tile < tiles; ++tile) {
        stage_tile<T, D>(values, v, shape.kv_row, tile * TILE, shape.context);
        copy_wait<1>();
        __syncthreads();
        float s[TILE / 8][4];
#pragma unroll
        for (int n = 0; n < TILE / 8; ++n)
            for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
#pragma unroll
        for (int part = 0; part < D / 16; ++part)
#pragma unroll
            for (int n = 0; n < TILE / 16; ++n) {
                u32 b[4];
                load_tiles(b, keys + (n * 16 + lane % 8 + lane / 16 * 8) * (D + 8) + part * 16 + lane / 8 % 2 * 8);
                const u32 even[2] = {b[0], b[1]}, odd[2] = {b[2], b[3]};
                multiply_add(M(), s[2 * n], query[part], even);
                multiply_add(M(), s[2 * n + 1], query[part], odd);
            }
        __syncthreads();
        if (tile + 1 < tiles)
            stage_tile<T, D>(keys, k, shape.kv_row, (tile + 1) * TILE, shape.context);
        else
            copy_commit();

        // Online softmax over the four lanes of a row.
        if ((tile + 1) * TILE > all_seen) {
#pragma unroll
            for (int n = 0; n < TILE / 8; ++n)
                for (int i = 0; i < 4; ++i)
                    if (tile * TILE + n * 8 + lane % 4 * 2 + i % 2 >= seen[i / 2]) s[n][i] = NEVER;
        }
        for (int half = 0; half < 2; ++half) {
            float next = most[half];
#pragma unroll
            for (int n = 0; n < TILE / 8; ++n) next = fmaxf(next, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
            next = fmaxf(next, __shfl_xor_sync(ALL_LANES, next, 1));
            next = fmaxf(next, __shfl_xor_sync(ALL_LANES, next, 2));
            const float shrink = exp2f((most[half] - next) * scale);
            most[half] = next;
            float part = 0.0f;
#pragma unroll
            for (int n = 0; n < TILE / 8; ++n)
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    s[n][i] = exp2f((s[n][i] - next) * scale);
                    part += s[n][i];
                }
            sum[half] = sum[half] * shrink + part;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                o[n][2 * half] *= shrink;
                o[n][2 * half + 1] *= shrink;
            }
        }

        copy_wait<1>();
        __syncthreads();
#pragma unroll
        for (int part = 0; part < TILE / 16; ++part) {
            u32 p[4];
            for (int i = 0; i < 4; ++i) p[i] = pack(M(), s[2 * part + i / 2][i % 2 * 2], s[2 * part + i / 2][i % 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < D / 16; ++n) {
                u32 b[4];
                load_tiles_transposed(b, values + (part * 16 + lane % 16) * (D + 8) + n * 16 + lane / 16 * 8);
                const u32 even[2] = {b[0], b[1]}, odd[2] = {b[2], b[3]};
                multiply_add(M(), o[2 * n], p, even);
                multiply_add(M(), o[2 * n + 1], p, odd);
            }
        }
        __syncthreads();
    }

    out += (u64)blockIdx.z * shape.query * shape.heads * D + head * D;
    for (int half = 0; half < 2; ++half) {
        sum[half] += __shfl_xor_sync(ALL_LANES, sum[half], 1);
        sum[half] += __shfl_xor_sync(ALL_LANES, sum[half], 2);
        if (position[half] >= shape.query) continue;
        T* to = out + (u64)position[half] * shape.heads * D + lane % 4 * 2;
        const float share = 1.0f / sum[half];
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
            Two<T> two;
            two.at[0] = from_float<T>(o[n][2 * half] * share);
            two.at[1] = from_float<T>(o[n][2 * half + 1] * share);
            *(Two<T>*)(to + n * 8) = two;
        }
    }
}

#define ATTENTION(T, D)                                                                                        \
    extern "C" __global__ void __launch_bounds__(128)                                                          \
        attention_##D##_##T(const T* q, const T* k, const T* v, T* out, SHAPE_PARAMETERS) {                    \
        const Shape shape = SHAPE_VALUE;                                                                       \
        attention<T, D>(q, k, v, out, shape);                                                                  \
    }
#define ATTENTIONS(T) ATTENTION(T, 64) ATTENTION(T, 128)
#ifndef ONLY
ATTENTIONS(fp16)
ATTENTIONS(bf16)
ATTENTIONS(fp8)
ATTENTIONS(int8)
#elif !defined(ONLY_FP32) && !(defined(ONLY_FP8) && __CUDA_ARCH__ < 890)
EACH_FORMAT(ATTENTIONS)
#endif
#endif

// ---- without tensor cores -------------------------------------------------------------------------------------
//
// A lane has 16 dimensions of a key; a few lanes have a key, and a warp several keys at once. Query rows that share a key
// head (the heads of a group, then neighbouring positions) are taken together, so that a key is read once for all.

#define WIDTH 16
#define WARPS 4
#define WIDEST 256

template <class T>
struct alignas(16) Sixteen {
    T at[WIDTH];
};

// The dimensions of this lane, zeros past the end of a head.
template <class T>
__device__ inline void load_part(float (&to)[WIDTH], const T* head, u32 first, u32 head_dim, bool is_inside) {
    if (is_inside && head_dim % WIDTH == 0 && first < head_dim) {
        const Sixteen<T> part = *(const Sixteen<T>*)(head + first);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) to[i] = to_float(part.at[i]);
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            to[i] = is_inside && first + i < head_dim ? to_float(head[first + i]) : 0.0f;
    }
}

__device__ inline float dot(const float (&a)[WIDTH], const float (&b)[WIDTH]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum = fmaf(a[i], b[i], sum);
    return sum;
}

// How the lanes of a warp are spread over keys.
struct Lanes {
    u32 per_key, keys, key, first;

    __device__ inline explicit Lanes(u32 head_dim) {
        per_key = 1;
        while (per_key * WIDTH < head_dim) per_key <<= 1;
        keys = 32u / per_key;
        key = (threadIdx.x & 31u) / per_key;
        first = (threadIdx.x & 31u) % per_key * WIDTH;
    }

    // Sums over the lanes of a key.
    template <int N>
    __device__ inline void add_lanes(float (&values)[N]) const {
#pragma unroll 1
        for (u32 offset = 1; offset < per_key; offset <<= 1)
#pragma unroll
            for (int i = 0; i < N; ++i) values[i] += __shfl_xor_sync(ALL_LANES, values[i], (int)offset);
    }

    // Sums over the keys of a warp.
    template <int N>
    __device__ inline void add_keys(float (&values)[N]) const {
#pragma unroll 1
        for (u32 offset = per_key; offset < 32; offset <<= 1)
#pragma unroll
            for (int i = 0; i < N; ++i) values[i] += __shfl_xor_sync(ALL_LANES, values[i], (int)offset);
    }

    __device__ inline float most_of_keys(float value) const {
#pragma unroll 1
        for (u32 offset = per_key; offset < 32; offset <<= 1)
            value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, (int)offset));
        return value;
    }
};

// Query row r of a key head: its position and its head.
struct QueryRow {
    u32 position, head;

    __device__ inline QueryRow(const Shape& shape, u32 kv_head, u32 row) {
        const u32 group = shape.heads / shape.kv_heads;
        position = row / group;
        head = kv_head * group + row % group;
    }

    __device__ inline u64 of_q(const Shape& shape, u32 batch) const {
        return ((u64)batch * shape.query + position) * shape.q_row + head * shape.head_dim;
    }

    __device__ inline u64 of_out(const Shape& shape, u32 batch) const {
        return (((u64)batch * shape.query + position) * shape.heads + head) * shape.head_dim;
    }

    __device__ inline u64 of_stats(const Shape& shape, u32 batch) const {
        return ((u64)batch * shape.heads + head) * shape.query + position;
    }
};

#define ROWS 4

template <class T>
__device__ inline void attention_split(const T* q, const T* k, const T* v, T* out, float* partial, Shape shape, u32 splits) {
    __shared__ float merged[WARPS][ROWS][WIDEST + 2];
    const Lanes lanes(shape.head_dim);
    const u32 warp = threadIdx.x >> 5, kv_head = blockIdx.y, batch = blockIdx.z;
    const u32 chunk = blockIdx.x / splits, split = blockIdx.x % splits;
    const u32 rows = shape.query * (shape.heads / shape.kv_heads);
    k += (u64)batch * shape.context * shape.kv_row + kv_head * shape.head_dim;
    v += (u64)batch * shape.context * shape.kv_row + kv_head * shape.head_dim;

    float query[ROWS][WIDTH], o[ROWS][WIDTH], most[ROWS], sum[ROWS];
    u32 seen[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const u32 row = chunk * ROWS + r < rows ? chunk * ROWS + r : rows - 1;
        const QueryRow at(shape, kv_head, row);
        load_part(query[r], q + at.of_q(shape, batch), lanes.first, shape.head_dim, true);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            query[r][i] *= shape.scale * LOG2E;
            o[r][i] = 0.0f;
        }
        seen[r] = shape.seen(at.position);
        most[r] = NEVER;
        sum[r] = 0.0f;
    }

    // With a mask, no row of the chunk sees more than the last.
    const u32 part = (shape.context + splits - 1) / splits;
    const u32 begin = split * part;
    u32 end = begin + part < seen[ROWS - 1] ? begin + part : seen[ROWS - 1];
    for (u32 base = begin; base < end; base += WARPS * lanes.keys) {
        const u32 key = base + warp * lanes.keys + lanes.key;
        const bool is_inside = key < end;
        float key_part[WIDTH], value_part[WIDTH];
        load_part(key_part, k + (u64)(is_inside ? key : 0) * shape.kv_row, lanes.first, shape.head_dim, is_inside);
        load_part(value_part, v + (u64)(is_inside ? key : 0) * shape.kv_row, lanes.first, shape.head_dim, is_inside);
        float scores[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) scores[r] = dot(query[r], key_part);
        lanes.add_lanes(scores);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float score = scores[r];
            const bool is_seen = is_inside && key < seen[r];
            const float next = is_seen ? fmaxf(most[r], score) : most[r];
            const float shrink = exp2f(most[r] - next), weight = is_seen ? exp2f(score - next) : 0.0f;
            most[r] = next;
            sum[r] = fmaf(sum[r], shrink, weight);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) o[r][i] = fmaf(o[r][i], shrink, weight * value_part[i]);
        }
    }

    // The keys of a warp, then the warps of the block.
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float next = lanes.most_of_keys(most[r]), shrink = exp2f(most[r] - next);
        float all[1] = {sum[r] * shrink};
        lanes.add_keys(all);
        if (lanes.key == 0 && lanes.first == 0) {
            merged[warp][r][0] = next;
            merged[warp][r][1] = all[0];
        }
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) o[r][i] *= shrink;
        lanes.add_keys(o[r]);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (lanes.key == 0 && lanes.first + i < shape.head_dim) merged[warp][r][2 + lanes.first + i] = o[r][i];
    }
    __syncthreads();
    // From here on a warp has a row.
    const u32 row = chunk * ROWS + warp;
    float weight[WARPS], next = NEVER, all = 0.0f;
    for (int w = 0; w < WARPS; ++w) next = fmaxf(next, merged[w][warp][0]);
    for (int w = 0; w < WARPS; ++w) {
        weight[w] = exp2f(merged[w][warp][0] - next);
        all += merged[w][warp][1] * weight[w];
    }
    const u64 place = ((((u64)batch * shape.kv_heads + kv_head) * (gridDim.x / splits) + chunk) * splits + split) * ROWS + warp;
    float* to_partial = partial + place * (shape.head_dim + 2);
    const QueryRow at(shape, kv_head, row < rows ? row : rows - 1);
    for (u32 i = threadIdx.x & 31u; i < shape.head_dim; i += 32) {
        float value = 0.0f;
        for (int w = 0; w < WARPS; ++w) value += merged[w][warp][2 + i] * weight[w];
        if (splits > 1)
            to_partial[2 + i] = value;
        else if (row < rows)
            out[at.of_out(shape, batch) + i] = from_float<T>(value / all);
    }
    if (splits > 1 && (threadIdx.x & 31u) == 0) {
        to_partial[0] = next;
        to_partial[1] = all;
    }
}

// The parts of a split context; a warp has a query row.
template <class T>
__device__ inline void attention_combine(const float* partial, T* out, u32 heads, u32 kv_heads, u32 query, u32 head_dim, u32 splits) {
    const Shape shape = {heads, kv_heads, query, 0, head_dim, 0, 0, 0, 0.0f};
    const u32 warp = threadIdx.x >> 5, kv_head = blockIdx.y, batch = blockIdx.z;
    const u32 row = blockIdx.x * ROWS + warp;
    if (row >= query * (heads / kv_heads)) return;
    const u64 first = (((u64)batch * kv_heads + kv_head) * gridDim.x + blockIdx.x) * splits * ROWS + warp;
    const u32 step = ROWS * (head_dim + 2);
    const float* from = partial + first * (head_dim + 2);
    float most = NEVER, all = 0.0f;
    for (u32 split = 0; split < splits; ++split) most = fmaxf(most, from[split * step]);
    for (u32 split = 0; split < splits; ++split) all += from[split * step + 1] * exp2f(from[split * step] - most);
    const QueryRow at(shape, kv_head, row);
    for (u32 i = threadIdx.x & 31u; i < head_dim; i += 32) {
        float value = 0.0f;
        for (u32 split = 0; split < splits; ++split) value += from[split * step + 2 + i] * exp2f(from[split * step] - most);
        out[at.of_out(shape, batch) + i] = from_float<T>(value / all);
    }
}

// ---- backward -------------------------------------------------------------------------------------------------
//
// With p the weights and dp = do v: dv = p do, ds = p (dp - sum(do o)), dq = ds k, dk = ds q. Scores are computed again
// for queries and once more for keys, so that no sum needs an atomic.

#define PAIR 2

template <class T>
__device__ inline void attention_backward_query(const T* q, const T* k, const T* v, const T* o, const T* gradient, T* dq, float* stats, Shape shape) {
    __shared__ float merged[WARPS][PAIR][WIDEST + 2];
    const Lanes lanes(shape.head_dim);
    const u32 warp = threadIdx.x >> 5, kv_head = blockIdx.y, batch = blockIdx.z;
    const u32 rows = shape.query * (shape.heads / shape.kv_heads);
    k += (u64)batch * shape.context * shape.kv_row + kv_head * shape.head_dim;
    v += (u64)batch * shape.context * shape.kv_row + kv_head * shape.head_dim;

    float query[PAIR][WIDTH], grad[PAIR][WIDTH], sum_dq[PAIR][WIDTH], most[PAIR], sum[PAIR], product[PAIR];
    u32 seen[PAIR];
#pragma unroll
    for (int r = 0; r < PAIR; ++r) {
        const u32 row = blockIdx.x * PAIR + r < rows ? blockIdx.x * PAIR + r : rows - 1;
        const QueryRow at(shape, kv_head, row);
        load_part(query[r], q + at.of_q(shape, batch), lanes.first, shape.head_dim, true);
        load_part(grad[r], gradient + at.of_out(shape, batch), lanes.first, shape.head_dim, true);
        load_part(sum_dq[r], o + at.of_out(shape, batch), lanes.first, shape.head_dim, true);
        product[r] = dot(grad[r], sum_dq[r]);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            query[r][i] *= shape.scale * LOG2E;
            sum_dq[r][i] = 0.0f;
        }
        seen[r] = shape.seen(at.position);
        most[r] = NEVER;
        sum[r] = 0.0f;
    }
    lanes.add_lanes(product);
    const u32 end = seen[PAIR - 1];

    // First the sum of the weights of each row.
    for (u32 base = 0; base < end; base += WARPS * lanes.keys) {
        const u32 key = base + warp * lanes.keys + lanes.key;
        float key_part[WIDTH];
        load_part(key_part, k + (u64)(key < end ? key : 0) * shape.kv_row, lanes.first, shape.head_dim, key < end);
        float scores[PAIR];
#pragma unroll
        for (int r = 0; r < PAIR; ++r) scores[r] = dot(query[r], key_part);
        lanes.add_lanes(scores);
#pragma unroll
        for (int r = 0; r < PAIR; ++r) {
            if (key < seen[r]) {
                const float next = fmaxf(most[r], scores[r]);
                sum[r] = sum[r] * exp2f(most[r] - next) + exp2f(scores[r] - next);
                most[r] = next;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < PAIR; ++r) {
        const float next = lanes.most_of_keys(most[r]);
        sum[r] *= exp2f(most[r] - next);
        if ((threadIdx.x & 31u) == 0) merged[warp][r][0] = next;
    }
    lanes.add_keys(sum);
#pragma unroll
    for (int r = 0; r < PAIR; ++r)
        if ((threadIdx.x & 31u) == 0) merged[warp][r][1] = sum[r];
    __syncthreads();
    float logarithm[PAIR];
#pragma unroll
    for (int r = 0; r < PAIR; ++r) {
        float next = NEVER, all = 0.0f;
        for (int w = 0; w < WARPS; ++w) next = fmaxf(next, merged[w][r][0]);
        for (int w = 0; w < WARPS; ++w) all += merged[w][r][1] * exp2f(merged[w][r][0] - next);
        logarithm[r] = next + log2f(all);
        if (threadIdx.x == 0 && blockIdx.x * PAIR + r < rows) {
            const u64 place = QueryRow(shape, kv_head, blockIdx.x * PAIR + r).of_stats(shape, batch);
            stats[place] = logarithm[r];
            stats[(u64)gridDim.z * shape.heads * shape.query + place] = product[r];
        }
    }
    __syncthreads();

    for (u32 base = 0; base < end; base += WARPS * lanes.keys) {
        const u32 key = base + warp * lanes.keys + lanes.key;
        float key_part[WIDTH], value_part[WIDTH];
        load_part(key_part, k + (u64)(key < end ? key : 0) * shape.kv_row, lanes.first, shape.head_dim, key < end);
        load_part(value_part, v + (u64)(key < end ? key : 0) * shape.kv_row, lanes.first, shape.head_dim, key < end);
        float scores[2 * PAIR];
#pragma unroll
        for (int r = 0; r < PAIR; ++r) {
            scores[r] = dot(query[r], key_part);
            scores[PAIR + r] = dot(grad[r], value_part);
        }
        lanes.add_lanes(scores);
#pragma unroll
        for (int r = 0; r < PAIR; ++r) {
            const float dp = scores[PAIR + r];
            const float ds = key < seen[r] ? exp2f(scores[r] - logarithm[r]) * (dp - product[r]) * shape.scale : 0.0f;
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) sum_dq[r][i] = fmaf(ds, key_part[i], sum_dq[r][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < PAIR; ++r) {
        lanes.add_keys(sum_dq[r]);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (lanes.key == 0 && lanes.first + i < shape.head_dim) merged[warp][r][lanes.first + i] = sum_dq[r][i];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < PAIR * shape.head_dim; i += blockDim.x) {
        const u32 r = i / shape.head_dim, column = i % shape.head_dim, row = blockIdx.x * PAIR + r;
        if (row >= rows) continue;
        float value = 0.0f;
        for (int w = 0; w < WARPS; ++w) value += merged[w][r][column];
        dq[QueryRow(shape, kv_head, row).of_out(shape, batch) + column] = from_float<T>(value);
    }
}

template <class T>
__device__ inline void attention_backward_key(const T* q, const T* k, const T* v, const T* gradient, const float* stats, T* dk, T* dv, Shape shape) {
    __shared__ float merged[WARPS][2 * PAIR][WIDEST];
    // Lanes are spread over query rows here.
    const Lanes lanes(shape.head_dim);
    const u32 warp = threadIdx.x >> 5, kv_head = blockIdx.y, batch = blockIdx.z;
    const u32 rows = shape.query * (shape.heads / shape.kv_heads);
    const u64 keys = (u64)batch * shape.context * shape.kv_row + kv_head * shape.head_dim;

    float key_part[PAIR][WIDTH], value_part[PAIR][WIDTH], sum_dk[PAIR][WIDTH], sum_dv[PAIR][WIDTH];
#pragma unroll
    for (int j = 0; j < PAIR; ++j) {
        const u32 key = blockIdx.x * PAIR + j < shape.context ? blockIdx.x * PAIR + j : shape.context - 1;
        load_part(key_part[j], k + keys + (u64)key * shape.kv_row, lanes.first, shape.head_dim, true);
        load_part(value_part[j], v + keys + (u64)key * shape.kv_row, lanes.first, shape.head_dim, true);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            sum_dk[j][i] = 0.0f;
            sum_dv[j][i] = 0.0f;
        }
    }
    for (u32 base = 0; base < rows; base += WARPS * lanes.keys) {
        const u32 row = base + warp * lanes.keys + lanes.key;
        const bool is_inside = row < rows;
        const QueryRow at(shape, kv_head, is_inside ? row : rows - 1);
        float query[WIDTH], grad[WIDTH];
        load_part(query, q + at.of_q(shape, batch), lanes.first, shape.head_dim, is_inside);
        load_part(grad, gradient + at.of_out(shape, batch), lanes.first, shape.head_dim, is_inside);
        const u64 place = at.of_stats(shape, batch);
        const float logarithm = stats[place], product = stats[(u64)gridDim.z * shape.heads * shape.query + place];
        const u32 seen = shape.seen(at.position);
        float scores[2 * PAIR];
#pragma unroll
        for (int j = 0; j < PAIR; ++j) {
            scores[j] = dot(query, key_part[j]);
            scores[PAIR + j] = dot(grad, value_part[j]);
        }
        lanes.add_lanes(scores);
#pragma unroll
        for (int j = 0; j < PAIR; ++j) {
            const float score = scores[j] * shape.scale * LOG2E, dp = scores[PAIR + j];
            const bool is_seen = is_inside && blockIdx.x * PAIR + j < seen;
            const float p = is_seen ? exp2f(score - logarithm) : 0.0f, ds = p * (dp - product) * shape.scale;
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) {
                sum_dv[j][i] = fmaf(p, grad[i], sum_dv[j][i]);
                sum_dk[j][i] = fmaf(ds, query[i], sum_dk[j][i]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < PAIR; ++j) {
        lanes.add_keys(sum_dk[j]);
        lanes.add_keys(sum_dv[j]);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (lanes.key == 0 && lanes.first + i < shape.head_dim) {
                merged[warp][j][lanes.first + i] = sum_dk[j][i];
                merged[warp][PAIR + j][lanes.first + i] = sum_dv[j][i];
            }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 2 * PAIR * shape.head_dim; i += blockDim.x) {
        const u32 which = i / shape.head_dim, column = i % shape.head_dim, key = blockIdx.x * PAIR + which % PAIR;
        if (key >= shape.context) continue;
        float value = 0.0f;
        for (int w = 0; w < WARPS; ++w) value += merged[w][which][column];
        const u64 place = (((u64)batch * shape.context + key) * shape.kv_heads + kv_head) * shape.head_dim + column;
        (which < PAIR ? dk : dv)[place] = from_float<T>(value);
    }
}

#define KERNEL extern "C" __global__ void __launch_bounds__(128)
#define FORWARD(T)                                                                                             \
    KERNEL attention_split_##T(const T* q, const T* k, const T* v, T* out, float* partial, SHAPE_PARAMETERS, u32 splits) {\
        const Shape shape = SHAPE_VALUE;                                                                       \
        attention_split(q, k, v, out, partial, shape, splits);                                                 \
    }                                                                                                          \
    KERNEL attention_combine_##T(const float* partial, T* out, u32 heads, u32 kv_heads, u32 query, u32 head_dim, u32 splits) {\
        attention_combine(partial, out, heads, kv_heads, query, head_dim, splits);                             \
    }
EACH_FORMAT(FORWARD)

#define BACKWARD(T)                                                                                            \
    KERNEL attention_backward_query_##T(const T* q, const T* k, const T* v, const T* o, const T* gradient, T* dq, float* stats, SHAPE_PARAMETERS) {\
        const Shape shape = SHAPE_VALUE;                                                                       \
        attention_backward_query(q, k, v, o, gradient, dq, stats, shape);                                      \
    }                                                                                                          \
    KERNEL attention_backward_key_##T(const T* q, const T* k, const T* v, const T* gradient, const float* stats, T* dk, T* dv, SHAPE_PARAMETERS) {\
        const Shape shape = SHAPE_VALUE;                                                                       \
        attention_backward_key(q, k, v, gradient, stats, dk, dv, shape);                                       \
    }
EACH_TRAINED_FORMAT(BACKWARD)
