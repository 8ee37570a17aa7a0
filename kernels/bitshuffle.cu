// Undo Bitshuffle, for each element width.
//
// Reference: section 5.8. Each thread makes 32 elements from one word of every plane; neighbouring threads read
// neighbouring words, and write whole lines together: a multiple of 1024 elements fills warps. `bytes` are whole blocks
// of `block` bytes, a multiple of that: the stream supplies nothing but bits.

#include "bitshuffle.cuh"

// The word of the first plane for the 32 elements of this thread, and the number of words between planes.
__device__ inline u64 place(u64 thread, u32 width, u32 block, u32 *stride) {
    u32 words = block / width / 32;
    *stride = words;
    // The second half of a 64-bit word has the first elements.
    u32 word = (u32)(thread % words) ^ (width == 8 ? 1 : 0);
    return thread / words * (block / 4) + word;
}

// Warps of a block.
#define WARPS 4u

template <u32 W> __device__ inline void unshuffle(const u32 *src, u32 *dst, u64 bytes, u32 block) {
    __shared__ Quad space[WARPS][8 * W];
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    // Uniform within a warp.
    if (thread >= bytes / (4 * W))
        return;
    u32 stride;
    u64 at = place(thread, W / 8, block, &stride);
    const u32 *plane = src + at + (u64)(W - 1) * stride;
    u32 v[W];
#pragma unroll
    for (u32 q = 0; q < W; q++, plane -= stride)
        v[q] = *plane;
    elements<W>(v);
    Quad own[W / 4];
#pragma unroll
    for (u32 i = 0; i < W / 4; i++)
        own[i] = {v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]};
    put_quads(own, space[threadIdx.x / 32], (Quad *)(dst + thread / 32 * (32 * W)));
}

KERNEL bitshuffle_1(const u32 *src, u32 *dst, u64 bytes, u32 block, u32 *fault) {
    unshuffle<8>(src, dst, bytes, block);
}

KERNEL bitshuffle_2(const u32 *src, u32 *dst, u64 bytes, u32 block, u32 *fault) {
    unshuffle<16>(src, dst, bytes, block);
}

KERNEL bitshuffle_4(const u32 *src, u32 *dst, u64 bytes, u32 block, u32 *fault) {
    unshuffle<32>(src, dst, bytes, block);
}

// Turns the upper and the lower halves of the elements one after the other. Half of the elements are written at a time.
KERNEL bitshuffle_8(const u32 *src, u32 *dst, u64 bytes, u32 block, u32 *fault) {
    __shared__ Quad space[WARPS][256];
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= bytes / 256)
        return;
    u32 stride, lane = threadIdx.x % 32;
    u64 at = place(thread, 8, block, &stride);
    u32 high[32], low[32];
#pragma unroll
    for (u32 q = 0; q < 32; q++) {
        high[q] = src[at + (u64)(31 - q) * stride];
        low[q] = src[at + (u64)(63 - q) * stride];
    }
    elements<32>(high);
    elements<32>(low);
    Quad *quads = space[threadIdx.x / 32], *out = (Quad *)(dst + thread / 32 * 2048);
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 k = 16 * half + 2 * i;
            quads[slot(8 * lane + i)] = {low[k], high[k], low[k + 1], high[k + 1]};
        }
        __syncwarp();
        // Eight quads of every lane's 16.
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            out[(4 * i + lane / 8) * 16 + 8 * half + lane % 8] = quads[slot(32 * i + lane)];
        __syncwarp();
    }
}
