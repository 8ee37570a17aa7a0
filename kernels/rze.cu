// RZE undone: a block a chunk.
//
// Reference: section 5.9. `starts` holds where each chunk starts in `src`, with RAW where it is stored as it is, and
// where the last one ends; the host has made them from the size table.

#include "rze.cuh"

KERNEL rze(const u8 *src, u64 size, const u32 *starts, Quad *dst, u64 len, u32 *fault) {
    __shared__ Rze s;
    u32 w = chunk_bytes(blockIdx.x, len);
    if (!rebuild(s, src, size, starts, blockIdx.x, w, fault))
        return;
    Quad *out = dst + (u64)blockIdx.x * (CHUNK / 16);
    for (u32 q = threadIdx.x; q < (w + 15) / 16; q += THREADS)
        out[q] = ((Quad *)s.out)[q];
}
