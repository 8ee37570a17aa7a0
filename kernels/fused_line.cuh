// Undo RZE, Bitshuffle and LorenzoQuant of rank 1, from the stored bytes to the elements of a chunk.
//
// Reference: sections 5.9, 5.8, 5.1. The planes of a chunk never leave registers: a thread takes one word of each,
// which makes 32 consecutive codes, and a warp has a tile of 1024. Codes are summed as integers, exactly and thus in
// any order; a tile with sums too large for floats is summed in the library's order.
//
// Codes of 16 bits: a chunk of 16384 bytes is 16 planes of 256 words. Thread t of 256 takes word t of each plane, and
// so has codes 32t to 32t + 31; the 32 threads of a warp have the 1024 codes of a tile.
#pragma once
#include "bitshuffle.cuh"
#include "lorenzo_quant.cuh"
#include "rze.cuh"

// Up to this magnitude, all sums from the start of a tile are exact floats, in any order.
#define EXACT (1u << 23)
// Limit on the outliers of a tile in total: with the codes, which sum to at most 2^30, they fit an integer.
#define ROOM (1ull << 30)

// The number of bits of a small code: the sums of a tile are then exact, and fit an integer.
template <typename T, typename C> __device__ inline constexpr u32 small_bits() {
    return sizeof(C) == 4 ? 20 : sizeof(C) == 2 && sizeof(T) == 4 ? 13 : 8 * sizeof(C);
}

// Converts an integer to a float; for f64 it becomes the lower word, so that an addition replaces the conversion.
__device__ inline float real(i32 n, float) { return (float)n; }
__device__ inline double real(i32 n, double) {
    u64 bits = 0x4330000000000000ull | ((u32)n ^ 0x80000000u);
    return __longlong_as_double((long long)bits) - 4503601774854144.0;
}

// The codes in a word as signed numbers, side by side; decodes ZIGZAG.
template <typename C> __device__ inline u32 signed_codes(u32 word, u32 coding) {
    constexpr u32 BITS = 8 * sizeof(C), ONES = BITS == 8 ? 0x01010101u : BITS == 16 ? 0x00010001u : 1u;
    return coding == ZIGZAG ? (word >> 1 & ~(ONES << (BITS - 1))) ^ (word & ONES) * (u32)(C)~0u : word;
}

// Number `j` of signed_codes().
template <typename C> __device__ inline i32 signed_code(u32 word, u32 j) {
    constexpr u32 BITS = 8 * sizeof(C);
    return (i32)(word << (32 - BITS - BITS * j)) >> (32 - BITS);
}

// Sums a tile in the library's order. `dst` holds its `count` differences, without the `outliers`.
template <typename T>
__device__ inline void in_order(T *dst, u32 count, T scale, u64 tile, Outliers<T> outliers) {
    u32 lane = threadIdx.x % 32;
    __syncwarp();
    outliers.add(tile, dst, count, lane);
    __syncwarp();
    T end = 0;
#pragma unroll 1
    for (u32 w = 0; w < 8; w++) {
        u32 at = 128 * w + 4 * lane;
        T v[4];
        for (u32 i = 0; i < 4; i++) {
            v[i] = at + i < count ? dst[at + i] : (T)0;
            v[i] = i > 0 ? v[i] + v[i - 1] : v[i];
        }
        T before = __shfl_up_sync(FULL, warp_scan(v[3]), 1);
        for (u32 i = 0; i < 4; i++) {
            v[i] = lane > 0 ? v[i] + before : v[i];
            if (at + i < count)
                dst[at + i] = v[i];
        }
        T last = __shfl_sync(FULL, v[3], 31);
        end = lane == w ? last : end;
    }
    end = warp_scan(end, 8);
#pragma unroll 1
    for (u32 w = 0; w < 8; w++) {
        T before = __shfl_sync(FULL, end, (w + 7) % 8);
        for (u32 i = 0; i < 4; i++) {
            u32 at = 128 * w + 4 * lane + i;
            if (at < count)
                dst[at] = canonical((w > 0 ? dst[at] + before : dst[at]) * scale);
        }
    }
}

// Adds the outliers of a tile to its numbers if they are integers, and small in total; returns whether they are.
template <typename T> __device__ inline bool add_whole(const Outliers<T> &outliers, u64 tile, u32 *numbers) {
    u32 lane = threadIdx.x % 32, from = outliers.first[tile] + lane, end = outliers.end(tile);
    u64 load = 0;
#pragma unroll 1
    for (u32 j = from; j < end; j += 32) {
        T value = outliers.value[j];
        bool fits = value >= -(T)ROOM && value <= (T)ROOM;
        i32 n = fits ? (i32)value : 0;
        load += fits && (T)n == value ? (u64)(n < 0 ? 0 - (i64)n : n) : ROOM + 1;
    }
    if (__shfl_sync(FULL, warp_scan(load), 31) > ROOM)
        return false;
#pragma unroll 1
    for (u32 j = from; j < end; j += 32) {
        u32 at = outliers.at[j] & 1023;
        numbers[4 * slot(at / 4) + at % 4] += (u32)(i32)outliers.value[j];
    }
    __syncwarp();
    return true;
}

