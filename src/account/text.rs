//! A growing list of short texts, kept one after the other in memory or in temporary files.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::limits::Charge;

use super::chunks::{CHUNK, Chunks};
use super::{Account, Records};

/// The longest text in bytes.
const LONGEST: usize = CHUNK >> 4;
/// Bits of the length in a record.
const LEN_BITS: u32 = 17;

/// A list of texts, numbered in the order in which they were added.
#[derive(Debug)]
pub struct Text {
    /// The bytes; no text crosses the end of a chunk.
    chunks: Chunks,
    /// The bytes after the last full chunk.
    tail: Vec<u8>,
    tail_charge: Option<Charge>,
    /// For each text: where it starts, and its length in the lowest bits.
    places: Records<1>,
}

impl Text {
    /// Creates an empty list; `what` names it in errors.
    pub fn new(account: &Account, what: &'static str) -> Self {
        let (chunks, places) = (Chunks::new(account, what), Records::new(account, what));
        Self { chunks, tail: Vec::new(), tail_charge: None, places }
    }

    /// The number of texts.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// About how many bytes they take.
    pub fn weight(&self) -> u64 {
        to_u64(self.chunks.len().saturating_mul(CHUNK).saturating_add(self.tail.len()))
            .saturating_add(to_u64(self.len()).saturating_mul(8))
    }

    /// Adds `text`.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] if it is longer than 16 KiB; otherwise as [`Records::push`].
    pub fn push(&mut self, text: impl AsRef<[u8]>) -> Result<()> {
        let text = text.as_ref();
        if text.len() > LONGEST {
            let (value, limit) = (to_u64(text.len()), to_u64(LONGEST));
            return Err(Error::new(Kind::TooLarge { value, limit }, self.chunks.what()));
        }
        if self.tail.len().saturating_add(text.len()) > CHUNK {
            self.pack(CHUNK)?;
        }
        let start = to_u64(self.chunks.len().saturating_mul(CHUNK).saturating_add(self.tail.len()));
        self.places.push([start << LEN_BITS | to_u64(text.len())])?;
        self.tail.extend_from_slice(text);
        Ok(())
    }

    /// Marks the list as complete: frees unused memory, and charges all of it. No text may be added afterwards.
    ///
    /// # Errors
    /// As [`Records::push`].
    pub fn finish(&mut self) -> Result<()> {
        self.places.finish()?;
        self.tail.shrink_to_fit();
        self.tail_charge = None;
        match self.chunks.account().charge_list(to_u64(self.tail.len()), self.chunks.what()) {
            Ok(charge) => self.tail_charge = Some(charge),
            // There may be room on the disk.
            Err(_) => self.pack(self.tail.len())?,
        }
        Ok(())
    }

    /// Moves the tail to a chunk of `len` bytes.
    fn pack(&mut self, len: usize) -> Result<()> {
        let tail = &self.tail;
        self.chunks.push(len, |bytes| bytes.iter_mut().zip(tail).for_each(|(to, from)| *to = *from))?;
        self.tail.clear();
        Ok(())
    }

    /// Text number `index`; `None` if it is not UTF-8.
    pub fn get(&self, index: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes(index)?).ok()
    }

    /// Text number `index`, which need not be UTF-8.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        let [place] = self.places.get(index)?;
        let len = to_usize(place & (1_u64 << LEN_BITS).wrapping_sub(1), "text").ok()?;
        let start = to_usize(place >> LEN_BITS, "text").ok()?;
        let (chunk, start) = (start.checked_div(CHUNK)?, start.checked_rem(CHUNK)?);
        let range = start..start.checked_add(len)?;
        let in_tail = chunk == self.chunks.len();
        if in_tail { self.tail.get(range) } else { self.chunks.get(chunk, range) }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::as_conversions, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_same_in_memory_in_files_and_beyond_the_account() {
        for (memory, disk) in [(64 << 20, 0), (2 << 20, 64 << 20), (0, 64 << 20), (1 << 20, 0)] {
            let account = Account::new(memory, disk);
            let mut list = Text::new(&account, "list");
            let text = |i: usize| "x".repeat(i % 200) + &i.to_string();
            assert!(list.len() == 0);
            (0..50_000).for_each(|i| list.push(text(i)).unwrap());
            list.finish().unwrap();
            assert!(list.len() == 50_000);
            assert!(memory < 64 << 20 || list.weight() == account.memory().used(), "{}", list.weight());
            for i in (0..50_000).step_by(97).chain([49_999]) {
                assert_eq!(list.get(i), Some(text(i).as_str()));
            }
            assert_eq!((list.len(), list.get(50_000)), (50_000, None));
            let peaks = account.peaks();
            assert!(peaks.memory <= memory && peaks.disk <= disk, "{peaks:?}");
            drop(list);
            assert_eq!((account.memory().used(), account.disk().used()), (0, 0));
        }
    }

    #[test]
    fn a_chunk_is_filled_to_its_last_byte() {
        let mut list = Text::new(&Account::new(0, 0), "list");
        assert_eq!(list.weight(), 0);
        (0..CHUNK / LONGEST).for_each(|_| list.push("x".repeat(LONGEST)).unwrap());
        assert_eq!((list.chunks.len(), list.weight()), (0, to_u64(CHUNK + 8 * CHUNK / LONGEST)));
        list.push("y").unwrap();
        assert_eq!((list.chunks.len(), list.weight()), (1, to_u64(CHUNK + 8 * CHUNK / LONGEST) + 9));
        assert_eq!(list.get(CHUNK / LONGEST), Some("y"));
    }

    #[test]
    fn the_longest_text_is_kept_and_a_longer_one_refused() {
        let mut list = Text::new(&Account::new(0, 0), "list");
        list.push("x".repeat(LONGEST)).unwrap();
        let e = list.push("x".repeat(LONGEST + 1)).unwrap_err();
        assert!(matches!(e.kind(), Kind::TooLarge { .. }), "{e}");
        assert_eq!((list.len(), list.get(0).unwrap().len()), (1, LONGEST));
    }
}
