// Undo Quantizer: each thread makes four elements; then each thread stores one outlier.
//
// Reference: sections 5.2 and 8. Powers of two are taken in 64 bits and rounded once, as the CPU does.
//
// Checked: the position of every outlier.

#include "common.cuh"

// Encodings of values as codes.
#define SIGNED 0u
#define ZIGZAG 1u
#define IN_PLACE 2u
#define RELATIVE 3u

template <typename C> struct View;
template <> struct View<u16> {
    typedef i16 type;
};
template <> struct View<u32> {
    typedef i32 type;
};

template <typename T, u32 N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Some {
    T v[N];
};

__device__ inline float relative(u32 code, float step) {
    if (code == 0)
        return 0;
    code--;
    float bin = (float)(code >> 2);
    float value = (float)exp2((double)((code & 2 ? -bin : bin) * step));
    return code & 1 ? -value : value;
}

__device__ inline float same_bits(u32 bits, float) { return __uint_as_float(bits); }
// Codes are the bits of the values only if both have 32.
__device__ inline double same_bits(u32, double) { return 0; }

template <typename T, typename C> __device__ inline T value(C code, u32 rule, u32 radius, T twice, float step) {
    if (rule == RELATIVE)
        return canonical((T)relative(code, step));
    if (rule == IN_PLACE && (u32)code >> 1 >= radius)
        return same_bits((u32)code, T());
    C number = rule == SIGNED ? code : (C)((code >> 1) ^ (C)(0 - (code & 1)));
    return canonical((T)(typename View<C>::type)number * twice);
}

template <typename T, typename C>
__device__ inline void values(const C *codes, T *dst, u64 n, u32 rule, u32 radius, T twice, float step) {
    u64 at = 4 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
    if (at + 4 <= n) {
        Some<C, 4> own = *(const Some<C, 4> *)(codes + at);
        Some<T, 4> out;
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            out.v[i] = value(own.v[i], rule, radius, twice, step);
        *(Some<T, 4> *)(dst + at) = out;
    } else {
        for (; at < n; at++)
            dst[at] = value(codes[at], rule, radius, twice, step);
    }
}

template <typename E>
__device__ inline void outliers(E *dst, u64 n, const u32 *at, const E *value, u32 count, u32 *fault) {
    u64 j = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= count)
        return;
    if (at[j] < n)
        dst[at[j]] = value[j];
    else
        raise(fault);
}

#define VALUES(T, C, NAME)                                                                                            \
    KERNEL quantizer_##NAME(const C *codes, T *dst, u64 n, u32 rule, u32 radius, T twice, float step, u32 *fault) {   \
        values(codes, dst, n, rule, radius, twice, step);                                                             \
    }
VALUES(float, u16, f32_u16)
VALUES(float, u32, f32_u32)
VALUES(double, u16, f64_u16)
VALUES(double, u32, f64_u32)

KERNEL quantizer_outliers_4(u32 *dst, u64 n, const u32 *at, const u32 *value, u32 count, u32 *fault) {
    outliers(dst, n, at, value, count, fault);
}
KERNEL quantizer_outliers_8(u64 *dst, u64 n, const u32 *at, const u64 *value, u32 count, u32 *fault) {
    outliers(dst, n, at, value, count, fault);
}
