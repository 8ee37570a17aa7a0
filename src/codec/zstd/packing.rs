//! Bytes of our own, compressed for the index: alone, or many items in parts, each a record.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::index::Records;

/// How they are compressed: twice as fast as at level 1, into half as many bytes again.
const LEVEL: i32 = -1;
/// Bytes of a part before it is compressed, and more of its last item.
const PART: usize = 1 << 20;
/// Most parts of one list.
pub const PARTS: u64 = 1 << 13;

/// `bytes` as a Zstandard frame.
///
/// # Errors
/// Fails if libzstd cannot allocate memory.
pub fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::compress(bytes, LEVEL).map_err(|e| Error::io(e, "index"))
}

/// Packs one after the other, in the same memory.
#[derive(Default)]
pub(super) struct Packing {
    compressor: Option<Compressor<'static>>,
    frame: Vec<u8>,
}

impl Packing {
    /// As [`packed`].
    ///
    /// # Errors
    /// Fails if libzstd cannot allocate memory.
    pub(super) fn packed(&mut self, bytes: &[u8]) -> Result<&[u8]> {
        let io = |e| Error::io(e, "index");
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL).map_err(io)?),
        };
        self.frame.clear();
        self.frame.try_reserve(compress_bound(bytes.len())).map_err(|_| Error::no_memory("index"))?;
        compressor.compress_to_buffer(bytes, &mut self.frame).map_err(io)?;
        Ok(&self.frame)
    }
}

/// The bytes that were [`packed`] as `frame`, if that is a frame of at most `most`.
pub fn unpacked(frame: &[u8], most: usize) -> Option<Vec<u8>> {
    zstd::bulk::decompress(frame, most).ok()
}

/// The name of part `number` of the items `name`.
pub fn part_name(name: &str, number: u64) -> String {
    format!("{name}{number:x}")
}

/// Part `number` of the items `name`, of which one takes at most `item` bytes, if it is kept.
pub fn part(records: &Records, name: &str, number: u64, item: usize) -> Option<Vec<u8>> {
    let most = PART.saturating_add(item);
    // Incompressible bytes become hardly longer.
    let stored = records.get(&part_name(name, number), to_u64(most).saturating_mul(2))?;
    unpacked(&stored, most)
}

/// Items that are being kept.
#[derive(Debug)]
pub struct Parts<'a> {
    records: &'a Records,
    name: &'static str,
    bytes: Vec<u8>,
    number: u64,
}

impl<'a> Parts<'a> {
    /// No items yet.
    pub fn new(records: &'a Records, name: &'static str) -> Self {
        Self { records, name, bytes: Vec::with_capacity(PART), number: 0 }
    }

    /// Adds the item that `write` appends. `None` if it cannot be kept.
    pub fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<()> {
        write(&mut self.bytes);
        if self.bytes.len() >= PART { self.put() } else { Some(()) }
    }

    /// The number of parts. `None` if the last cannot be kept.
    pub fn end(mut self) -> Option<u64> {
        if !self.bytes.is_empty() {
            self.put()?;
        }
        Some(self.number)
    }

    fn put(&mut self) -> Option<()> {
        let is_kept =
            self.number < PARTS && self.records.put(&part_name(self.name, self.number), &packed(&self.bytes).ok()?);
        is_kept.then_some(())?;
        self.number = self.number.checked_add(1)?;
        self.bytes.clear();
        Some(())
    }
}
