//! The frames of a file in packed lists, which may be in a temporary file: a file may have millions of frames.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::marker::PhantomData;

use crate::account::{Account, Records};
use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};

use super::frame::{Frame, SeekChecksum, Skippable};
use super::header::{Generation, Header};

const WHAT: &str = "list of frames";

/// Optional fields that are set.
mod flag {
    pub(super) const CONTENT: u64 = 1;
    /// The header states the content size.
    pub(super) const STATED: u64 = 2;
    /// The header announces a checksum.
    pub(super) const ANNOUNCED: u64 = 4;
    pub(super) const CHECKSUM: u64 = 8;
    pub(super) const SEEK_CHECKSUM: u64 = 16;
    pub(super) const SEEK_CONTENT: u64 = 32;
    pub(super) const LISTED: u64 = 64;
    pub(super) const CUT: u64 = 128;
}

/// An item that can be kept as `WORDS` numbers.
pub trait Packed<const WORDS: usize> {
    /// The item as numbers.
    fn pack(&self) -> [u64; WORDS];

    /// The item that [`Packed::pack`] made into `words`.
    fn unpack(words: [u64; WORDS]) -> Self;
}

/// Items in file order, packed.
#[derive(Debug)]
pub struct PackedList<T, const WORDS: usize> {
    records: Records<WORDS>,
    items: PhantomData<T>,
}

/// The frames with content.
pub type FrameList = PackedList<Frame, 10>;
/// The skippable frames.
pub type SkippableList = PackedList<Skippable, 2>;

impl<T: Packed<WORDS>, const WORDS: usize> PackedList<T, WORDS> {
    /// Creates an empty list.
    pub(super) fn new(account: &Account) -> Self {
        Self { records: Records::new(account, WHAT), items: PhantomData }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Item `index`.
    pub fn get(&self, index: usize) -> Option<T> {
        self.records.get(index).map(T::unpack)
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// Adds an item.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn push(&mut self, item: &T) -> Result<()> {
        self.records.push(item.pack())
    }

    /// Marks the list as complete.
    ///
    /// # Errors
    /// As [`PackedList::push`].
    pub(super) fn finish(&mut self) -> Result<()> {
        self.records.finish()
    }
}

impl FrameList {
    /// Changes frame `index`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    pub fn update(&mut self, index: usize, change: impl FnOnce(&mut Frame)) -> Result<()> {
        let mut frame = self.get(index).ok_or_else(|| Error::new(Kind::NotFound, "frame"))?;
        change(&mut frame);
        self.records.set(index, frame.pack())
    }

    /// Takes the content size of each frame that does not state it from the seek table.
    ///
    /// # Errors
    /// Fails if the list cannot be changed.
    pub fn adopt_seek_sizes(&mut self) -> Result<()> {
        for index in 0..self.len() {
            if let Some(Frame { content: None, seek_content: Some(size), .. }) = self.get(index) {
                self.update(index, |frame| frame.content = Some(size.into()))?;
            }
        }
        Ok(())
    }
}

