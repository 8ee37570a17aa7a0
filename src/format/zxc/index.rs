//! The index of a file: its frames and their blocks, located without decoding anything.
//!
//! Reference: sections 2, 7, 11.5, 11.6 and 11.7 of the ZXC reference.
//!
//! Versions 5 to 8 have one frame. Frames of version 9 are found from the end of the file, as each footer stores the
//! size of its frame. The blocks of a frame are located by its seek table or, if that is missing or wrong, by following
//! the block headers.
//!
//! Limits: number of blocks of a frame against the size of the file and `Limits::entries`; the index itself against
//! the budget.
//!
//! Invariants: decodes nothing; every offset in a [`Frame`] is inside the file.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Kind as What, Result};
use crate::limits::{Budget, Charge, Limits};
use crate::source::Source;

use super::footer::{self, Footer, Tail};
use super::header::{BlockHeader, FileHeader, Kind, Version};
use super::seek::{self, Blocks, Seek};

/// A frame: file header, blocks and footer.
#[derive(Debug)]
pub(super) struct Frame {
    /// Offset of the frame.
    pub(super) at: FileOffset,
    pub(super) header: FileHeader,
    pub(super) footer: Footer,
    pub(super) seek: Seek,
    /// Offsets of the data blocks and of the EOF block: at least one entry.
    blocks: Blocks,
    _charge: Charge,
}

impl Frame {
    /// Number of data blocks.
    pub(super) fn count(&self) -> u64 {
        to_u64(self.blocks.len()).saturating_sub(1)
    }

    /// Offset and size of data block `index`, including header and checksum.
    pub(super) fn block(&self, index: u64) -> Option<(FileOffset, u64)> {
        let i = usize::try_from(index).ok()?;
        let (start, end) = (*self.blocks.get(i)?, *self.blocks.get(i.checked_add(1)?)?);
        Some((FileOffset(start), end.checked_sub(start)?))
    }
}

/// Locates the frames of the file, in order; returns at least one.
pub(super) fn frames(source: &Source, limits: &Limits, budget: &Budget) -> Result<Vec<Frame>> {
    let header = read_header(source, FileOffset(0))?;
    if header.version < Version::V9 {
        return Ok(vec![single(source, header, limits, budget)?]);
    }
    let mut frames = Vec::new();
    let mut end = FileOffset(source.len());
    while end.0 > 0 {
        let frame = last(source, end, limits, budget).map_err(|e| clearer(source, &header, limits, e))?;
        Limits::check(to_u64(frames.len()), limits.entries, "frames")?;
        end = frame.at;
        frames.push(frame);
    }
    frames.reverse();
    Ok(frames)
}

fn read_header(source: &Source, at: FileOffset) -> Result<FileHeader> {
    let len = FileHeader::LEN.min(source.len().saturating_sub(at.0));
    FileHeader::parse(&mut Cursor::new(&source.get(at, len, "file header")?, at))
}

/// Replaces `error` by the position of the incomplete block if the first frame is truncated.
fn clearer(source: &Source, header: &FileHeader, limits: &Limits, error: Error) -> Error {
    walk(source, header, FileOffset(0), limits).err().unwrap_or(error)
}

/// Locates the single frame of a file of versions 5 to 8.
fn single(source: &Source, header: FileHeader, limits: &Limits, budget: &Budget) -> Result<Frame> {
    let start = FileOffset(0);
    let shortest = FileHeader::LEN.saturating_add(BlockHeader::LEN).saturating_add(footer::OLD_LEN);
    let footer_at = FileOffset(source.len().saturating_sub(footer::OLD_LEN));
    let table = if source.len() < shortest {
        None
    } else {
        seek::old(source, &header, &footer::old(source, footer_at)?, limits)
    };
    let broken = match table {
        Some(Ok(blocks)) => {
            let footer = footer::old(source, footer_at)?;
            return frame(start, header, footer, Seek::Used, blocks, budget);
        }
        Some(Err(e)) => Some(e),
        None => None,
    };
    let (blocks, after) = walk(source, &header, start, limits)?;
    let count = to_u64(blocks.len()).saturating_sub(1);
    let left = source.len().saturating_sub(after.0);
    let seek = if left == footer::OLD_LEN {
        Seek::Absent
    } else if left < footer::OLD_LEN {
        return Err(Error::new(What::Truncated { need: footer::OLD_LEN, have: left }, "file footer").at(after));
    } else if seek::is_old(source, &header, after, count) && left == seek::old_len(count) {
        // An empty table is reported as absent: no writer emits one, but it is not wrong.
        match broken {
            None if count == 0 => Seek::Absent,
            e => Seek::Broken(e.unwrap_or_else(|| {
                Error::corrupt("not the number of blocks that the total needs", "seek table").at(after)
            })),
        }
    } else {
        return Err(Error::corrupt("bytes that are no footer follow the EOF block", "file footer").at(after));
    };
    let footer = footer::old(source, footer_at)?;
    frame(start, header, footer, seek, blocks, budget)
}

