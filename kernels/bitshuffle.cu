// Bitshuffle undone, for each width of the elements.
//
// Reference: section 5.8. A thread makes 32 elements out of one word of every plane; neighbours read neighbouring
// words. `bytes` are whole blocks of `block` bytes, which is a multiple of 1024 elements: nothing here comes from the
// stream but bits.

#include "bitshuffle.cuh"

// The word of the first plane, and the number of words from plane to plane, for the 32 elements of this thread.
__device__ inline u64 place(u64 thread, u32 width, u32 block, u32 *stride) {
    u32 words = block / width / 32;
    *stride = words;
    // Words of 64 bits lie with their second half, which has the first elements, behind.
    u32 word = (u32)(thread % words) ^ (width == 8 ? 1 : 0);
    return thread / words * (block / 4) + word;
}

template <u32 W> __device__ inline void unshuffle(const u32 *src, u32 *dst, u64 bytes, u32 block) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= bytes / (4 * W))
        return;
    u32 stride;
    u64 at = place(thread, W / 8, block, &stride);
    u32 v[W];
#pragma unroll
    for (u32 q = 0; q < W; q++)
        v[q] = src[at + (u64)(W - 1 - q) * stride];
    elements<W>(v);
    Quad *out = (Quad *)(dst + thread * W);
#pragma unroll
    for (u32 i = 0; i < W / 4; i++)
        out[i] = {v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]};
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

// The upper and the lower halves of the elements are turned one after the other.
KERNEL bitshuffle_8(const u32 *src, u32 *dst, u64 bytes, u32 block, u32 *fault) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= bytes / 256)
        return;
    u32 stride;
    u64 at = place(thread, 8, block, &stride);
    u32 high[32], low[32];
#pragma unroll
    for (u32 q = 0; q < 32; q++) {
        high[q] = src[at + (u64)(31 - q) * stride];
        low[q] = src[at + (u64)(63 - q) * stride];
    }
    elements<32>(high);
    elements<32>(low);
    Quad *out = (Quad *)(dst + thread * 64);
#pragma unroll
    for (u32 i = 0; i < 16; i++)
        out[i] = {low[2 * i], high[2 * i], low[2 * i + 1], high[2 * i + 1]};
}
