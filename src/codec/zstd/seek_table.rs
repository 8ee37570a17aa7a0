//! The seek table at the end of a seekable file. It is only used if it agrees with the frames; `frames` verifies its
//! checksums against the content.
//!
//! Reference: section 5.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::source::Source;

use super::frame::{Frame, SeekChecksum, Skippable};
use super::frame_scan::FrameScan;

/// The last four bytes of a seekable file, as a little-endian number.
const MAGIC: u32 = 0x8F92_EAB1;
const FOOTER: u64 = 9;

/// One row of the table, for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Stored size.
    pub stored: u32,
    /// Decoded size.
    pub content: u32,
    /// The checksum of the content, if the table has checksums.
    pub checksum: Option<SeekChecksum>,
}

/// A table that agrees with the frames, with one row for each frame with content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Where its skippable frame starts.
    pub at: FileOffset,
    /// The rows of frames with content, in file order.
    pub rows: Vec<Row>,
    /// The byte that describes the rows.
    pub descriptor: u8,
}

/// The skippable frame that may contain a seek table: it ends at `end`.
fn candidate(end: FileOffset, scan: &FrameScan) -> Option<Skippable> {
    let last = scan.skippables.last()?;
    let ends = last.data_at().plus(last.len) == end;
    (ends && last.nibble == 0xE && last.len >= FOOTER).then_some(*last)
}

/// Reads the table, if the scanned range `range` ends with one.
///
/// # Errors
/// Fails if there is one but it contradicts itself or the frames.
pub fn read(source: &Source, range: Range<FileOffset>, scan: &FrameScan) -> Result<Option<Table>> {
    let Some(frame) = candidate(range.end, scan) else { return Ok(None) };
    let stored = frame.len.saturating_sub(FOOTER);
    let footer_at = frame.data_at().plus(stored);
    let footer = source.get(footer_at, FOOTER, "seek table")?;
    let mut cur = Cursor::new(&footer, footer_at);
    let count = u64::from(cur.u32_le("seek table: number of frames")?);
    let descriptor_at = cur.at();
    let descriptor = cur.u8("seek table: descriptor")?;
    if cur.u32_le("seek table: magic number")? != MAGIC {
        return Ok(None);
    }
    if descriptor & 0x7C != 0 {
        return Err(Error::corrupt("a reserved bit is set", "seek table: descriptor").at(descriptor_at));
    }
    let has_checksums = descriptor & 0x80 != 0;
    let width: u64 = if has_checksums { 12 } else { 8 };
    if count.checked_mul(width) != Some(stored) {
        return Err(
            Error::corrupt(format!("{count} rows do not fill the table"), "seek table: number of frames").at(footer_at)
        );
    }
    // Before the rows are read: there is one for each frame.
    if count > to_u64(things(scan).count()) {
        return Err(Error::corrupt("more rows than frames", "seek table: number of frames").at(footer_at));
    }
    let rows = source.get(frame.data_at(), stored, "seek table")?;
    let mut table = Table { at: frame.at, rows: Vec::new(), descriptor };
    let mut cur = Cursor::new(&rows, frame.data_at());
    let mut things = things(scan);
    let mut at = range.start;
    while !cur.is_empty() {
        let row_at = cur.at();
        let stored = cur.u32_le("seek table: compressed size")?;
        let content = cur.u32_le("seek table: decompressed size")?;
        let at_checksum = cur.at();
        let checksum = if has_checksums { Some(cur.u32_le("seek table: checksum")?) } else { None };
        let checksum = checksum.map(|stored| SeekChecksum { stored, at: at_checksum });
        let wrong = |why: String| Error::corrupt(why, "seek table").at(row_at);
        // Rows cover the file from its start without gaps, skippable frames included.
        match things.next() {
            Some(t) if t.at == at && t.stored == u64::from(stored) => {
                at = at.plus(t.stored);
                let Some(frame) = t.frame else {
                    if content != 0 {
                        return Err(wrong("a skippable frame with content".into()));
                    }
                    continue;
                };
                let fits = frame.content.map_or(u64::from(content) <= frame.bound, |n| n == u64::from(content));
                if !fits {
                    return Err(wrong(format!("a frame of {content} bytes that its blocks do not give")));
                }
                table.rows.push(Row { stored, content, checksum });
            }
            _ => return Err(wrong(format!("no frame of {stored} bytes starts at byte {:#x}", at.0))),
        }
    }
    if at != frame.at || table.rows.len() != scan.frames.len() {
        return Err(Error::corrupt("its rows do not cover the file", "seek table").at(frame.at));
    }
    Ok(Some(table))
}

struct Thing<'a> {
    at: FileOffset,
    stored: u64,
    frame: Option<&'a Frame>,
}

/// Frames and skippable frames together, in file order.
fn things(scan: &FrameScan) -> impl Iterator<Item = Thing<'_>> {
    let frames = scan.frames.iter().map(|f| Thing { at: f.at, stored: f.stored, frame: Some(f) });
    let skips = scan.skippables.iter().map(|s| Thing { at: s.at, stored: s.len.saturating_add(8), frame: None });
    let (mut frames, mut skips) = (frames.peekable(), skips.peekable());
    std::iter::from_fn(move || match (frames.peek(), skips.peek()) {
        (Some(f), Some(s)) if f.at > s.at => skips.next(),
        (Some(_), _) => frames.next(),
        (None, _) => skips.next(),
    })
}
