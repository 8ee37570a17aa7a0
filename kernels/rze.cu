// Undo RZE: each block decodes a chunk.
//
// Reference: section 5.9. `starts` has the start of each chunk in `src`, with RAW if it is stored as it is, and the end
// of the last one; the host derives them from the size table.

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
