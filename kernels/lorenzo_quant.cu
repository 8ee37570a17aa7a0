// Undo LorenzoQuant: rank 1 in tiles of 1024, rank 2 of 32 x 32, rank 3 of 8 x 8 x 8.
//
// Reference: section 5.1. Tiles are independent. Codes, sums and results stay in registers, distributed over threads
// such that each addition is the one that the library makes. Positions outside the array count as 0.
//
// Rank 1: thread t of 256 sums codes 4t to 4t + 3 of a tile. Thread 37, the sixth of the second warp, then adds the sum
// of the five threads before it in its warp, codes 128 to 147, and that of the first warp, codes 0 to 127.
//
// No code is used as an index; the host has sorted the outliers.

#include "lorenzo_quant.cuh"

template <typename T, typename C>
__device__ inline void line(const C *codes, T *dst, u64 n, u32 coding, u32 radius, T scale, Outliers<T> outliers) {
    __shared__ T ends[8];
    __shared__ T base[1024];
    u64 start = (u64)blockIdx.x * 1024 + 4 * threadIdx.x;
    bool whole = start + 4 <= n;
    T v[1][4] = {};
    if (whole) {
        Four<C> own = *(const Four<C> *)(codes + start);
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            v[0][i] = number<T>(own.v[i], coding, radius);
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            if (start + i < n)
                v[0][i] = number<T>(codes[start + i], coding, radius);
    }
    if (outliers.in(blockIdx.x, 1)) {
        for (u32 i = threadIdx.x; i < 1024; i += 256)
            base[i] = 0;
        __syncthreads();
        outliers.put(blockIdx.x, base, 1024, threadIdx.x, 256);
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            v[0][i] = base[4 * threadIdx.x + i] + v[0][i];
    }
    sum_lines<T, 1>(v, ends);
    if (whole) {
        Four<T> out;
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            out.v[i] = canonical(v[0][i] * scale);
        *(Four<T> *)(dst + start) = out;
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            if (start + i < n)
                dst[start + i] = canonical(v[0][i] * scale);
    }
}

// Division by a number known to the host: a multiplication by its reciprocal, exact for all 32-bit numbers.
struct Divisor {
    u32 magic, shift;

    // As LorenzoQuant packs it: the shift is in the upper word.
    __device__ Divisor(u64 packed) : magic((u32)packed), shift((u32)(packed >> 32)) {}

    __device__ u32 of(u32 n) const {
        u32 q = __umulhi(magic, n), one = shift < 1 ? shift : 1;
        return (((n - q) >> one) + q) >> (shift - one);
    }
};

// An array that is decoded brick by brick, each brick to separate elements in C order; an array without bricks is one
// brick.
struct Grid {
    // Extents of the array of codes, slowest first.
    u32 nz, ny, nx;
    // Elements of a brick, and bricks side by side.
    u32 bz, by, bx, gy, gx;
    // The first brick requested.
    u32 first;
    // Divisors: tiles of a brick along x, along y, and in all; bricks along x and y.
    Divisor across, down, inside, along_x, along_y;

    // Place of a tile of TZ x TY x TX: its position in the array, its first code, and its first element.
    struct Place {
        u32 z, y, x;
        u64 code, element;
    };

    template <u32 TZ, u32 TY, u32 TX> __device__ Place place(u32 tile) const {
        u32 ax = (bx + TX - 1) / TX, ay = (by + TY - 1) / TY, az = (bz + TZ - 1) / TZ;
        u32 brick = inside.of(tile), inner = tile - brick * (ax * ay * az);
        u32 row = across.of(inner), layer = down.of(row);
        u32 x = (inner - row * ax) * TX, y = (row - layer * ay) * TY, z = layer * TZ;
        u32 index = first + brick, line = along_x.of(index), plane = along_y.of(line);
        Place p;
        p.x = (index - line * gx) * bx + x;
        p.y = (line - plane * gy) * by + y;
        p.z = plane * bz + z;
        p.code = ((u64)p.z * ny + p.y) * nx + p.x;
        p.element = (((u64)brick * bz + z) * by + y) * bx + x;
        return p;
    }

    // How many of the eight rows from `y` on the array has at `x` of plane `z`.
    __device__ u32 rows(u32 z, u32 y, u32 x) const {
        return z < nz && y < ny && x < nx ? (ny - y < 8 ? ny - y : 8) : 0;
    }
};

// 128 threads: a warp has 8 rows of the tile, a lane a column of them.
template <typename T, typename C>
__device__ inline void square(const C *codes, T *dst, const Grid &g, u32 coding, u32 radius, T scale,
                              const Outliers<T> &outliers) {
    __shared__ T ends[4][32];
    __shared__ T base[1024];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Grid::Place p = g.place<1, 32, 32>(blockIdx.x);
    u32 rows = g.rows(p.z, p.y + 8 * warp, p.x + lane);
    codes += p.code + (u64)(8 * warp) * g.nx + lane;
    dst += p.element + (u64)(8 * warp) * g.bx + lane;
    T v[8];
#pragma unroll
    for (u32 r = 0; r < 8; r++, codes += g.nx)
        v[r] = r < rows ? number<T>(*codes, coding, radius) : (T)0;
    if (outliers.in(blockIdx.x, 1)) {
        for (u32 i = threadIdx.x; i < 1024; i += 128)
            base[i] = 0;
        __syncthreads();
        outliers.put(blockIdx.x, base, 1024, threadIdx.x, 128);
        __syncthreads();
#pragma unroll
        for (u32 r = 0; r < 8; r++)
            v[r] = base[(8 * warp + r) * 32 + lane] + v[r];
    }
#pragma unroll
    for (u32 r = 1; r < 8; r++)
        v[r] = v[r] + v[r - 1];
    ends[warp][lane] = v[7];
    __syncthreads();
    if (warp > 0) {
        T before = ends[0][lane];
        for (u32 w = 1; w < warp; w++)
            before = ends[w][lane] + before;
#pragma unroll
        for (u32 r = 0; r < 8; r++)
            v[r] = v[r] + before;
    }
#pragma unroll
    for (u32 r = 0; r < 8; r++, dst += g.bx) {
        T sum = warp_scan(v[r]);
        if (r < rows)
            *dst = canonical(sum * scale);
    }
}

