// Undo RLE: lengths become ends by the sums of sums.cu, and each thread makes 16 bytes of output.
//
// Reference: section 5.5. A block finds its first and last run, and each thread its own between them, by bisection: so
// neither a long run nor many empty ones keep a thread busy.
//
// Checked: that the runs end where the elements do. Then every element has a run.

#include "common.cuh"

#define THREADS 256u

KERNEL rle_lengths(const u32 *lengths, u64 *ends, u64 runs, u32 *fault) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i < runs)
        ends[i] = lengths[i];
}

// The first of the runs `from..to` that ends after `element`; `to` if none does.
__device__ inline u64 find(const u64 *ends, u64 from, u64 to, u64 element) {
    while (from < to) {
        u64 middle = from + (to - from) / 2;
        if (ends[middle] > element)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

// `n` elements from `first` on, of `count` in all.
template <typename E>
__device__ inline void expand(const E *values, const u64 *ends, u64 runs, u64 count, u64 first, u64 n, Quad *dst,
                              u32 *fault) {
    constexpr u32 OWN = 16 / sizeof(E);
    __shared__ u64 range[2];
    if (runs == 0 || ends[runs - 1] != count || first > count || n > count - first) {
        raise(fault);
        return;
    }
    u64 block = (u64)blockIdx.x * THREADS * OWN, rest = n - block;
    if (threadIdx.x % 32 == 0 && threadIdx.x < 64) {
        u64 last = rest < THREADS * OWN ? rest - 1 : THREADS * OWN - 1;
        range[threadIdx.x / 32] = find(ends, 0, runs - 1, first + block + (threadIdx.x ? last : 0));
    }
    __syncthreads();
    u64 at = block + threadIdx.x * OWN;
    if (at >= n)
        return;
    u64 to = range[1], run = find(ends, range[0], to, first + at);
    u64 end = ends[run];
    E value = values[run];
    union {
        E own[OWN];
        Quad quad;
    };
#pragma unroll
    for (u32 i = 0; i < OWN; i++) {
        u64 element = first + at + i;
        if (element >= end && run < to) {
            run++;
            if (ends[run] <= element)
                run = find(ends, run + 1, to, element);
            end = ends[run];
            value = values[run];
        }
        own[i] = value;
    }
    dst[at / OWN] = quad;
}

#define RLE(E, NAME)                                                                                                  \
    KERNEL rle_##NAME(const E *values, const u64 *ends, u64 runs, u64 count, u64 first, u64 n, Quad *dst,             \
                      u32 *fault) {                                                                                   \
        expand(values, ends, runs, count, first, n, dst, fault);                                                      \
    }

RLE(u8, 1)
RLE(u16, 2)
RLE(u32, 4)
