//! Zstandard frames of every generation: finding them, decoding them, random access.
//!
//! Reference: sections 1 to 4 of the Zstandard reference.
//!
//! `header`: frames and blocks. `frame_scan`: finds the frames in a range of a file. `entropy`: the coded parts of
//! a block. `v07`: our own decoder for the 0.0.2 draft. `pipeline`: our own for long modern frames, on several threads;
//! libzstd decodes the others. `decode`: a frame block by block; `in_place`: frames in memory.
//! `random_access` and `stream`: random access. `seek_table`: seek tables. `kept_scan`: the list of frames in the index.
//!
//! Used by the Zstandard format and by the compressed parts of zTensor files.
#![forbid(unsafe_code)]

mod checkpoint;
mod decode;
mod dictionary;
mod division;
mod entropy;
mod frame;
mod frame_list;
mod frame_scan;
mod header;
mod in_place;
mod kept_scan;
mod libzstd;
mod literals;
mod measure;
mod packing;
mod pipeline;
mod random_access;
mod reader;
mod seek_table;
mod small;
mod stored_bytes;
mod stream;
mod v07;
mod window;

pub use decode::length_error;
pub use dictionary::Dictionaries;
pub use division::Division;
pub use frame::{Cut, Frame, PIECE, SeekChecksum, Skippable};
pub use frame_list::{FrameList, SkippableList};
pub use frame_scan::{FrameScan, skippable};
pub use header::{Generation, Header};
pub use in_place::decode_in_place;
pub use packing::{PARTS, Parts, packed, part, part_name, unpacked};
pub use random_access::{Frames, Policy};
pub use seek_table::{SeekTable, find_frames};
pub use stream::ContentStream;
