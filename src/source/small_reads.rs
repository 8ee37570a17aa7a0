//! Small reads at ascending offsets, such as headers that follow each other: one read of the file serves several.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset};
use crate::error::Result;
use crate::wanted;

use super::Source;

/// A reader with a small buffer.
#[derive(Debug)]
pub struct SmallReads<'a> {
    source: &'a Source,
    bytes: Vec<u8>,
    at: FileOffset,
}

impl<'a> SmallReads<'a> {
    /// Bytes read at a time, at most: copying them takes less time than the system call.
    pub const LEN: u64 = 4096;

    /// Creates a reader of `source`; reads nothing.
    pub const fn new(source: &'a Source) -> Self {
        Self { source, bytes: Vec::new(), at: FileOffset(0) }
    }

    /// The `N` bytes at `at`.
    ///
    /// # Errors
    /// As [`Source::read`]; `EINTR` if the work is not wanted any more.
    pub fn array<const N: usize>(&mut self, at: FileOffset, what: &'static str) -> Result<[u8; N]> {
        if let Some(bytes) = self.kept(at) {
            return Ok(bytes);
        }
        wanted::check()?;
        self.bytes = self.source.get_most(at, Self::LEN, what)?;
        self.at = at;
        Cursor::new(&self.bytes, at).array(what)
    }

    fn kept<const N: usize>(&self, at: FileOffset) -> Option<[u8; N]> {
        let skip = usize::try_from(at.0.checked_sub(self.at.0)?).ok()?;
        self.bytes.get(skip..)?.first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::testing::far;

    #[test]
    fn one_read_of_the_file_serves_several_small_ones() {
        let (source, asked) = far(10_000, 0..0);
        let mut reads = SmallReads::new(&source);
        for at in (0..10_000).step_by(4).chain([8192, 9996]) {
            reads.array::<4>(FileOffset(at), "x").unwrap();
        }
        assert_eq!(*asked.lock().unwrap(), ["read 0..4096", "read 4096..8192", "read 8192..10000"]);
        reads.array::<4>(FileOffset(8191), "x").unwrap();
        assert_eq!(asked.lock().unwrap().len(), 4);
    }

    #[test]
    fn bytes_are_read_in_any_order_and_not_past_the_end() {
        let bytes: Vec<u8> = (0..10_000_u16).flat_map(u16::to_le_bytes).collect();
        let source = Source::from_bytes(bytes);
        let mut reads = SmallReads::new(&source);
        let word = |i: u32| (i < 9999).then_some(i | (i + 1) << 16);
        for i in (0..5000).chain([9999, 3, 4998]) {
            assert_eq!(reads.array(FileOffset(u64::from(2 * i)), "x").map(u32::from_le_bytes).ok(), word(i), "{i}");
        }
        assert_eq!(reads.array::<4>(FileOffset(20_000), "x").unwrap_err().what(), "x");
    }
}