/// Two numbers in one.
fn word(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The numbers of [`word`].
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

impl Packed<10> for Frame {
    fn pack(&self) -> [u64; 10] {
        let Header { generation, window, content_size, dictionary, has_checksum } = self.header;
        let set = [
            (self.content.is_some(), flag::CONTENT),
            // The content then has the size that the header states.
            (content_size.is_some(), flag::STATED),
            (has_checksum, flag::ANNOUNCED),
            (self.checksum.is_some(), flag::CHECKSUM),
            (self.seek_checksum.is_some(), flag::SEEK_CHECKSUM),
            (self.seek_content.is_some(), flag::SEEK_CONTENT),
            (self.is_listed, flag::LISTED),
            (self.is_cut, flag::CUT),
        ];
        let flags = set.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        let generation: u64 = match generation {
            Generation::V05 => 5,
            Generation::V06 => 6,
            Generation::V07 => 7,
            Generation::Modern => 8,
        };
        // At most 18 bytes.
        let header = self.blocks_at.0.saturating_sub(self.at.0);
        let seek = self.seek_checksum.unwrap_or(SeekChecksum { stored: 0, at: FileOffset(0) });
        [
            self.at.0,
            self.stored,
            content_size.or(self.content).unwrap_or(0),
            window,
            self.bound,
            self.blocks,
            seek.at.0,
            word(self.checksum.unwrap_or(0), seek.stored),
            word(self.seek_content.unwrap_or(0), dictionary),
            header << 16 | generation << 8 | flags,
        ]
    }

    fn unpack([at, stored, content, window, bound, blocks, seek_at, checksums, more, kind]: [u64; 10]) -> Self {
        let is_set = |flag| kind & flag != 0;
        let generation = match kind >> 8 & 0xFF {
            5 => Generation::V05,
            6 => Generation::V06,
            7 => Generation::V07,
            _ => Generation::Modern,
        };
        let ((checksum, seek_checksum), (seek_content, dictionary)) = (halves(checksums), halves(more));
        let (at, seek_checksum) = (FileOffset(at), SeekChecksum { stored: seek_checksum, at: FileOffset(seek_at) });
        Self {
            at,
            stored,
            header: Header {
                generation,
                window,
                content_size: is_set(flag::STATED).then_some(content),
                dictionary,
                has_checksum: is_set(flag::ANNOUNCED),
            },
            blocks_at: at.plus(kind >> 16),
            content: is_set(flag::CONTENT).then_some(content),
            bound,
            blocks,
            checksum: is_set(flag::CHECKSUM).then_some(checksum),
            seek_checksum: is_set(flag::SEEK_CHECKSUM).then_some(seek_checksum),
            seek_content: is_set(flag::SEEK_CONTENT).then_some(seek_content),
            is_cut: is_set(flag::CUT),
            is_listed: is_set(flag::LISTED),
        }
    }
}

impl Packed<2> for Skippable {
    fn pack(&self) -> [u64; 2] {
        // The size is a 32-bit number in the file.
        [self.at.0, self.len << 8 | u64::from(self.nibble)]
    }

    fn unpack([at, rest]: [u64; 2]) -> Self {
        Self { at: FileOffset(at), nibble: rest.to_le_bytes()[0], len: rest >> 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_frame_keeps_all_of_its_fields() {
        let mut list = FrameList::new(&Account::new(1 << 20, 0));
        let generations = [Generation::V05, Generation::V06, Generation::V07, Generation::Modern];
        let mut want = Vec::new();
        for (n, generation) in (0_u64..).zip(generations.repeat(16)) {
            let bit = |i: u64| n >> i & 1 == 1;
            let content = bit(0).then_some(u64::MAX - n);
            let frame = Frame {
                at: FileOffset(n << 40),
                stored: u64::MAX - 2 * n,
                header: Header {
                    generation,
                    window: 1 << 41,
                    content_size: content.filter(|_| bit(1)),
                    dictionary: u32::MAX - 1,
                    has_checksum: bit(2),
                },
                blocks_at: FileOffset(n << 40).plus(18),
                content,
                bound: n,
                blocks: n << 33,
                checksum: bit(2).then_some(u32::MAX - 2),
                seek_checksum: bit(3).then_some(SeekChecksum { stored: u32::MAX - 3, at: FileOffset(u64::MAX - 4) }),
                seek_content: bit(4).then_some(u32::MAX - 5),
                is_cut: bit(0),
                is_listed: bit(5),
            };
            list.push(&frame).unwrap();
            want.push(frame);
        }
        list.finish().unwrap();
        assert!(list.iter().eq(want.iter().cloned()));
        list.adopt_seek_sizes().unwrap();
        assert!(list.iter().all(|frame| frame.content.is_some() || frame.seek_content.is_none()));
        assert!(list.update(64, |_| ()).is_err());
        let mut skippables = SkippableList::new(&Account::new(0, 0));
        skippables.push(&Skippable { at: FileOffset(9), nibble: 15, len: u32::MAX.into() }).unwrap();
        let skip = skippables.get(0).unwrap();
        assert_eq!((skip.at.0, skip.nibble, skip.len), (9, 15, u64::from(u32::MAX)));
        assert_eq!((list.len(), skippables.len()), (64, 1));
    }
}