/// Locates the version 9 frame that ends at `end`.
fn last(source: &Source, end: FileOffset, limits: &Limits, budget: &Budget) -> Result<Frame> {
    let tail = Tail::read(source, end)?;
    let header = read_header(source, tail.frame)?;
    if header.version != Version::V9 {
        return Err(
            Error::corrupt("only version 9 frames stand one after another", "format version").at(tail.frame.plus(4))
        );
    }
    let footer = tail.footer(source, &header)?;
    let table = header.seek_table.then(|| seek::new(source, &header, tail.frame, &footer, limits));
    if let Some(Ok(blocks)) = table {
        return frame(tail.frame, header, footer, Seek::Used, blocks, budget);
    }
    let (blocks, after) = walk(source, &header, tail.frame, limits)?;
    let seek = match table {
        Some(Err(e)) if seek::is_new(source, &header, after, &footer) => Seek::Broken(e),
        Some(Err(e)) => return Err(e),
        _ if after == footer.at => Seek::Absent,
        _ => return Err(Error::corrupt("the footer does not follow the EOF block", "footer").at(after)),
    };
    frame(tail.frame, header, footer, seek, blocks, budget)
}

/// Checks footer and blocks against each other, and charges the index.
fn frame(
    at: FileOffset,
    header: FileHeader,
    footer: Footer,
    seek: Seek,
    blocks: Blocks,
    budget: &Budget,
) -> Result<Frame> {
    let count = to_u64(blocks.len()).saturating_sub(1);
    if header.blocks_of(footer.total) > count {
        return Err(Error::corrupt("more than the blocks can hold", "total").at(footer.total_at));
    }
    let bytes = to_u64(blocks.capacity()).saturating_mul(8).saturating_add(to_u64(size_of::<Frame>()));
    let charge = budget.charge(bytes, "block index")?;
    Ok(Frame { at, header, footer, seek, blocks, _charge: charge })
}

/// Follows the block headers; returns the blocks and the end of the EOF block.
fn walk(source: &Source, header: &FileHeader, frame: FileOffset, limits: &Limits) -> Result<(Blocks, FileOffset)> {
    let mut window = Window { source, bytes: Vec::new(), at: FileOffset(0) };
    let mut blocks = Blocks::new();
    let mut at = frame.plus(FileHeader::LEN);
    loop {
        Limits::check(to_u64(blocks.len()), limits.entries, "blocks")?;
        if at.0 == source.len() {
            return Err(Error::corrupt("the file ends without an EOF block", "EOF block").at(at));
        }
        let block = BlockHeader::parse(header.version, window.header(at)?, at)?;
        blocks.push(at.0);
        if block.kind == Kind::Eof {
            return Ok((blocks, at.plus(BlockHeader::LEN)));
        }
        let size = block.physical_size(header, at)?;
        let have = source.len().saturating_sub(at.0);
        if size > have {
            return Err(Error::new(What::Truncated { need: size, have }, "block").at(at));
        }
        at = at.plus(size);
    }
}

/// A read buffer of a few KiB, so that the headers of small blocks do not cost a read each.
struct Window<'a> {
    source: &'a Source,
    bytes: Vec<u8>,
    at: FileOffset,
}

impl Window<'_> {
    const LEN: u64 = 4096;

    fn header(&mut self, at: FileOffset) -> Result<[u8; 8]> {
        let inside = |w: &Self| {
            let skip = usize::try_from(at.0.checked_sub(w.at.0)?).ok()?;
            w.bytes.get(skip..)?.first_chunk::<8>().copied()
        };
        if let Some(header) = inside(self) {
            return Ok(header);
        }
        let have = self.source.len().saturating_sub(at.0);
        self.bytes = self.source.get(at, Self::LEN.min(have), "block header")?;
        self.at = at;
        Cursor::new(&self.bytes, at).array("block header")
    }
}
