//! Decoding on a device: the planner, and the device operations for the inverses of stages.
//!
//! Reference: section 10 of the FZM reference (independent units of each stage).
//!
//! The stages know nothing of devices. Their streams describe how they derive from other streams
//! ([`ByteStream::derivation`](super::stream::ByteStream::derivation)); [`Plan`] follows these descriptions down to a
//! stream without one, which the host reads, usually a stored segment. For each it builds a device operation; some
//! chains are fused into one operation. Data that an operation takes from the host besides its input (outliers, chunk
//! offsets) it uploads itself, only for the window.
//!
//! Adding a stage: a variant of [`Inverse`](super::inverse::Inverse), one file in this folder that implements
//! `DeviceOp` for its parameters, one line in `plan`, and its name in [`STAGES`]. A file with a stage that has no
//! kernel is decoded on the CPU.
//!
//! Invariants: a kernel that finds invalid input sets the fault of its `DeviceJob`, and never accesses memory
//! outside its buffers. The output of a job with a fault is discarded, and the CPU reports the error.

mod adaptive_bitpack;
mod bitpack;
mod bitplane_rze;
mod bitshuffle;
mod decoder;
mod fallback;
mod fused;
mod huffman;
mod job;
mod lorenzo_quant;
mod op;
mod plan;
mod prefix;
mod quantizer;
mod resident;
mod rle;
mod rze;
mod sign_coding;
mod sums;
mod tiled_lorenzo;

pub use decoder::Decoder;
pub use fallback::Fallback;
pub use fused::Fusing;
pub(super) use plan::is_read;
pub use plan::{Order, Plan};
pub use resident::Resident;

/// The stages with kernels for their usual forms, by name.
pub const STAGES: &[&str] = &[
    "adaptive_bitpack",
    "bitpack",
    "bitplane_rze",
    "bitshuffle",
    "difference",
    "huffman",
    "lorenzo",
    "lorenzo_quant",
    "merge",
    "negabinary",
    "quantizer",
    "rle",
    "rze",
    "tiled_lorenzo",
    "zigzag",
];
