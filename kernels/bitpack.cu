// Undo Bitpack: each thread unpacks four bytes of elements.
//
// Reference: section 5.6. The number of bits per element is a power of two: a field lies within one byte, or is a whole
// integer.

#include "common.cuh"

// `words` words of elements of `size` bytes; `nbits` bits of each element are stored.
KERNEL bitpack(const u8 *src, u32 *dst, u64 words, u32 size, u32 nbits, u32 *fault) {
    u64 word = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words)
        return;
    u32 count = 4 / size, bits = count * nbits;
    u64 first = word * bits;
    u32 stored;
    if (bits == 32)
        stored = ((const u32 *)src)[word];
    else if (bits == 16)
        stored = ((const u16 *)src)[word];
    else
        stored = src[first / 8] >> (first % 8);
    u32 mask = nbits == 32 ? FULL : (1u << nbits) - 1;
    u32 out = stored & mask;
    for (u32 i = 1; i < count; i++)
        out |= (stored >> (i * nbits) & mask) << (i * 8 * size);
    dst[word] = out;
}
