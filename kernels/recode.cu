// Undo Zigzag and Negabinary: each thread decodes 16 bytes.
//
// Reference: section 5.7. Bytes after the last whole element are converted too; the result is ignored.

#include "common.cuh"

template <typename E> struct Zigzag {
    __device__ static E decode(E code) { return (E)((code >> 1) ^ (E)(0 - (code & 1))); }
};

template <typename E> struct Negabinary {
    __device__ static E decode(E code) { return from_negabinary(code); }
};

template <typename E> struct alignas(16) Elements {
    E v[16 / sizeof(E)];
};

template <typename E, typename Code> __device__ inline void recode(const Elements<E> *src, Elements<E> *dst, u64 quads) {
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= quads)
        return;
    Elements<E> own = src[at];
#pragma unroll
    for (u32 i = 0; i < 16 / sizeof(E); i++)
        own.v[i] = Code::decode(own.v[i]);
    dst[at] = own;
}

#define WIDTH(E, NAME)                                                                                                \
    KERNEL zigzag_##NAME(const Elements<E> *src, Elements<E> *dst, u64 quads, u32 *fault) {                           \
        recode<E, Zigzag<E>>(src, dst, quads);                                                                        \
    }                                                                                                                 \
    KERNEL negabinary_##NAME(const Elements<E> *src, Elements<E> *dst, u64 quads, u32 *fault) {                       \
        recode<E, Negabinary<E>>(src, dst, quads);                                                                    \
    }

WIDTH(u8, 1)
WIDTH(u16, 2)
WIDTH(u32, 4)
WIDTH(u64, 8)
