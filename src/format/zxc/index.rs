//! The index of a file: its frames and their blocks, located without decoding anything.
//!
//! Reference: sections 2, 7, 11.5, 11.6 and 11.7 of the ZXC reference.
//!
//! Versions 4 to 8 have one frame. Frames of version 9 are found from the end of the file, as each footer stores the
//! size of its frame. The blocks of a frame are located by its seek table or, if that is missing or wrong, by following
//! the block headers.
//!
//! Limits: number of blocks of a frame against the size of the file and `Limits::entries`; the index and the frames are
//! charged as they grow.
//!
//! Invariants: decodes nothing; every offset in a [`ZxcFrame`] is inside the file.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Kind as What, Result};
use crate::limits::{Charge, Limits};
use crate::source::{SmallReads, Source};

use super::footer::{self, Footer, Tail};
use super::header::{BlockHeader, FileHeader, ZxcBlockKind};
use super::offset_list::OffsetList;
use super::seek::{self, Seek};
use super::version::ZxcVersion;

/// A frame: file header, blocks and footer.
#[derive(Debug)]
pub(super) struct ZxcFrame {
    /// Offset of the frame.
    pub(super) at: FileOffset,
    pub(super) header: FileHeader,
    pub(super) footer: Footer,
    pub(super) seek: Seek,
    /// Offsets of the data blocks and of the EOF block: at least one entry.
    blocks: OffsetList,
    _charge: Charge,
}

/// Memory of a frame: the list of frames grows by copying to twice its size, and each is moved to its own allocation.
const FRAME: usize = 4 * size_of::<ZxcFrame>();

impl ZxcFrame {
    /// Number of data blocks.
    pub(super) fn count(&self) -> u64 {
        self.blocks.len().saturating_sub(1)
    }

    /// Whether the number of blocks is that of a frame of full blocks, as written by every known writer.
    pub(super) fn has_full_count(&self) -> bool {
        self.header.blocks_of(self.footer.total) == self.count()
    }

    /// Bytes of all blocks, with the file header and the EOF block.
    pub(super) fn stored(&self) -> u64 {
        self.footer.at.0.saturating_sub(self.at.0)
    }

    /// Offset and size of data block `index`, including header and checksum.
    pub(super) fn block(&self, index: u64) -> Option<(FileOffset, u64)> {
        let (start, end) = (self.blocks.get(index)?, self.blocks.get(index.checked_add(1)?)?);
        Some((FileOffset(start), end.checked_sub(start)?))
    }
}

