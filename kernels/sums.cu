// Running sums: undo Difference and Lorenzo.
//
// Reference: sections 5.4 and 5.3. Sums restart with every span of elements. A span is divided into parts, one per
// block: the first pass totals the parts, the second one sums those totals, and the last one starts every part with the
// sum before it. Integer sums wrap, so any order gives the same result.
//
// Nothing in the input is used as an index.

#include "common.cuh"

#define THREADS 256u
// Elements summed by a thread, and by a block at a time.
#define OWN 8u
#define TILE (THREADS * OWN)

// The type in which elements are summed.
template <typename E> struct Wide {
    typedef u32 type;
};
template <> struct Wide<u64> {
    typedef u64 type;
};

// The place of part `index` of all spans: parts do not cross spans.
struct Part {
    u64 start, end;
    bool first;

    __device__ Part(u64 index, u64 n, u64 span, u64 part) {
        u64 parts = (span + part - 1) / part, stop = (index / parts + 1) * span;
        first = index % parts == 0;
        start = index / parts * span + index % parts * part;
        end = start + part < stop ? start + part : stop;
        end = end < n ? end : n;
    }
};

// The sum over a block, for its first thread.
template <typename W> __device__ inline W block_sum(W v) {
    __shared__ W ends[THREADS / 32];
    v = warp_scan(v);
    if (threadIdx.x % 32 == 31)
        ends[threadIdx.x / 32] = v;
    __syncthreads();
    W sum = 0;
    for (u32 w = 0; w < THREADS / 32; w++)
        sum += ends[w];
    return sum;
}

// The place of number `i` of a tile: neighbours, and numbers at distance OWN, are in different banks.
template <typename W> __device__ inline u32 kept(u32 i) { return i ^ (i >> (sizeof(W) == 8 ? 4 : 5) & (OWN - 1)); }

// Totals every part.
template <typename E> __device__ inline void totals(const E *src, E *dst, u64 n, u64 span, u64 part, u32 negabinary) {
    Part p(blockIdx.x, n, span, part);
    typename Wide<E>::type sum = 0;
    for (u64 i = p.start + threadIdx.x; i < p.end; i += THREADS)
        sum += negabinary ? from_negabinary(src[i]) : src[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        dst[blockIdx.x] = (E)sum;
}

// The sums in every part, on top of `before` for the preceding part of its span (none with one part per span). With
// `restart` sums also restart after that many elements, a divisor of TILE; a part is then a TILE.
template <typename E>
__device__ inline void sums(const E *src, E *dst, u64 n, u64 span, u64 part, u32 restart, const E *before, u32 negabinary) {
    typedef typename Wide<E>::type W;
    __shared__ W tile[TILE];
    __shared__ W ends[THREADS / 32];
    u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
    Part p(blockIdx.x, n, span, part);
    W carry = p.first ? 0 : before[blockIdx.x - 1];
    for (u64 at = p.start; at < p.end; at += TILE) {
        for (u32 i = t; i < TILE; i += THREADS) {
            E code = at + i < p.end ? src[at + i] : (E)0;
            tile[kept<W>(i)] = negabinary ? from_negabinary(code) : code;
        }
        __syncthreads();
        W own[OWN];
        for (u32 i = 0; i < OWN; i++)
            own[i] = tile[kept<W>(OWN * t + i)] + (i > 0 ? own[i - 1] : 0);
        W upto = warp_scan(own[OWN - 1]);
        if (lane == 31)
            ends[warp] = upto;
        __syncthreads();
        W front = carry + upto - own[OWN - 1];
        for (u32 w = 0; w < THREADS / 32; w++) {
            front += w < warp ? ends[w] : 0;
            carry += ends[w];
        }
        for (u32 i = 0; i < OWN; i++)
            tile[kept<W>(OWN * t + i)] = front + own[i];
        __syncthreads();
        for (u32 i = t; i < TILE && at + i < p.end; i += THREADS) {
            u32 since = restart ? i / restart * restart : 0;
            dst[at + i] = (E)(tile[kept<W>(i)] - (since ? tile[kept<W>(since - 1)] : 0));
        }
        __syncthreads();
    }
}

// Sums along an axis of an array, in place: `len` elements of a line at distances of `lag`; neighbouring threads take
// adjacent lines.
template <typename E> __device__ inline void lines(E *array, u64 lag, u64 len, u64 count) {
    u64 line = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (line >= count)
        return;
    E *at = array + line / lag * lag * len + line % lag;
    E sum = 0;
    for (u64 i = 0; i < len; i++, at += lag) {
        sum += *at;
        *at = sum;
    }
}

// Sums floats in the library's order: one warp per span, in tiles of 32 segments of 16.
template <typename T> __device__ inline void joined(const T *src, T *dst, u64 n, u64 span) {
    // One place of padding after every segment: lanes then read different banks.
    __shared__ T tile[32 * 17];
    u32 lane = threadIdx.x;
    u64 start = blockIdx.x * span, end = start + span < n ? start + span : n;
    T carry = 0;
    for (u64 at = start; at < end; at += 512) {
        for (u32 i = lane; i < 512; i += 32)
            tile[i / 16 * 17 + i % 16] = at + i < end ? src[at + i] : (T)0;
        __syncwarp();
        T own[16];
        T sum = tile[17 * lane];
        for (u32 i = 0; i < 16; i++) {
            own[i] = tile[17 * lane + i];
            sum = i > 0 ? sum + own[i] : sum;
        }
        T upto = warp_scan(sum);
        T local = __shfl_up_sync(FULL, upto, 1);
        for (u32 i = 0; i < 16; i++) {
            local = i > 0 || lane > 0 ? local + own[i] : own[i];
            tile[17 * lane + i] = canonical(local + carry);
        }
        carry = carry + __shfl_sync(FULL, upto, 31);
        __syncwarp();
        for (u32 i = lane; i < 512 && at + i < end; i += 32)
            dst[at + i] = tile[i / 16 * 17 + i % 16];
        __syncwarp();
    }
}

#define INTEGERS(E, NAME)                                                                                             \
    KERNEL totals_##NAME(const E *src, E *dst, u64 n, u64 span, u64 part, u32 negabinary, u32 *fault) {               \
        totals(src, dst, n, span, part, negabinary);                                                                  \
    }                                                                                                                 \
    KERNEL sums_##NAME(const E *src, E *dst, u64 n, u64 span, u64 part, u32 restart, const E *before, u32 negabinary, \
                       u32 *fault) {                                                                                  \
        sums(src, dst, n, span, part, restart, before, negabinary);                                                   \
    }                                                                                                                 \
    KERNEL lines_##NAME(E *array, u64 lag, u64 len, u64 count, u32 *fault) { lines(array, lag, len, count); }

INTEGERS(u8, 1)
INTEGERS(u16, 2)
INTEGERS(u32, 4)
INTEGERS(u64, 8)

KERNEL joined_4(const float *src, float *dst, u64 n, u64 span, u32 *fault) { joined(src, dst, n, span); }
KERNEL joined_8(const double *src, double *dst, u64 n, u64 span, u32 *fault) { joined(src, dst, n, span); }
