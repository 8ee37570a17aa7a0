// Undo TiledLorenzo: each block decodes several tiles, in shared memory.
//
// Reference: `TiledLorenzo`. Tiles are consecutive in the input. The array is made brick by brick, in brick order:
// bricks are whole tiles, or cover a dimension.
//
// Nothing in the input is used as an index.

#include "common.cuh"

#define THREADS 256u
// Elements that a block has space for: at least two tiles.
#define SPACE 2048u

// The place of element `i`: elements at distance 32 are in different banks.
__device__ inline u32 kept(u32 i) { return i + i / 32; }

// `tiles` tiles from tile `first` on, of tx x ty x tz elements, of an array of nx x ny x nz, in bricks of bx x by x bz.
// The output starts at element `origin` of all bricks.
template <typename E>
__device__ inline void untile(const E *src, E *dst, u64 tiles, u64 first, u64 origin, u64 nx, u64 ny, u64 nz, u32 tx,
                              u32 ty, u32 tz, u64 bx, u64 by, u64 bz) {
    __shared__ u32 sums[SPACE + SPACE / 32];
    // For each tile the place of its first element, and its extents inside the array.
    __shared__ u64 places[THREADS];
    __shared__ u32 inside[THREADS];
    u32 t = threadIdx.x, plane = tx * ty, elements = plane * tz;
    u32 per = SPACE / elements < THREADS ? SPACE / elements : THREADS;
    u64 before = (u64)blockIdx.x * per;
    u32 own = tiles - before < per ? (u32)(tiles - before) : per, n = own * elements;
    for (u32 i = t; i < n; i += THREADS)
        sums[kept(i)] = src[before * elements + i];
    if (t < own) {
        u64 number = first + before + t, across = (nx + tx - 1) / tx, down = (ny + ty - 1) / ty;
        u64 x = number % across * tx, y = number / across % down * ty, z = number / across / down * tz;
        u64 brick = (z / bz * ((ny + by - 1) / by) + y / by) * ((nx + bx - 1) / bx) + x / bx;
        places[t] = ((brick * bz + z % bz) * by + y % by) * bx + x % bx - origin;
        u32 right = nx - x < tx ? (u32)(nx - x) : tx, low = ny - y < ty ? (u32)(ny - y) : ty;
        u32 deep = nz - z < tz ? (u32)(nz - z) : tz;
        inside[t] = right | low << 8 | deep << 16;
    }
    __syncthreads();
    // First the corners of planes, then the starts of rows, then the rows.
    if (t < own) {
        u32 sum = 0;
        for (u32 i = t * elements, end = i + elements; i < end; i += plane)
            sums[kept(i)] = sum += sums[kept(i)];
    }
    __syncthreads();
    for (u32 p = t; p < own * tz; p += THREADS) {
        u32 sum = 0;
        for (u32 i = p * plane, end = i + plane; i < end; i += tx)
            sums[kept(i)] = sum += sums[kept(i)];
    }
    __syncthreads();
    for (u32 r = t; r < own * tz * ty; r += THREADS) {
        u32 sum = 0;
        for (u32 i = r * tx, end = i + tx; i < end; i++)
            sums[kept(i)] = sum += sums[kept(i)];
    }
    __syncthreads();
    // Rows of neighbouring tiles are adjacent.
    for (u32 i = t; i < n; i += THREADS) {
        u32 x = i % tx, tile = i / tx % own, row = i / tx / own, y = row % ty, z = row / ty, limit = inside[tile];
        if (x < (limit & 255) && y < (limit >> 8 & 255) && z < limit >> 16)
            dst[places[tile] + (z * by + y) * bx + x] = (E)sums[kept(tile * elements + row * tx + x)];
    }
}

KERNEL tiled_lorenzo_2(const u16 *src, u16 *dst, u64 tiles, u64 first, u64 origin, u64 nx, u64 ny, u64 nz, u32 tx,
                       u32 ty, u32 tz, u64 bx, u64 by, u64 bz, u32 *fault) {
    untile(src, dst, tiles, first, origin, nx, ny, nz, tx, ty, tz, bx, by, bz);
}
KERNEL tiled_lorenzo_4(const u32 *src, u32 *dst, u64 tiles, u64 first, u64 origin, u64 nx, u64 ny, u64 nz, u32 tx,
                       u32 ty, u32 tz, u64 bx, u64 by, u64 bz, u32 *fault) {
    untile(src, dst, tiles, first, origin, nx, ny, nz, tx, ty, tz, bx, by, bz);
}