/// Locates the frames of the file, in order; returns at least one.
pub(super) fn frames(source: &Source, limits: &Limits, account: &Account) -> Result<Vec<ZxcFrame>> {
    let header = read_header(source, FileOffset(0))?;
    if header.version < ZxcVersion::V9 {
        return Ok(vec![single(source, header, limits, account)?]);
    }
    let mut frames = Vec::new();
    let mut end = FileOffset(source.len());
    while end.0 > 0 {
        let frame = last(source, end, limits, account).map_err(|e| clearer(source, &header, limits, account, e))?;
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
fn clearer(source: &Source, header: &FileHeader, limits: &Limits, account: &Account, error: Error) -> Error {
    if !error.is_lasting() {
        return error;
    }
    walk(source, header, FileOffset(0), limits, account).err().unwrap_or(error)
}

/// Locates the single frame of a file of versions 4 to 8.
fn single(source: &Source, header: FileHeader, limits: &Limits, account: &Account) -> Result<ZxcFrame> {
    let start = FileOffset(0);
    let shortest = FileHeader::LEN.saturating_add(BlockHeader::LEN).saturating_add(footer::OLD_LEN);
    let footer_at = FileOffset(source.len().saturating_sub(footer::OLD_LEN));
    let table = if source.len() < shortest {
        None
    } else {
        seek::old(source, &header, &footer::old(source, footer_at)?, limits, account)?
    };
    let broken = match table {
        Some(Ok(blocks)) => {
            let footer = footer::old(source, footer_at)?;
            return frame(start, header, footer, Seek::Used, blocks, account);
        }
        Some(Err(e)) => Some(e),
        None => None,
    };
    let (blocks, after) = walk(source, &header, start, limits, account)?;
    let count = blocks.len().saturating_sub(1);
    let left = source.len().saturating_sub(after.0);
    let seek = if left == footer::OLD_LEN {
        Seek::Absent
    } else if left < footer::OLD_LEN {
        return Err(Error::new(What::Truncated { need: footer::OLD_LEN, have: left }, "file footer").at(after));
    } else if seek::is_old(source, &header, after, count)? && left == seek::old_len(count) {
        // An empty table is reported as absent: no writer emits one, but it is not wrong.
        match broken {
            None if count == 0 => Seek::Absent,
            e => Seek::Wrong(e.unwrap_or_else(|| {
                Error::corrupt("not the number of blocks that total requires", "seek table").at(after)
            })),
        }
    } else {
        return Err(Error::corrupt("the EOF block is not followed by a footer", "file footer").at(after));
    };
    let footer = footer::old(source, footer_at)?;
    frame(start, header, footer, seek, blocks, account)
}

/// Locates the version 9 frame that ends at `end`.
fn last(source: &Source, end: FileOffset, limits: &Limits, account: &Account) -> Result<ZxcFrame> {
    let tail = Tail::read(source, end)?;
    let header = read_header(source, tail.frame)?;
    if header.version != ZxcVersion::V9 {
        return Err(
            Error::corrupt("only version 9 frames can follow each other", "format version").at(tail.frame.plus(4))
        );
    }
    let footer = tail.footer(source, &header)?;
    let broken = match header.seek_table.then(|| seek::new(source, &header, tail.frame, &footer, limits, account)) {
        Some(Ok(blocks)) => return frame(tail.frame, header, footer, Seek::Used, blocks, account),
        Some(Err(e)) if !e.is_lasting() => return Err(e),
        Some(Err(e)) => Some(e),
        None => None,
    };
    let (blocks, after) = walk(source, &header, tail.frame, limits, account)?;
    let seek = match broken {
        Some(e) if seek::is_new(source, &header, after, &footer)? => Seek::Wrong(e),
        Some(e) => return Err(e),
        _ if after == footer.at => Seek::Absent,
        _ => return Err(Error::corrupt("the footer does not follow the EOF block", "footer").at(after)),
    };
    frame(tail.frame, header, footer, seek, blocks, account)
}

/// Checks footer and blocks against each other, and charges the frame.
fn frame(
    at: FileOffset,
    header: FileHeader,
    footer: Footer,
    seek: Seek,
    blocks: OffsetList,
    account: &Account,
) -> Result<ZxcFrame> {
    let count = blocks.len().saturating_sub(1);
    if header.blocks_of(footer.total) > count {
        return Err(Error::corrupt("more than the blocks can hold", "total").at(footer.total_at));
    }
    let charge = account.charge(to_u64(FRAME), "list of frames")?;
    Ok(ZxcFrame { at, header, footer, seek, blocks, _charge: charge })
}

/// Follows the block headers; returns the blocks and the end of the EOF block.
fn walk(
    source: &Source,
    header: &FileHeader,
    frame: FileOffset,
    limits: &Limits,
    account: &Account,
) -> Result<(OffsetList, FileOffset)> {
    let mut headers = SmallReads::new(source);
    let mut blocks = OffsetList::new(account, 0)?;
    let mut at = frame.plus(FileHeader::LEN);
    loop {
        Limits::check(blocks.len(), limits.entries, "blocks")?;
        if at.0 == source.len() {
            return Err(Error::corrupt("the file ends without an EOF block", "EOF block").at(at));
        }
        let block = BlockHeader::parse(header.version, headers.array(at, "block header")?, at)?;
        blocks.push(at.0)?;
        if block.kind == ZxcBlockKind::Eof {
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
