//! Decoders that more than one format may use: pure functions into a buffer of the caller.
//!
//! Byte shuffle ([`shuffle`]), bit shuffle ([`bitshuffle`]), running byte sums ([`bytedelta`]), merging
//! by bitmaps ([`bitmerge`]), LZ4 blocks ([`lz4`]) on the copies of LZ decoders ([`lz`], [`tape`], `raw`), Zstandard
//! frames ([`zstd`]), loops for wider vectors ([`kernel`]), and large buffers in strides ([`pace`]).
//! Each has one portable definition; on x86-64 the kernels in `avx2` and `vbmi2` do the
//! bulk where the processor has what they need, and a test holds both to the same bytes.

pub mod bitmerge;
pub mod bitshuffle;
pub mod bytedelta;
pub mod kernel;
pub mod lz;
pub mod lz4;
pub mod pace;
pub mod shuffle;
pub mod tape;
pub mod zstd;

mod raw;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod vbmi2;