// Writes the elements of a tile from this thread's sums plus `before`. A warp writes whole lines of 128 bytes from its
// space, 4 KiB at a time.
template <typename T>
__device__ inline void put(const i32 (&sum)[32], i32 before, T *dst, u32 count, u32 *space, T scale) {
    constexpr u32 PARTS = sizeof(T) / 4, OWN = 32 / PARTS, PER = 16 / sizeof(T);
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 part = 0; part < PARTS; part++) {
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            Few<T> few;
#pragma unroll
            for (u32 j = 0; j < PER; j++)
                few.v[j] = real(before + sum[OWN * part + PER * i + j], T()) * scale;
            ((Few<T> *)space)[slot(8 * lane + i)] = few;
        }
        __syncwarp();
        // Quad `lane` of every 32 belongs to lane `lane / 8` of every four.
        T *own = dst + lane / 8 * 32 + OWN * part + lane % 8 * PER;
        u32 at = (u32)(own - dst);
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            Few<T> few = ((Few<T> *)space)[slot(32 * i + lane)];
            if (count == 1024) {
                *(Few<T> *)(own + 128 * i) = few;
            } else {
                for (u32 j = 0; j < PER; j++)
                    if (at + 128 * i + j < count)
                        own[128 * i + j] = few.v[j];
            }
        }
    }
}

// A tile with outliers, with large codes, or with a scale that is not finite; otherwise as hot_tile(). Rare, so it
// works in memory, and takes no more registers than the hot path.
template <typename T, typename C>
__device__ inline void any_tile(const u32 (&words)[8 * sizeof(C)], T *dst, u32 count, u32 *space, u32 coding,
                                u32 radius, T scale, u64 tile, Outliers<T> outliers) {
    constexpr u32 W = 8 * sizeof(C), PER = 4 / sizeof(C);
    u32 lane = threadIdx.x % 32;
    Quad *numbers = (Quad *)space;
    bool small = true;
#pragma unroll
    for (u32 i = 0; PER == 1 && i < W; i++) {
        // Numbers must be at most 2^20; one that wraps is not small.
        i32 own = coding <= ZIGZAG ? (i32)signed_codes<C>(words[i], coding) : (i32)(words[i] - radius);
        bool wraps = coding > ZIGZAG && (words[i] < radius) != (own < 0);
        small &= (u32)(own + (1 << 20)) <= 2u << 20 && !wraps;
    }
    small = __all_sync(FULL, small);
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        Quad four;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 k = 4 * i + j, word = words[k / PER], code = (u32)(C)(word >> 8 * sizeof(C) * (k % PER));
            four.w[j] = coding <= ZIGZAG ? (u32)signed_code<C>(signed_codes<C>(word, coding), k % PER) : code - radius;
            four.w[j] = small ? four.w[j] : code;
        }
        numbers[slot(8 * lane + i)] = four;
    }
    __syncwarp();
    bool added = small && outliers.in(tile, 1) && add_whole(outliers, tile, space);
    bool good = small && scale - scale == 0 && (added || !outliers.in(tile, 1));
    // Modulo 2^32: meaningless for large codes.
    u32 own = 0;
#pragma unroll 1
    for (u32 i = 0; i < 8; i++) {
        Quad four = numbers[slot(8 * lane + i)];
        own += four.w[0] + four.w[1] + four.w[2] + four.w[3];
    }
    u32 before = warp_scan(own) - own;
    own = before;
#pragma unroll 1
    for (u32 i = 0; sizeof(T) == 4 && i < 8; i++) {
        Quad four = numbers[slot(8 * lane + i)];
        for (u32 j = 0; j < 4; j++) {
            own += four.w[j];
            good &= own + EXACT <= 2 * EXACT;
        }
    }
    if (!__all_sync(FULL, good)) {
        // An integral outlier and a code, added as integers, give the same float.
#pragma unroll 1
        for (u32 i = 0; i < 32; i++) {
            u32 n = space[4 * slot(8 * lane + i / 4) + i % 4], at = 32 * lane + i;
            if (at < count)
                dst[at] = small ? (T)(i32)n : number<T>((C)n, coding, radius);
        }
        if (added)
            outliers.count = 0;
        return in_order(dst, count, scale, tile, outliers);
    }
    own = before;
#pragma unroll 1
    for (u32 i = 0; i < 8; i++) {
        Quad four = numbers[slot(8 * lane + i)];
        for (u32 j = 0; j < 4; j++)
            four.w[j] = own += four.w[j];
        numbers[slot(8 * lane + i)] = four;
    }
    __syncwarp();
