//! Mount compressed scientific containers as read-only directories of decoded files.
//!
//! The layers, each naming only those below it: `cli` (prints) over `fs` (fuser) over `tree` (names,
//! inodes) over `view` and `cache` over `format` (one folder each) over `codec`, `source`, `bytes`.
//! An FZM, Blosc2, ZXC, zTensor or Zstandard file becomes a [`format::Container`]; its blobs decode
//! piece by piece; a virtual file is a rule that maps byte ranges to pieces.

pub mod account;
pub mod bytes;
pub mod cache;
pub mod checksum;
pub mod cli;
pub mod codec;
pub mod error;
pub mod format;
pub mod fs;
pub mod gpu;
pub mod limits;
pub mod reserve;
pub mod source;
pub mod tree;
pub mod view;
