//! The seek table at the end of a seekable file. It is only used if it agrees with the frames; `random_access` verifies
//! its checksums against the content.
//!
//! Reference: section 5.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Result};
use crate::source::Source;

use super::frame::{Frame, SeekChecksum, Skippable};
use super::frame_scan::FrameScan;

/// The last four bytes of a seekable file, as a little-endian number.
const MAGIC: u32 = 0x8F92_EAB1;
const FOOTER: u64 = 9;
/// Rows read at a time.
const WINDOW: u64 = 4096;

/// A table that agrees with the frames, with one row for each frame with content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekTable {
    /// Where its skippable frame starts.
    pub at: FileOffset,
    /// The byte that describes the rows.
    pub descriptor: u8,
    /// Where the rows start, how many there are, and whether they have checksums.
    rows_at: FileOffset,
    count: u64,
    has_checksums: bool,
}

/// The skippable frame that may contain a seek table: it ends at `end`.
fn candidate(end: FileOffset, scan: &FrameScan) -> Option<Skippable> {
    let last = scan.skippables.get(scan.skippables.len().checked_sub(1)?)?;
    let ends = last.data_at().plus(last.len) == end;
    (ends && last.nibble == 0xE && last.len >= FOOTER).then_some(last)
}

/// Reads the table, if the scanned range `range` ends with one, and enters its rows in the frames of `scan`.
///
/// # Errors
/// Fails if there is one but it contradicts itself or the frames; the frames then stay as they are.
pub fn read_seek_table(source: &Source, range: Range<FileOffset>, scan: &mut FrameScan) -> Result<Option<SeekTable>> {
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
        return Err(Error::corrupt("reserved bit set", "seek table: descriptor").at(descriptor_at));
    }
    let has_checksums = descriptor & 0x80 != 0;
    let table = SeekTable { at: frame.at, descriptor, rows_at: frame.data_at(), count, has_checksums };
    if count.checked_mul(table.row_size()) != Some(stored) {
        let why = format!("{count} rows do not fill the table");
        return Err(Error::corrupt(why, "seek table: number of frames").at(footer_at));
    }
    // All rows are checked before the first one is entered.
    table.read_rows(source, range.start, scan, false)?;
    table.read_rows(source, range.start, scan, true)?;
    Ok(Some(table))
}

impl SeekTable {
    fn row_size(&self) -> u64 {
        if self.has_checksums { 12 } else { 8 }
    }

    /// Compares the rows with the frames from `start` on, which they must cover without gaps, skippable frames
    /// included; enters them in the frames if `enter`.
    fn read_rows(&self, source: &Source, start: FileOffset, scan: &mut FrameScan, enter: bool) -> Result<()> {
        let (mut next, mut at, mut done) = (Next::default(), start, 0_u64);
        while done < self.count {
            let rows = WINDOW.min(self.count.saturating_sub(done));
            let window_at = self.rows_at.plus(done.saturating_mul(self.row_size()));
            let bytes = source.get(window_at, rows.saturating_mul(self.row_size()), "seek table")?;
            let mut cur = Cursor::new(&bytes, window_at);
            while !cur.is_empty() {
                let row_at = cur.at();
                let stored = cur.u32_le("seek table: compressed size")?;
                let content = cur.u32_le("seek table: decompressed size")?;
                let checksum_at = cur.at();
                let checksum = if self.has_checksums { Some(cur.u32_le("seek table: checksum")?) } else { None };
                let wrong = |why: String| Error::corrupt(why, "seek table").at(row_at);
                let frame = match next.take(scan) {
                    Some(entry) if entry.at == at && entry.stored == u64::from(stored) => entry.frame,
                    _ => return Err(wrong(format!("no frame of {stored} bytes starts at byte {:#x}", at.0))),
                };
                at = at.plus(stored.into());
                match frame {
                    None if content != 0 => return Err(wrong("a skippable frame has content".into())),
                    Some((_, frame)) if !fits(&frame, content) => {
                        return Err(wrong(format!("{content} bytes, which the blocks of the frame do not produce")));
                    }
                    Some((index, _)) if enter => scan.frames.update(index, |frame| {
                        frame.seek_content = Some(content);
                        frame.seek_checksum = checksum.map(|stored| SeekChecksum { stored, at: checksum_at });
                    })?,
                    _ => {}
                }
            }
            done = done.saturating_add(rows);
        }
        if at != self.at || next.frame != scan.frames.len() {
            return Err(Error::corrupt("the rows do not cover the file", "seek table").at(self.at));
        }
        Ok(())
    }
}

/// Whether `frame` can have `content` bytes of content.
fn fits(frame: &Frame, content: u32) -> bool {
    let content = u64::from(content);
    frame.content.map_or(content <= frame.bound, |known| known == content)
}

/// A frame with or without content.
struct Entry {
    at: FileOffset,
    stored: u64,
    /// Its index and header, if it has content.
    frame: Option<(usize, Frame)>,
}

/// A position in the frames and skippable frames together, in file order.
#[derive(Default)]
struct Next {
    frame: usize,
    skippable: usize,
}

impl Next {
    /// The next one.
    fn take(&mut self, scan: &FrameScan) -> Option<Entry> {
        let (frame, skippable) = (scan.frames.get(self.frame), scan.skippables.get(self.skippable));
        match (frame, skippable) {
            (Some(frame), skippable) if skippable.is_none_or(|skippable| frame.at < skippable.at) => {
                let index = self.frame;
                self.frame = index.saturating_add(1);
                Some(Entry { at: frame.at, stored: frame.stored, frame: Some((index, frame)) })
            }
            (_, Some(skippable)) => {
                self.skippable = self.skippable.saturating_add(1);
                Some(Entry { at: skippable.at, stored: skippable.len.saturating_add(8), frame: None })
            }
            _ => None,
        }
    }
}
