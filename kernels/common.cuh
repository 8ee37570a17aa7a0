// What all kernels share: fixed-width types, and scans over a warp and a block.
//
// No other include: the kernels compile with NVRTC alone, and for the host with tests/support/gpu/host.h in front.
// Shapes: every launch has one dimension; a block has a multiple of 32 threads, at most 1024.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#define FULL 0xFFFFFFFFu

// A kernel that the Rust side can launch.
#define KERNEL extern "C" __global__ void

// Every kernel takes a `u32 *fault`: it is set when the input cannot be right. What the kernel then leaves in its
// output does not matter, the CPU decodes the batch again and says what is wrong; but nothing outside of the
// buffers is read or written, ever.
__device__ inline void raise(u32 *fault) { atomicExch(fault, 1u); }

// 16 bytes that are loaded and stored at once.
struct alignas(16) Quad {
    u32 w[4];
};

// The inclusive sum, over each group of `lanes` lanes of a warp (a power of two), up to this one. In Kogge-Stone
// order, which matters for floats.
template <typename T> __device__ inline T warp_scan(T v, u32 lanes = 32) {
    u32 lane = threadIdx.x & (lanes - 1);
    for (u32 d = 1; d < lanes; d *= 2) {
        T below = __shfl_up_sync(FULL, v, d);
        if (lane >= d)
            v = below + v;
    }
    return v;
}
