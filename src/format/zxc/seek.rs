//! Seek tables: the locations of all blocks without reading their headers.
//!
//! Reference: sections 2.4 (versions 5 to 8) and 11.7 (version 9) of the ZXC reference.
//!
//! Checked: every entry, every anchor, and that the blocks fill the frame up to its EOF block. Entries are checked
//! against block headers when the blocks are decoded.
//!
//! Limits: the index is charged; the table itself is read a few KiB at a time.
//!
//! Invariants: a table is read only if it fits in the file.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::{SmallReads, Source};

use super::footer::{self, Footer};
use super::header::{BlockHeader, FileHeader, ZxcBlockKind};
use super::offset_list::OffsetList;

/// Number of blocks per anchor in version 9.
const GROUP: u64 = 64;

/// The state of the seek table of a frame.
#[derive(Debug, Clone)]
pub(super) enum Seek {
    /// There is none.
    Absent,
    /// It passed its checks, and the index was made from it.
    Used,
    /// It is wrong, and the index was made from the block headers.
    Wrong(Error),
}

/// Reads the block header at `at`, which must be of a SEK block.
fn sek_header(source: &Source, header: &FileHeader, at: FileOffset) -> Result<BlockHeader> {
    let bytes = Cursor::new(&source.get(at, BlockHeader::LEN, "SEK block header")?, at).array("SEK block header")?;
    let block = BlockHeader::parse(header.version, bytes, at)?;
    if block.kind == ZxcBlockKind::Sek {
        Ok(block)
    } else {
        Err(Error::corrupt("not a SEK block", "block type").at(at))
    }
}

