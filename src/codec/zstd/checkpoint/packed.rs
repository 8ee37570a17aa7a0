//! A checkpoint as bytes, its window compressed.
//!
//! Fields, little-endian: position in the file and in the content (8 bytes each), three repeat offsets (4), the tree
//! and the tables of literal lengths, offsets and match lengths (each a kind, a length of 2 bytes, and its bytes), then
//! the window as a Zstandard frame.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::error::{Error, Result};

use super::super::frame::Frame;
use super::super::packing::Packing;
use super::entropy::{Entropy, TableSource};
use super::{DecoderState, Resume};

/// Longest description of a tree or a table.
const MOST: usize = 1024;

/// Packs checkpoints, one after the other, in the same memory.
#[derive(Default)]
pub(in super::super) struct Packer {
    packing: Packing,
    bytes: Vec<u8>,
}

impl Packer {
    /// The checkpoint at `state`, with the window `history` before it.
    ///
    /// # Errors
    /// Fails if libzstd cannot allocate memory.
    pub(in super::super) fn pack(&mut self, state: &DecoderState, history: &[u8]) -> Result<&[u8]> {
        let bytes = &mut self.bytes;
        bytes.clear();
        bytes.extend(state.at.0.to_le_bytes());
        bytes.extend(state.pos.to_le_bytes());
        state.offsets.iter().for_each(|offset| bytes.extend(offset.to_le_bytes()));
        let mut field = |kind: u8, field: &[u8]| {
            bytes.push(kind);
            bytes.extend(u16::try_from(field.len()).unwrap_or(u16::MAX).to_le_bytes());
            bytes.extend_from_slice(field);
        };
        match &state.entropy.tree {
            None => field(0, &[]),
            Some(tree) => field(3, tree),
        }
        for table in &state.entropy.tables {
            match table {
                TableSource::Nothing => field(0, &[]),
                TableSource::Predefined => field(1, &[]),
                TableSource::Single(code) => field(2, &[*code]),
                TableSource::Described(description) => field(3, description),
            }
        }
        bytes.extend_from_slice(self.packing.packed(history)?);
        Ok(bytes)
    }
}

/// The checkpoint in `frame` that was packed as `src`; the caller has room for a window.
///
/// # Errors
/// Fails if it is malformed, or cannot be a checkpoint of `frame`.
pub(in super::super) fn unpack(src: &[u8], frame: &Frame) -> Result<Resume> {
    let mut cur = Cursor::new(src, FileOffset(0));
    let at = FileOffset(cur.u64_le("place")?);
    let pos = cur.u64_le("place")?;
    let offsets = [cur.u32_le("offset")?, cur.u32_le("offset")?, cur.u32_le("offset")?];
    let tree = match field(&mut cur)? {
        (0, []) => None,
        (3, tree) => Some(tree.to_vec()),
        _ => return Err(Error::corrupt("an unknown kind", "tree")),
    };
    let mut entropy = Entropy::default();
    entropy.tree = tree;
    for table in &mut entropy.tables {
        *table = match field(&mut cur)? {
            (0, []) => TableSource::Nothing,
            (1, []) => TableSource::Predefined,
            (2, [code]) => TableSource::Single(*code),
            (3, description) => TableSource::Described(description.to_vec()),
            _ => return Err(Error::corrupt("an unknown kind", "table")),
        };
    }
    let state = DecoderState { at, pos, entropy, offsets };
    let wrong = || Error::corrupt("not of this frame", "checkpoint");
    let window = frame.header.window;
    if !state.is_plausible(frame, window) {
        return Err(wrong());
    }
    let mut dictionary = state.dictionary();
    let start = dictionary.len();
    let len = to_usize(window, "window")?;
    let all = start.checked_add(len).ok_or_else(wrong)?;
    dictionary.try_reserve_exact(len).map_err(|_| Error::no_memory("window"))?;
    dictionary.resize(all, 0);
    let room = dictionary.get_mut(start..).unwrap_or_default();
    let got = zstd::bulk::decompress_to_buffer(cur.rest(), room).map_err(|_| wrong())?;
    if to_u64(got) != window {
        return Err(wrong());
    }
    Resume::new(state, dictionary, frame).ok_or_else(wrong)
}

fn field<'a>(cur: &mut Cursor<'a>) -> Result<(u8, &'a [u8])> {
    let kind = cur.u8("kind")?;
    let len = usize::from(cur.u16_le("length")?);
    if len > MOST {
        return Err(Error::corrupt("too long", "field"));
    }
    Ok((kind, cur.take(len, "field")?))
}
