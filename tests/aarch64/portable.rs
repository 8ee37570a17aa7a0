//! The decoders of the library without kernels.

use none as merging;
use none as vectors;

#[path = "../../src/codec/bit_plane_network.rs"]
pub(crate) mod bit_plane_network;
#[path = "../../src/codec/bit_planes.rs"]
pub(crate) mod bit_planes;
#[path = "../../src/codec/bitmap_merge.rs"]
pub(crate) mod bitmap_merge;
#[path = "../../src/codec/bitshuffle.rs"]
pub(crate) mod bitshuffle;
#[path = "../../src/codec/bytedelta.rs"]
pub(crate) mod bytedelta;
#[path = "../../src/codec/lz.rs"]
pub(crate) mod lz;
#[path = "../../src/codec/lz4.rs"]
pub(crate) mod lz4;
#[path = "../../src/codec/merge_side.rs"]
pub(crate) mod merge_side;
mod none;
#[path = "../../src/codec/pace.rs"]
pub(crate) mod pace;
#[path = "../../src/codec/running_sums.rs"]
pub(crate) mod running_sums;
#[path = "../../src/codec/shuffle.rs"]
pub(crate) mod shuffle;
#[path = "../../src/codec/simd_dispatch.rs"]
pub(crate) mod simd_dispatch;
#[path = "../../src/codec/simd_ops.rs"]
pub(crate) mod simd_ops;
#[path = "../../src/codec/unchecked_copy.rs"]
pub(crate) mod unchecked_copy;
#[path = "../../src/codec/word_merge.rs"]
pub(crate) mod word_merge;
