//! The decoders of the library with the kernels of aarch64.

use neon as vectors;
use neon_merge as merging;

#[path = "../../src/codec/neon.rs"]
pub(crate) mod neon;
#[path = "../../src/codec/neon_merge.rs"]
pub(crate) mod neon_merge;
#[path = "../../src/codec/vector_kernels.rs"]
pub(crate) mod vector_kernels;

include!("decoders.rs");
