// Undo AdaptiveBitpack and BitplaneRZE: a warp makes 32 elements at a time from a word of each bit plane.
//
// Reference: `AdaptiveBitpack` and `BitplaneRZE`. A lane loads the word of one plane, and the lanes exchange bits. The
// host has located the blocks and chunks.
//
// Checked: that blocks and chunks end inside the input, and that a block has no more planes and bytes than an element.

#include "common.cuh"

#define THREADS 256u
#define WARPS (THREADS / 32)
// Blocks of AdaptiveBitpack per known start.
#define GROUP 128u
// Words of a chunk of BitplaneRZE, of its map, and planes.
#define CHUNK 1024u
#define MAP 8u
#define PLANES 32u

// Transposes: bit `i` of lane `l` becomes bit `l` of lane `i`.
__device__ inline u32 transposed(u32 v) {
    u32 lane = threadIdx.x % 32, low = 0xFFFF;
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2) {
        u32 other = __shfl_xor_sync(FULL, v, step);
        v = lane & step ? (v & ~low) | (other >> step & low) : (v & low) | (other << step & ~low);
        low ^= low << step / 2;
    }
    return v;
}

// Up to 32 bits of a plane with `left` more bytes.
__device__ inline u32 bits_of(const u8 *plane, u32 left) {
    if (left >= 4 && (u64)plane % 4 == 0)
        return *(const u32 *)plane;
    u32 bits = 0;
    for (u32 i = 0; i < 4 && i < left; i++)
        bits |= (u32)plane[i] << (8 * i);
    return bits;
}

// The form of a block: number of magnitude planes, bytes of the first element if it is stored separately, and total
// bytes.
struct Form {
    u32 rate, head, cost;

    // The form of block `i`; planes have `word` bytes.
    __device__ Form(const u8 *metadata, u64 i, u32 word, u32 selection) {
        rate = metadata[selection ? 2 * i : i];
        u32 selector = selection ? metadata[2 * i + 1] : 0;
        head = selector & 1 ? (selector >> 1 & 3) + 1 : 0;
        cost = rate || head ? head + word * (rate + 1) : 0;
    }
};

// Blocks of `block` elements; `starts` has the start of every group of blocks in `src`.
template <typename E>
__device__ inline void adaptive_bitpack(const u8 *src, u64 size, const u64 *starts, const u8 *metadata, E *dst,
                                        u64 count, u32 block, u32 selection, u32 *fault) {
    __shared__ u32 places[GROUP];
    __shared__ u32 ends[WARPS];
    u32 t = threadIdx.x, lane = t % 32, warp = t / 32, word = (block + 7) / 8;
    u64 first = (u64)blockIdx.x * GROUP, blocks = (count + block - 1) / block;
    u32 own = blocks - first < GROUP ? (u32)(blocks - first) : GROUP;
    u32 cost = t < own ? Form(metadata, first + t, word, selection).cost : 0;
    u32 upto = warp_scan(cost);
    if (lane == 31)
        ends[warp] = upto;
    __syncthreads();
    u32 before = upto - cost;
    for (u32 w = 0; w < warp; w++)
        before += ends[w];
    if (t < GROUP)
        places[t] = before;
    __syncthreads();
    for (u32 b = warp; b < own; b += WARPS) {
        Form form(metadata, first + b, word, selection);
        u64 at = starts[blockIdx.x] + places[b], base = (first + b) * block;
        u32 n = count - base < block ? (u32)(count - base) : block;
        if (form.rate > 8 * sizeof(E) || form.head > sizeof(E) || at > size || form.cost > size - at) {
            raise(fault);
            continue;
        }
        const u8 *signs = src + at + form.head, *plane = signs + (lane + 1) * word;
        for (u32 g = 0; 32 * g < n; g++) {
            u32 done = 4 * g, left = word - done;
            u32 value = transposed(lane < form.rate ? bits_of(plane + done, left) : 0);
            if (form.head && g == 0 && lane == 0)
                value = bits_of(src + at, form.head);
            if (form.cost && bits_of(signs + done, left) >> lane & 1)
                value = 0 - value;
            if (32 * g + lane < n)
                dst[base + 32 * g + lane] = (E)value;
        }
    }
}

KERNEL adaptive_bitpack_2(const u8 *src, u64 size, const u64 *starts, const u8 *metadata, u16 *dst, u64 count,
                          u32 block, u32 selection, u32 *fault) {
    adaptive_bitpack(src, size, starts, metadata, dst, count, block, selection, fault);
}
KERNEL adaptive_bitpack_4(const u8 *src, u64 size, const u64 *starts, const u8 *metadata, u32 *dst, u64 count,
                          u32 block, u32 selection, u32 *fault) {
    adaptive_bitpack(src, size, starts, metadata, dst, count, block, selection, fault);
}

// A block decodes a chunk of BitplaneRZE. `maps` and `starts` have for each chunk its map and its first word among the
// `words` from `src` on; `dst` receives `out` words. A thread loads the four words of one bit of the map.
KERNEL bitplane_rze(const u32 *src, u64 words, const u32 *maps, const u32 *starts, u32 *dst, u64 out, u32 *fault) {
    // One word of padding after every plane: lanes then read different banks.
    __shared__ u32 planes[PLANES][PLANES + 1];
    u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
    const u32 *map = maps + (u64)blockIdx.x * MAP;
    u32 mask = map[warp], rank = __popc(mask & ((1u << lane) - 1)), total = 0;
    for (u32 w = 0; w < MAP; w++) {
        u32 kept = __popc(map[w]);
        rank += w < warp ? kept : 0;
        total += kept;
    }
    u64 start = starts[blockIdx.x];
    if (total && start + 4 * total > words) {
        raise(fault);
        return;
    }
    for (u32 i = 0; i < 4; i++)
        planes[t / 8][t % 8 * 4 + i] = mask >> lane & 1 ? src[start + 4 * rank + i] : 0;
    __syncthreads();
    for (u32 row = warp; row < 32; row += WARPS) {
        u32 value = transposed(planes[lane][row]);
        u64 at = (u64)blockIdx.x * CHUNK + 32 * row + lane;
        if (at < out)
            dst[at] = value;
    }
}