// The sums along z of eight planes, in Kogge-Stone order: lane 8 * z + x has `low` of plane z and `high` of plane z +
// 4. Returns the sum for the low plane.
// 4. Gives the sum for the low plane.
template <typename T> __device__ inline T deepen(T low, T high, T *sum) {
    u32 lane = threadIdx.x % 32;
    // One plane back: plane 4 takes from plane 3.
    T down = __shfl_up_sync(FULL, low, 8);
    T back = __shfl_sync(FULL, lane >= 24 ? low : high, (lane + 24) % 32);
    low = lane >= 8 ? down + low : low;
    high = back + high;
    // Two planes back: planes 4 and 5 take from 2 and 3, planes 2 and 3 from 0 and 1.
    down = __shfl_up_sync(FULL, low, 16);
    back = __shfl_sync(FULL, lane >= 16 ? low : high, (lane + 16) % 32);
    low = lane >= 16 ? down + low : low;
    high = back + high;
    *sum = low + high;
    return low;
}

// 256 threads: a warp has a tile, a lane the 8 rows of one x in two planes, z and z + 4.
template <typename T, typename C>
__device__ inline void cube(const C *codes, T *dst, const Grid &g, u32 tiles, u32 coding, u32 radius, T scale,
                            const Outliers<T> &outliers) {
    __shared__ T bases[8][512];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 tile = blockIdx.x * 8 + warp;
    // Uniform within a warp.
    if (tile >= tiles)
        return;
    Grid::Place p = g.place<8, 8, 8>(tile);
    u32 x = lane % 8, z = lane / 8;
    u32 rows[2] = {g.rows(p.z + z, p.y, p.x + x), g.rows(p.z + z + 4, p.y, p.x + x)};
    codes += p.code + (u64)z * g.ny * g.nx + x;
    dst += p.element + (u64)z * g.by * g.bx + x;
    u64 far = 4ull * g.ny * g.nx, out = 4ull * g.by * g.bx;
    T v[8][2];
#pragma unroll
    for (u32 r = 0; r < 8; r++, codes += g.nx) {
        v[r][0] = r < rows[0] ? number<T>(codes[0], coding, radius) : (T)0;
        v[r][1] = r < rows[1] ? number<T>(codes[far], coding, radius) : (T)0;
    }
    if (outliers.in(tile, 1)) {
        T *base = bases[warp];
        for (u32 i = lane; i < 512; i += 32)
            base[i] = 0;
        __syncwarp();
        outliers.put(tile, base, 512, lane, 32);
        __syncwarp();
#pragma unroll
        for (u32 r = 0; r < 8; r++)
#pragma unroll
            for (u32 h = 0; h < 2; h++)
                v[r][h] = base[(lane / 8 + 4 * h) * 64 + r * 8 + lane % 8] + v[r][h];
    }
#pragma unroll
    for (u32 r = 0; r < 8; r++) {
#pragma unroll
        for (u32 h = 0; r > 0 && h < 2; h++)
            v[r][h] = v[r][h] + v[r - 1][h];
    }
#pragma unroll
    for (u32 r = 0; r < 8; r++, dst += g.bx) {
        T high, low = deepen(warp_scan(v[r][0], 8), warp_scan(v[r][1], 8), &high);
        if (r < rows[0])
            dst[0] = canonical(low * scale);
        if (r < rows[1])
            dst[out] = canonical(high * scale);
    }
}

#define LINE(T, C, NAME)                                                                                              \
    KERNEL lorenzo_quant_1_##NAME(const C *codes, T *dst, u64 n, u32 coding, u32 radius, T scale, const u32 *first,   \
                                  const u16 *at, const T *value, u32 count, u32 *fault) {                             \
        line<T, C>(codes, dst, n, coding, radius, scale, {first, at, value, count});                                  \
    }
#define BRICKS(KERNEL_NAME, T, C)                                                                                     \
    KERNEL KERNEL_NAME(const C *codes, T *dst, u32 nz, u32 ny, u32 nx, u32 bz, u32 by, u32 bx, u32 gy, u32 gx,        \
                       u32 brick, u64 across, u64 down, u64 inside, u64 along_x, u64 along_y, u32 tiles, u32 coding,  \
                       u32 radius, T scale, const u32 *first, const u16 *at, const T *value, u32 count, u32 *fault)
#define GRID                                                                                                          \
    { nz, ny, nx, bz, by, bx, gy, gx, brick, across, down, inside, along_x, along_y }
#define SQUARE(T, C, NAME)                                                                                            \
    BRICKS(lorenzo_quant_2_##NAME, T, C) {                                                                            \
        square<T, C>(codes, dst, GRID, coding, radius, scale, {first, at, value, count});                             \
    }
#define CUBE(T, C, NAME)                                                                                              \
    BRICKS(lorenzo_quant_3_##NAME, T, C) {                                                                            \
        cube<T, C>(codes, dst, GRID, tiles, coding, radius, scale, {first, at, value, count});                        \
    }
#define RANKS(T, C, NAME) LINE(T, C, NAME) SQUARE(T, C, NAME) CUBE(T, C, NAME)

RANKS(float, u8, f32_u8)
RANKS(float, u16, f32_u16)
RANKS(double, u16, f64_u16)
RANKS(double, u32, f64_u32)
