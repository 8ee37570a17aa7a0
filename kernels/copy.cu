// Bytes moved to where their first one lies at a multiple of 16. A thread writes one word.

#include "common.cuh"

KERNEL copy(const u8 *src, u8 *dst, u64 n, u32 *fault) {
    u64 at = 4 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
    if (at + 4 <= n) {
        // Little-endian, from four bytes: the source has any alignment.
        *(u32 *)(dst + at) = src[at] | src[at + 1] << 8 | src[at + 2] << 16 | (u32)src[at + 3] << 24;
    } else {
        for (; at < n; at++)
            dst[at] = src[at];
    }
}
