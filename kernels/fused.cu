// Chains of stages in one kernel: stored bytes are read once, and the result is written once.
//
// Reference: sections 5.9, 5.8, 5.1. A block of 256 threads takes a chunk of RZE, which is a block of Bitshuffle of
// 16384 bytes, and holds whole tiles of LorenzoQuant of rank 1. Bytes after the last full block are not shuffled.

#include "fused_line.cuh"

// Turns the planes in `s.out` into elements of W bits, quad by quad in slots.
template <u32 W> __device__ inline void unshuffle(Rze &s, u32 w) {
    // A thread has two words of every long plane, or one of every short one; then some threads have none.
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
            // A partial block is not shuffled.
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

// Blocks per multiprocessor, as many as fit: five take three quarters of its shared memory.
#define CHAIN(T, C, NAME, BLOCKS)                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) rze_bitshuffle_lorenzo_quant_1_##NAME(              \
        const u8 *src, u64 size, const u32 *starts, T *dst, u64 len, u32 coding, u32 radius, T scale,                 \
        const u32 *first, const u16 *at, const T *value, u32 count, u32 *fault) {                                     \
        line<T, C>(src, size, starts, dst, len, coding, radius, scale, {first, at, value, count}, fault);             \
    }

CHAIN(float, u8, f32_u8, 4)
CHAIN(float, u16, f32_u16, 5)
CHAIN(double, u16, f64_u16, 3)
CHAIN(double, u32, f64_u32, 3)