#pragma unroll 1
    for (u32 i = 0; i < 8; i++) {
        Quad four = numbers[slot(32 * i + lane)];
        for (u32 j = 0; j < 4; j++) {
            u32 at = 128 * i + 4 * lane + j;
            if (at < count)
                dst[at] = real((i32)four.w[j], T()) * scale;
        }
    }
}

// The elements of small codes without outliers; `words` are the 32 codes of this thread.
template <typename T, typename C>
__device__ inline void hot_tile(const u32 (&words)[8 * sizeof(C)], T *dst, u32 count, u32 *space, u32 coding,
                                T scale) {
    constexpr u32 W = 8 * sizeof(C), PER = 4 / sizeof(C);
    i32 sum[32], run = 0;
#pragma unroll
    for (u32 i = 0; i < W; i++) {
        u32 codes = signed_codes<C>(words[i], coding);
#pragma unroll
        for (u32 j = 0; j < PER; j++)
            sum[PER * i + j] = run += signed_code<C>(codes, j);
    }
    put(sum, warp_scan(run) - run, dst, count, space, scale);
}

// Turns `len` bytes of codes into elements. Outliers are by tile.
template <typename T, typename C>
__device__ inline void line(const u8 *src, u64 size, const u32 *starts, T *dst, u64 len, u32 coding, u32 radius,
                            T scale, Outliers<T> outliers, u32 *fault) {
    // Tiles of a chunk, the most tiles of a warp, and words of a plane.
    constexpr u32 W = 8 * sizeof(C), TILES = CHUNK / sizeof(C) / 1024, EACH = TILES > 8 ? TILES / 8 : 1;
    constexpr u32 PLANE = CHUNK / (4 * W);
    __shared__ union {
        Stored stored;
        alignas(16) u32 space[8][1024];
    } s;
    u32 w = chunk_bytes(blockIdx.x, len), head, warp = threadIdx.x / 32;
    u32 kind = find(s.stored, src, size, starts, blockIdx.x, w, head, fault);
    if (kind == BROKEN)
        return;
    u32 v[EACH][W];
    bool hot[EACH], plain = coding <= ZIGZAG && scale - scale == 0;
#pragma unroll
    for (u32 r = 0; r < EACH; r++) {
        u32 word = 256 * r + threadIdx.x;
        hot[r] = false;
#pragma unroll
        for (u32 q = 0; q < W; q++)
            v[r][q] = 0;
        if (word >= PLANE)
            continue;
        if (kind == CODED && w == CHUNK) {
            u32 at = word % 8 * 4, low = below(at);
            const u32 *bitmap = s.stored.b1 + word / 8;
            const u16 *rank = s.stored.rank + word / 8;
#pragma unroll
            for (u32 q = 0; q < W; q++) {
                u32 plane = (W - 1 - q) * (PLANE / 8), bits = bitmap[plane];
                // Most high planes are zeros.
                if (__any_sync(FULL, bits != 0))
                    v[r][q] = spread(bits >> at & 15, word_at(s.stored.body, head + rank[plane] + __popc(bits & low)));
            }
        } else {
            // A partial block is not shuffled.
#pragma unroll
            for (u32 q = 0; q < W; q++)
                v[r][q] = chunk_word(s.stored, kind, head, w, w == CHUNK ? (W - 1 - q) * PLANE + word : word * W + q);
        }
        if (w == CHUNK) {
            // The upper bits are zeros, or, in two's complement, copies of the sign.
            constexpr u32 SMALL = small_bits<T, C>();
            u32 sign = coding == SIGNED ? v[r][W - 1] : 0, high = 0;
#pragma unroll
            for (u32 q = SMALL; q < W; q++)
                high |= v[r][q] ^ sign;
            if (SMALL < W)
                high |= coding == SIGNED ? v[r][SMALL - 1] ^ sign : 0;
            hot[r] = __all_sync(FULL, high == 0);
            elements<W>(v[r]);
        }
    }
    __syncthreads(); // The stored bytes are not needed any more.
    u32 n = w / sizeof(C);
#pragma unroll
    for (u32 r = 0; r < EACH; r++) {
        u32 own = 8 * r + warp, first = 1024 * own;
        if (own >= TILES || first >= n)
            continue;
        u64 tile = (u64)blockIdx.x * TILES + own;
        T *to = dst + tile * 1024;
        u32 count = n - first < 1024 ? n - first : 1024, *space = s.space[warp];
        if (hot[r] && plain && !outliers.in(tile, 1)) {
            hot_tile<T, C>(v[r], to, count, space, coding, scale);
            continue;
        }
        any_tile<T, C>(v[r], to, count, space, coding, radius, scale, tile, outliers);
    }
}
