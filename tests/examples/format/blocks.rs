//! The blocks: where they are, and their decoded bytes.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use fzmfs::account::{Account, Records};
use fzmfs::bytes::{Cursor, FileOffset, to_u64, to_usize};
use fzmfs::checksum::Verified;
use fzmfs::error::{Error, Kind, Result};
use fzmfs::format::{Blob, Far, Layout, Need};
use fzmfs::source::{SmallReads, Source};

use super::header::Header;

/// Bytes of a block in the list.
const ROW: u64 = 8;
/// Bytes of a run.
const RUN: u64 = 2;

/// The decoded content, of which each block is a piece.
pub(super) struct Blocks {
    pub(super) source: Arc<Source>,
    /// Bytes of content.
    pub(super) content: u64,
    /// Decoded bytes of a block.
    block: u64,
    /// Of each block, where its stored bytes end, and its checksum. Charged to the account, and on disk if it is long.
    list: Records<2>,
    /// Where the stored bytes of the first block begin.
    start: FileOffset,
    account: Account,
}

/// A stored block.
pub(super) struct Block {
    pub(super) at: FileOffset,
    pub(super) end: FileOffset,
    /// The CRC-32 of its decoded bytes.
    pub(super) crc: u32,
}

impl Blocks {
    /// Reads the list of blocks.
    ///
    /// # Errors
    /// Fails if the file ends before the list does, a stored block is too long, or the account has no room for the list.
    pub(super) fn read(source: &Arc<Source>, header: &Header, account: &Account) -> Result<Self> {
        // Before anything is allocated, or read in a loop: as many rows as the file has bytes for.
        let (count, have) = (header.content.div_ceil(header.block), source.len().saturating_sub(to_u64(Header::LEN)));
        let need = count.saturating_mul(ROW);
        if need > have {
            let at = FileOffset(to_u64(Header::LEN));
            return Err(Error::new(Kind::Truncated { need, have }, "list of blocks").at(at));
        }
        let (mut rows, mut list) = (SmallReads::new(source), Records::new(account, "list of blocks"));
        let start = FileOffset(to_u64(Header::LEN)).plus(need);
        let mut end = start;
        for number in 0..count {
            let at = FileOffset(to_u64(Header::LEN)).plus(number * ROW);
            let row = rows.array::<8>(at, "list of blocks")?;
            let mut fields = Cursor::new(&row, at);
            let (stored, crc) = (u64::from(fields.u32_le("stored size")?), fields.u32_le("block checksum")?);
            // No more than its content can take: it is read into memory.
            if stored > RUN * header.block {
                let why = format!("{stored} bytes, of which {} decode to a block", RUN * header.block);
                return Err(Error::corrupt(why, "stored size").at(at).within(format_args!("block {number}")));
            }
            end = end.plus(stored);
            list.push([end.0, crc.into()])?;
        }
        list.finish()?;
        // Of a file that is cut off, the blocks that are there can be read; the others are errors of their reads.
        let Header { block, content } = *header;
        Ok(Self { source: source.clone(), content, block, list, start, account: account.clone() })
    }

    pub(super) fn count(&self) -> u64 {
        to_u64(self.list.len())
    }

    /// Block `number`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none.
    pub(super) fn block(&self, number: u64) -> Result<Block> {
        let index = to_usize(number, "block")?;
        let row = self.list.get(index).ok_or_else(|| Error::new(Kind::NotFound, "block"))?;
        let before = index.checked_sub(1).and_then(|before| self.list.get(before));
        let at = before.map_or(self.start, |[end, _]| FileOffset(end));
        Ok(Block { at, end: FileOffset(row[0]), crc: row[1] as u32 })
    }

    fn decode_block(&self, number: u64, dst: &mut [u8]) -> Result<()> {
        let Block { at, end, crc } = self.block(number)?;
        let len = end.0 - at.0;
        let _charge = self.account.charge_list(len, "stored block")?;
        let stored = self.source.get(at, len, "block")?;
        decode(&stored, dst).map_err(|(at_run, why)| Error::corrupt(why, "run").at(at.plus(to_u64(at_run))))?;
        // Before a byte of the block is served.
        let (stored, computed) = (crc.into(), crc32fast::hash(dst).into());
        if stored != computed {
            return Err(Error::new(Kind::Checksum { stored, computed }, "block checksum").at(at));
        }
        Ok(())
    }
}

impl Blob for Blocks {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: self.content, piece: self.block })
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        self.decode_block(piece, dst).map_err(|e| e.within(format_args!("block {piece}")))
    }

    fn verified(&self, _: Range<u64>) -> Verified {
        // With each decode.
        Verified::Yes
    }

    fn far(&self) -> Option<&dyn Far> {
        if self.source.is_far() { Some(self) } else { None }
    }
}

/// For files on a server: its readers announce what they are about to decode, so that it comes with few requests.
impl Far for Blocks {
    fn announce(&self, ranges: &[Range<u64>], need: Need) {
        let stored = |range: &Range<u64>| {
            let last = range.end.checked_sub(1)? / self.block;
            Some(self.block(range.start / self.block).ok()?.at.0..self.block(last).ok()?.end.0)
        };
        self.source.announce(&ranges.iter().filter_map(stored).collect::<Vec<_>>(), need);
    }
}

/// Decodes the runs `src` into `dst`, which they fill.
///
/// # Errors
/// The place of a run in `src`, and what is wrong with it.
fn decode(src: &[u8], dst: &mut [u8]) -> Result<(), (usize, &'static str)> {
    let (runs, rest) = src.as_chunks::<2>();
    let mut left = dst;
    for (number, &[count, byte]) in runs.iter().enumerate() {
        let fail = |why| (2 * number, why);
        if count == 0 {
            return Err(fail("no bytes"));
        }
        let (run, after) =
            left.split_at_mut_checked(count.into()).ok_or_else(|| fail("ends behind the end of its block"))?;
        run.fill(byte);
        left = after;
    }
    match (rest, left) {
        ([], []) => Ok(()),
        ([], _) => Err((src.len(), "the block ends before it is full")),
        _ => Err((src.len() - 1, "half a run")),
    }
}
