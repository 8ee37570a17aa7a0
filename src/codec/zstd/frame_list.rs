//! The frames of a file in packed lists, which may be in a temporary file: a file may have millions of frames.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

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
}

/// The frames with content, in file order.
#[derive(Debug)]
pub struct FrameList(Records<10>);

impl FrameList {
    /// Creates an empty list.
    pub(super) fn new(account: &Account) -> Self {
        Self(Records::new(account, WHAT))
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frame `index`.
    pub fn get(&self, index: usize) -> Option<Frame> {
        self.0.get(index).map(unpack)
    }

    /// The frames in order.
    pub fn iter(&self) -> impl Iterator<Item = Frame> {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// Changes frame `index`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    pub fn update(&mut self, index: usize, change: impl FnOnce(&mut Frame)) -> Result<()> {
        let mut frame = self.get(index).ok_or_else(|| Error::new(Kind::NotFound, "frame"))?;
        change(&mut frame);
        self.0.set(index, pack(&frame))
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

    /// Adds a frame.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn push(&mut self, frame: &Frame) -> Result<()> {
        self.0.push(pack(frame))
    }

    /// Marks the list as complete.
    pub(super) fn finish(&mut self) {
        self.0.finish();
    }
}

/// The skippable frames, in file order.
#[derive(Debug)]
pub struct SkippableList(Records<2>);

impl SkippableList {
    /// Creates an empty list.
    pub(super) fn new(account: &Account) -> Self {
        Self(Records::new(account, WHAT))
    }

    /// The number of skippable frames.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Skippable frame `index`.
    pub fn get(&self, index: usize) -> Option<Skippable> {
        let [at, rest] = self.0.get(index)?;
        let (len, nibble) = halves(rest);
        Some(Skippable { at: FileOffset(at), nibble: nibble.to_le_bytes()[0], len: len.into() })
    }

    /// The skippable frames in order.
    pub fn iter(&self) -> impl Iterator<Item = Skippable> {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// Adds a skippable frame of `len` bytes of user data.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn push(&mut self, at: FileOffset, nibble: u8, len: u32) -> Result<()> {
        self.0.push([at.0, word(len, nibble.into())])
    }

    /// Marks the list as complete.
    pub(super) fn finish(&mut self) {
        self.0.finish();
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

fn pack(frame: &Frame) -> [u64; 10] {
    let Header { generation, window, content_size, dictionary, has_checksum } = frame.header;
    let set = [
        (frame.content.is_some(), flag::CONTENT),
        // The content is then what the header states.
        (content_size.is_some(), flag::STATED),
        (has_checksum, flag::ANNOUNCED),
        (frame.checksum.is_some(), flag::CHECKSUM),
        (frame.seek_checksum.is_some(), flag::SEEK_CHECKSUM),
        (frame.seek_content.is_some(), flag::SEEK_CONTENT),
    ];
    let flags = set.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
    let generation: u64 = match generation {
        Generation::V05 => 5,
        Generation::V06 => 6,
        Generation::V07 => 7,
        Generation::Modern => 8,
    };
    // At most 18 bytes.
    let header = frame.blocks_at.0.saturating_sub(frame.at.0);
    let seek = frame.seek_checksum.unwrap_or(SeekChecksum { stored: 0, at: FileOffset(0) });
    [
        frame.at.0,
        frame.stored,
        content_size.or(frame.content).unwrap_or(0),
        window,
        frame.bound,
        frame.blocks,
        seek.at.0,
        word(frame.checksum.unwrap_or(0), seek.stored),
        word(frame.seek_content.unwrap_or(0), dictionary),
        header << 16 | generation << 8 | flags,
    ]
}

fn unpack([at, stored, content, window, bound, blocks, seek_at, checksums, more, kind]: [u64; 10]) -> Frame {
    let is_set = |flag| kind & flag != 0;
    let generation = match kind >> 8 & 0xFF {
        5 => Generation::V05,
        6 => Generation::V06,
        7 => Generation::V07,
        _ => Generation::Modern,
    };
    let ((checksum, seek_checksum), (seek_content, dictionary)) = (halves(checksums), halves(more));
    let (at, seek_checksum) = (FileOffset(at), SeekChecksum { stored: seek_checksum, at: FileOffset(seek_at) });
    Frame {
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
            };
            list.push(&frame).unwrap();
            want.push(frame);
        }
        list.finish();
        assert!(list.iter().eq(want.iter().cloned()));
        list.adopt_seek_sizes().unwrap();
        assert!(list.iter().all(|frame| frame.content.is_some() || frame.seek_content.is_none()));
        assert!(list.update(64, |_| ()).is_err());
        let mut skippables = SkippableList::new(&Account::new(0, 0));
        skippables.push(FileOffset(9), 15, u32::MAX).unwrap();
        let skip = skippables.get(0).unwrap();
        assert_eq!((skip.at.0, skip.nibble, skip.len), (9, 15, u64::from(u32::MAX)));
        assert_eq!((list.len(), skippables.len()), (64, 1));
    }
}
