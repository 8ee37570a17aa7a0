// Chains of stages in one kernel: the stored bytes are read once, and what the chain makes is written once.
//
// Reference: sections 5.9, 5.8, 5.1. A block of 256 threads takes a chunk of RZE, which is a block of Bitshuffle of
// 16384 bytes; with a width of 2 these are the codes of 8 tiles of LorenzoQuant of rank 1. What follows the last full
// block is not shuffled.

#include "bitshuffle.cuh"
#include "lorenzo_quant.cuh"
#include "rze.cuh"

// Where quad `q` of the elements is kept: neighbouring threads write to different banks.
__device__ inline u32 slot(u32 q) { return q ^ (q >> 3 & 7); }

// Turns the planes in `s.out` into elements of W bits, quad by quad in slots.
template <u32 W> __device__ inline void unshuffle(Rze &s, u32 w) {
    // A thread has two words of every plane where these are long, one where they are short; then not all have one.
    constexpr u32 STRIDE = CHUNK / (4 * W), EACH = W < 16 ? 16 / W : 1, ACTIVE = STRIDE / EACH;
    u32 t = threadIdx.x;
    Quad *quads = (Quad *)s.out;
    u32 v[EACH][W];
    if (t < ACTIVE) {
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
#pragma unroll
            for (u32 q = 0; q < W; q++) {
                u32 word = EACH * t + k;
                v[k][q] = s.out[w == CHUNK ? (W - 1 - q) * STRIDE + word : word * W + q];
            }
        }
    }
    __syncthreads();
    if (t < ACTIVE) {
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            // A block that is not full is not shuffled.
            if (w == CHUNK)
                elements<W>(v[k]);
#pragma unroll
            for (u32 i = 0; i < W / 4; i++)
                quads[slot((EACH * t + k) * (W / 4) + i)] = {v[k][4 * i], v[k][4 * i + 1], v[k][4 * i + 2],
                                                             v[k][4 * i + 3]};
        }
    }
    __syncthreads();
}

template <u32 W>
__device__ inline void words(const u8 *src, u64 size, const u32 *starts, Quad *dst, u64 len, u32 *fault) {
    __shared__ Rze s;
    u32 w = chunk_bytes(blockIdx.x, len);
    if (!rebuild(s, src, size, starts, blockIdx.x, w, fault))
        return;
    unshuffle<W>(s, w);
    Quad *out = dst + (u64)blockIdx.x * (CHUNK / 16);
    for (u32 q = threadIdx.x; q < (w + 15) / 16; q += THREADS)
        out[q] = ((Quad *)s.out)[slot(q)];
}

KERNEL rze_bitshuffle_1(const u8 *src, u64 size, const u32 *starts, Quad *dst, u64 len, u32 *fault) {
    words<8>(src, size, starts, dst, len, fault);
}

KERNEL rze_bitshuffle_2(const u8 *src, u64 size, const u32 *starts, Quad *dst, u64 len, u32 *fault) {
    words<16>(src, size, starts, dst, len, fault);
}

KERNEL rze_bitshuffle_4(const u8 *src, u64 size, const u32 *starts, Quad *dst, u64 len, u32 *fault) {
    words<32>(src, size, starts, dst, len, fault);
}

// `len` bytes of codes become `len / 2` elements. Outliers are by tile.
template <typename T>
__device__ inline void line(const u8 *src, u64 size, const u32 *starts, T *dst, u64 len, u32 coding, u32 radius,
                            T scale, Outliers<T> outliers, u32 *fault) {
    // The elements of a chunk that outliers are put into at a time fill the space of the stored bytes and the chunk.
    constexpr u32 TILES = 8, AT_ONCE = sizeof(T) == 4 ? 8 : 4;
    __shared__ Rze s;
    __shared__ T ends[8 * TILES];
    static_assert(AT_ONCE * 1024 * sizeof(T) <= sizeof(s.out) + sizeof(s.body), "outliers need the space");
    u32 w = chunk_bytes(blockIdx.x, len);
    if (!rebuild(s, src, size, starts, blockIdx.x, w, fault))
        return;
    unshuffle<16>(s, w);
    u32 t = threadIdx.x, n = w / 2;
    T v[TILES][4];
#pragma unroll
    for (u32 k = 0; k < TILES; k++) {
        // Four codes are half a quad.
        u32 half = 256 * k + t;
        const u16 *own = (const u16 *)(s.out + 4 * slot(half / 2) + 2 * (half % 2));
        u64 four = *(const u64 *)own;
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            v[k][i] = 4 * half + i < n ? number<T>((u16)(four >> 16 * i), coding, radius) : (T)0;
    }
    u64 tile = (u64)blockIdx.x * TILES;
    u32 tiles = (n + 1023) / 1024;
    if (outliers.in(tile, tiles)) {
        T *base = (T *)s.out;
        for (u32 first = 0; first < TILES; first += AT_ONCE) {
            __syncthreads();
            for (u32 i = t; i < AT_ONCE * 1024; i += THREADS)
                base[i] = 0;
            __syncthreads();
            for (u32 k = first; k < tiles && k < first + AT_ONCE; k++)
                outliers.put(tile + k, base + (k - first) * 1024, 1024, t, THREADS);
            __syncthreads();
#pragma unroll
            for (u32 k = 0; k < TILES; k++) {
                if (k / AT_ONCE * AT_ONCE == first) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++)
                        v[k][i] = base[(k - first) * 1024 + 4 * t + i] + v[k][i];
                }
            }
        }
    }
    sum_lines<T, TILES>(v, ends);
    T *out = dst + tile * 1024;
#pragma unroll
    for (u32 k = 0; k < TILES; k++) {
        u32 at = 1024 * k + 4 * t;
        if (at + 4 <= n) {
            Four<T> four;
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                four.v[i] = canonical(v[k][i] * scale);
            *(Four<T> *)(out + at) = four;
        } else {
            for (u32 i = 0; i < 4 && at + i < n; i++)
                out[at + i] = canonical(v[k][i] * scale);
        }
    }
}

#define CHAIN(T, NAME)                                                                                                \
    KERNEL rze_bitshuffle_2_lorenzo_quant_1_##NAME(const u8 *src, u64 size, const u32 *starts, T *dst, u64 len,       \
                                                   u32 coding, u32 radius, T scale, const u32 *first, const u16 *at,  \
                                                   const T *value, u32 count, u32 *fault) {                           \
        line<T>(src, size, starts, dst, len, coding, radius, scale, {first, at, value, count}, fault);                \
    }

CHAIN(float, f32)
CHAIN(double, f64)
