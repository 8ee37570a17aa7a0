//! Arrays as Zarr version 3 has them: metadata, and chunks that are views over the pieces of the array.
//!
//! Reference: the core specification of Zarr 3.0 and the convention of consolidated metadata.
//!
//! Shows as: for each array a document with its type, shape and chunk shape, and a file for each chunk: raw elements in
//! C order, complete at the edges, where zeros (the fill value) follow. Codec: `bytes` alone.
//! Left out: types that Zarr lacks, more than [`RANK`] dimensions.
//!
//! Invariant: the content of a chunk follows from the container alone, so that all mounts of it agree.
#![forbid(unsafe_code)]

mod chunk;
mod chunk_shape;
mod data_type;
mod metadata;
mod ome;

pub use chunk::Chunks;
pub use chunk_shape::chunk_shape;
pub use metadata::{GROUP, array, group};
pub use ome::{OME, multiscales};

/// Maximum number of dimensions: that of the readers.
pub const RANK: usize = 32;