/// The value of a check, or `None` if the bytes fail it; other errors, such as a failed read, are returned.
fn passed<T>(checked: Result<T>) -> Result<Option<T>> {
    match checked {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_lasting() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether a SEK block for `count` blocks starts at `at` (versions 5 to 8).
pub(super) fn is_old(source: &Source, header: &FileHeader, at: FileOffset, count: u64) -> Result<bool> {
    // Without the size check, a footer can look like a SEK block (section 2.4).
    let is_size = |block: BlockHeader| Some(u64::from(block.comp_size)) == count.checked_mul(4);
    Ok(passed(sek_header(source, header, at))?.is_some_and(is_size))
}

/// Reads the table before the footer in versions 5 to 8; `None` if there is none, and the inner error if it is wrong.
///
/// # Errors
/// Fails if the table cannot be read now.
pub(super) fn old(
    source: &Source,
    header: &FileHeader,
    footer: &Footer,
    limits: &Limits,
    account: &Account,
) -> Result<Option<Result<OffsetList>>> {
    let count = header.blocks_of(footer.total);
    let table = count.checked_mul(4).and_then(|size| footer.at.0.checked_sub(size));
    let sek = table.and_then(|table| table.checked_sub(BlockHeader::LEN)).filter(|&sek| sek >= FileHeader::LEN);
    let (Some(table), Some(sek)) = (table.map(FileOffset), sek.map(FileOffset)) else { return Ok(None) };
    if count == 0 || !is_old(source, header, sek, count)? {
        return Ok(None);
    }
    let read = || {
        Limits::check(count, limits.entries, "blocks")?;
        let eof = eof_before(source, header, sek)?;
        let mut parser = TableParser::new(header, FileOffset(0), eof, count, account)?;
        let mut entries = SmallReads::new(source);
        for block in 0..count {
            parser.push(&mut entries, table.plus(block.saturating_mul(4)))?;
        }
        parser.finish(sek)
    };
    match read() {
        Err(e) if !e.is_lasting() => Err(e),
        blocks => Ok(Some(blocks)),
    }
}

/// Size of the table of a version 9 frame.
fn new_size(count: u64) -> u64 {
    count.div_ceil(GROUP).saturating_mul(8).saturating_add(count.saturating_mul(4))
}

/// Whether a SEK block of the right size fills the space between EOF block and footer (version 9).
pub(super) fn is_new(source: &Source, header: &FileHeader, at: FileOffset, footer: &Footer) -> Result<bool> {
    let size = new_size(header.blocks_of(footer.total));
    let fits = at.plus(BlockHeader::LEN).plus(size) == footer.at;
    Ok(fits && passed(sek_of(source, header, at, size))?.is_some())
}

/// Checks that the header at `at` is that of a version 9 SEK block with a table of `size` bytes.
fn sek_of(source: &Source, header: &FileHeader, at: FileOffset, size: u64) -> Result<()> {
    if u64::from(sek_header(source, header, at)?.comp_size) == (size ^ (size >> 32)) & u64::from(u32::MAX) {
        return Ok(());
    }
    Err(Error::corrupt("not the size of the table", "SEK size").at(at.plus(3)))
}

/// Reads the table that the header of a version 9 frame announces.
pub(super) fn new(
    source: &Source,
    header: &FileHeader,
    frame: FileOffset,
    footer: &Footer,
    limits: &Limits,
    account: &Account,
) -> Result<OffsetList> {
    let count = Limits::check(header.blocks_of(footer.total), limits.entries, "blocks")?;
    let size = new_size(count);
    let misfit = || Error::corrupt("the seek table does not fit in the frame", "SEK block").at(footer.at);
    let table = FileOffset(footer.at.0.checked_sub(size).ok_or_else(misfit)?);
    let sek = FileOffset(table.0.checked_sub(BlockHeader::LEN).ok_or_else(misfit)?);
    sek_of(source, header, sek, size)?;
    let eof = eof_before(source, header, sek)?;
    let mut parser = TableParser::new(header, frame, eof, count, account)?;
    let mut entries = SmallReads::new(source);
    let mut at = table;
    for block in 0..count {
        if block % GROUP == 0 {
            let anchor = u64::from_le_bytes(entries.array(at, "seek anchor")?);
            if frame.0.checked_add(anchor) != Some(parser.at) {
                return Err(Error::corrupt("not where the block group starts", "seek anchor").at(at));
            }
            at = at.plus(8);
        }
        parser.push(&mut entries, at)?;
        at = at.plus(4);
    }
    parser.finish(sek)
}

/// Offset of the EOF block before the SEK block at `sek`.
fn eof_before(source: &Source, header: &FileHeader, sek: FileOffset) -> Result<FileOffset> {
    let missing = || Error::corrupt("no EOF block before the seek table", "EOF block").at(sek);
    let eof = FileOffset(sek.0.checked_sub(BlockHeader::LEN).ok_or_else(missing)?);
    let bytes = Cursor::new(&source.get(eof, BlockHeader::LEN, "EOF block")?, eof).array("EOF block")?;
    match BlockHeader::parse(header.version, bytes, eof)?.kind {
        ZxcBlockKind::Eof => Ok(eof),
        _ => Err(missing()),
    }
}

/// Accumulates block offsets from the sizes in a table.
struct TableParser {
    blocks: OffsetList,
    /// Offset of the next block.
    at: u64,
    eof: FileOffset,
    smallest: u64,
    largest: u64,
}

impl TableParser {
    /// Starts with the first block of the frame at `frame`; the table has `count` entries.
    fn new(header: &FileHeader, frame: FileOffset, eof: FileOffset, count: u64, account: &Account) -> Result<Self> {
        let smallest = BlockHeader::LEN.saturating_add(header.checksum_len());
        let largest = smallest.saturating_add(header.block_size.into()).saturating_add(1 << 16);
        let blocks = OffsetList::new(account, count.saturating_add(1))?;
        Ok(Self { blocks, at: frame.plus(FileHeader::LEN).0, eof, smallest, largest })
    }

    /// Adds the entry at `at`.
    fn push(&mut self, entries: &mut SmallReads, at: FileOffset) -> Result<()> {
        let size = u64::from(u32::from_le_bytes(entries.array(at, "seek entry")?));
        self.blocks.push(self.at)?;
        self.at = self.at.saturating_add(size);
        if size < self.smallest || size > self.largest || self.at > self.eof.0 {
            return Err(Error::corrupt("not a valid block size here", "seek entry").at(at));
        }
        Ok(())
    }

    /// Returns the blocks if they end at the EOF block before the SEK block at `sek`.
    fn finish(mut self, sek: FileOffset) -> Result<OffsetList> {
        if self.at != self.eof.0 {
            return Err(Error::corrupt("the blocks do not reach the EOF block", "seek table").at(sek));
        }
        self.blocks.push(self.at)?;
        Ok(self.blocks)
    }
}

/// Distance from the end of the EOF block to the end of a version 5 to 8 file with a table of `count` blocks.
pub(super) fn old_len(count: u64) -> u64 {
    count.saturating_mul(4).saturating_add(BlockHeader::LEN).saturating_add(footer::OLD_LEN)
}
