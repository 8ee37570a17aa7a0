//! Decoders shared by several formats: pure functions into a buffer of the caller.
//!
//! Byte shuffle ([`shuffle`]), bit shuffle ([`bitshuffle`]), bit planes ([`bit_planes`]), running sums of bytes
//! ([`bytedelta`]) and of numbers ([`running_sums`]), merging by bitmaps ([`bitmap_merge`], [`word_merge`]), packed
//! integers ([`bit_fields`]), LZ4 blocks ([`lz4`]), the copies of LZ decoders ([`lz`], [`lz_writer`],
//! `unchecked_copy`), Zstandard frames ([`zstd`]), range ANS ([`range_ans`]), loops for wider vectors
//! ([`simd_dispatch`]), and processing of large buffers in strides ([`pace`]).
//!
//! Each decoder has one portable definition. Kernels do the bulk of the work if the processor supports them: on x86-64
//! those in `avx2`, `avx512`, `avx512_ans` and `vbmi2`, on aarch64 those in `neon` and `neon_merge`; those in
//! `vector_kernels` are written once for both. Tests check that all give the same bytes.

mod ans_lanes;
pub mod bit_fields;
pub mod bit_planes;
pub mod bitmap_merge;
pub mod bitshuffle;
pub mod bytedelta;
pub mod lz;
pub mod lz4;
pub mod lz_writer;
pub mod pace;
pub mod range_ans;
pub mod running_sums;
pub mod shuffle;
pub mod simd_dispatch;
pub mod word_merge;
pub mod zstd;

mod bit_plane_network;
mod merge_side;
mod simd_ops;
mod unchecked_copy;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_ans;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_merge;
#[cfg(target_arch = "x86_64")]
mod vbmi2;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector_kernels;

// The kernels of this architecture, under one name.
#[cfg(target_arch = "x86_64")]
use {avx2 as vectors, vbmi2 as merging};
#[cfg(target_arch = "aarch64")]
use {neon as vectors, neon_merge as merging};
