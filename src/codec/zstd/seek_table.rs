//! The seek table at the end of a seekable file. It is only used if it agrees with the frames; `random_access` verifies
//! its checksums against the content.
//!
//! Reading the headers of all blocks of a file on a server would fetch most of it. There the table locates the frames,
//! and each frame is compared with it when it is read.
//!
//! Reference: section 5.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::account::Account;
use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Result};
use crate::index::Records;
use crate::limits::Limits;
use crate::source::{Need, Source};

use super::frame::{Frame, SeekChecksum, Skippable};
use super::frame_scan::{FrameScan, scan_frames, scan_known_frames};
use super::header::{Generation, Header};
use super::kept_scan;

/// The magic number of the skippable frame with the table.
const TABLE: u32 = 0x184D_2A5E;
/// The last four bytes of a seekable file, as a little-endian number.
const MAGIC: u32 = 0x8F92_EAB1;
const FOOTER: u64 = 9;
/// Rows read at a time.
const WINDOW: u64 = 4096;
/// From this size on, the frames of a file on a server are found by its seek table.
const FAR: u64 = 1 << 20;
/// Maximum content per stored byte: 4 bytes repeat one byte as often as a block has room for.
const DENSEST: u64 = (128 << 10) / 4;

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

/// A row of a table.
#[derive(Debug, Clone, Copy)]
struct SeekRow {
    at: FileOffset,
    stored: u32,
    content: u32,
    checksum: Option<SeekChecksum>,
}

/// Finds the frames in `range`, and the seek table if the range ends with one: by the headers of their blocks, or by
/// the table if the source is on a server, or a frame has an unknown part.
///
/// # Errors
/// Fails if the first frame is truncated before its first block ends, or bytes between frames are not a frame. The table
/// fails by itself if it contradicts itself or the frames.
pub fn find_frames(
    source: &Source,
    range: Range<FileOffset>,
    limits: &Limits,
    account: &Account,
    records: Option<&Records>,
) -> Result<(FrameScan, Result<Option<SeekTable>>)> {
    if source.is_far()
        && range.end.0.saturating_sub(range.start.0) >= FAR
        && let Some((scan, table)) = list_frames(source, range.clone(), limits, account)?
    {
        return Ok((scan, Ok(Some(table))));
    }
    let mut scan = kept_or_scanned(source, range.clone(), limits, account, records)?;
    // The table locates the frames after a frame with unknown end.
    if scan.unknown.is_some()
        && let Some((scan, table)) = list_frames(source, range.clone(), limits, account)?
    {
        return Ok((scan, Ok(Some(table))));
    }
    let number = scan.frames.len();
    scan.unknown = scan.unknown.map(|error| error.within(format_args!("frame {number}")));
    if let Some(cut) = &mut scan.cut {
        let number = number.saturating_sub(usize::from(cut.is_frame));
        cut.error = cut.error.clone().within(format_args!("frame {number}"));
    }
    let table = read_seek_table(source, range, &mut scan);
    Ok((scan, table))
}

/// The frames in `range` as `records` has them, or by the headers of their blocks.
fn kept_or_scanned(
    source: &Source,
    range: Range<FileOffset>,
    limits: &Limits,
    account: &Account,
    records: Option<&Records>,
) -> Result<FrameScan> {
    let records = records.filter(|_| range.end.0.saturating_sub(range.start.0) >= kept_scan::LEAST);
    if let Some(records) = records
        && let Some(scan) = kept_scan::find(records, &range, limits, account)?
    {
        return Ok(scan);
    }
    let scan = scan_known_frames(source, range, limits, account)?;
    if let Some(records) = records {
        kept_scan::keep(&scan, records);
    }
    Ok(scan)
}

/// The frames in `range` by its seek table alone. `None` without a table, or if it has rows of frames that are not
/// decoded at once or cannot be.
fn list_frames(
    source: &Source,
    range: Range<FileOffset>,
    limits: &Limits,
    account: &Account,
) -> Result<Option<(FrameScan, SeekTable)>> {
    let Some(footer_at) = range.end.0.checked_sub(FOOTER).filter(|at| *at >= range.start.0) else { return Ok(None) };
    let bytes = source.get(FileOffset(footer_at), FOOTER, "seek table")?;
    let Some(&[a, b, c, d, descriptor, ..]) = bytes.first_chunk::<9>() else { return Ok(None) };
    let row = if descriptor & 0x80 != 0 { 12 } else { 8 };
    let stored = u64::from(u32::from_le_bytes([a, b, c, d])).saturating_mul(row).saturating_add(FOOTER);
    let start = range.end.0.checked_sub(stored.saturating_add(8)).filter(|at| *at >= range.start.0);
    let Some(at) = start.map(FileOffset) else { return Ok(None) };
    let mut end = FrameScan::new(account);
    let header = source.get(at, 8, "seek table")?;
    let mut cur = Cursor::new(&header, at);
    if (cur.u32_le("magic number")?, u64::from(cur.u32_le("skippable frame size")?)) != (TABLE, stored) {
        return Ok(None);
    }
    let skippable = Skippable { at, nibble: 0xE, len: stored };
    end.skippables.push(&skippable)?;
    end.skippables.finish()?;
    let Ok(Some(table)) = SeekTable::read(source, &skippable) else { return Ok(None) };
    Limits::check(table.count, limits.entries, "number of frames").map_err(|e| e.at(at))?;
    let (mut next, mut is_usable) = (range.start, true);
    table.rows(source, |row| {
        let frame = row.frame(next);
        is_usable &= row.content > 0 && row.is_possible() && !frame.is_long();
        next = next.plus(frame.stored);
        end.frames.push(&frame)
    })?;
    end.frames.finish()?;
    Ok((is_usable && next == at).then_some((end, table)))
}

/// Reads the headers of a frame that is known from its row in the seek table only.
///
/// # Errors
/// Fails if it contradicts the table, or is malformed.
pub(super) fn read_listed(source: &Source, listed: &Frame, account: &Account) -> Result<Frame> {
    let (at, end) = (listed.at, listed.at.plus(listed.stored));
    source.announce(std::slice::from_ref(&(at.0..end.0)), Need::Now);
    let scan = scan_frames(source, at..end, &Limits::default(), account)?;
    let content = listed.seek_content.unwrap_or(0);
    match (scan.frames.get(0), scan.frames.len(), scan.skippables.len()) {
        (Some(frame), 1, 0) if fits(&frame, content) => Ok(Frame {
            content: Some(content.into()),
            seek_checksum: listed.seek_checksum,
            seek_content: listed.seek_content,
            ..frame
        }),
        _ => {
            Err(Error::corrupt(format!("no frame of {} bytes with {content} of content", listed.stored), "seek table")
                .at(at))
        }
    }
}

impl SeekRow {
    /// Whether a frame of its stored size can have so much content.
    fn is_possible(&self) -> bool {
        u64::from(self.content) <= u64::from(self.stored).saturating_mul(DENSEST)
    }

    /// Its frame, which starts at `at`.
    fn frame(&self, at: FileOffset) -> Frame {
        let header = Header {
            generation: Generation::Modern,
            window: 0,
            content_size: None,
            dictionary: 0,
            has_checksum: false,
        };
        let content = u64::from(self.content);
        Frame {
            at,
            stored: self.stored.into(),
            header,
            blocks_at: at,
            content: Some(content),
            bound: content,
            blocks: 0,
            checksum: None,
            seek_checksum: self.checksum,
            seek_content: Some(self.content),
            is_cut: false,
            is_listed: true,
        }
    }
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
fn read_seek_table(source: &Source, range: Range<FileOffset>, scan: &mut FrameScan) -> Result<Option<SeekTable>> {
    let Some(frame) = candidate(range.end, scan) else { return Ok(None) };
    let Some(table) = SeekTable::read(source, &frame)? else { return Ok(None) };
    // All rows are checked before the first one is entered.
    table.read_rows(source, range.start, scan, false)?;
    table.read_rows(source, range.start, scan, true)?;
    Ok(Some(table))
}

impl SeekTable {
    /// The table in `frame`, without its rows, if that has one.
    fn read(source: &Source, frame: &Skippable) -> Result<Option<Self>> {
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
        let table = Self { at: frame.at, descriptor, rows_at: frame.data_at(), count, has_checksums };
        if count.checked_mul(table.row_size()) != Some(stored) {
            let why = format!("{count} rows do not fill the table");
            return Err(Error::corrupt(why, "seek table: number of frames").at(footer_at));
        }
        Ok(Some(table))
    }

    fn row_size(&self) -> u64 {
        if self.has_checksums { 12 } else { 8 }
    }

    /// Calls `each` with every row.
    fn rows(&self, source: &Source, mut each: impl FnMut(SeekRow) -> Result<()>) -> Result<()> {
        let mut done = 0_u64;
        while done < self.count {
            let rows = WINDOW.min(self.count.saturating_sub(done));
            let window_at = self.rows_at.plus(done.saturating_mul(self.row_size()));
            let bytes = source.get(window_at, rows.saturating_mul(self.row_size()), "seek table")?;
            let mut cur = Cursor::new(&bytes, window_at);
            while !cur.is_empty() {
                let at = cur.at();
                let stored = cur.u32_le("seek table: compressed size")?;
                let content = cur.u32_le("seek table: decompressed size")?;
                let sum_at = cur.at();
                let sum = if self.has_checksums { Some(cur.u32_le("seek table: checksum")?) } else { None };
                each(SeekRow { at, stored, content, checksum: sum.map(|stored| SeekChecksum { stored, at: sum_at }) })?;
            }
            done = done.saturating_add(rows);
        }
        Ok(())
    }

    /// Compares the rows with the frames from `start` on, which they must cover without gaps, skippable frames
    /// included; enters them in the frames if `enter`.
    fn read_rows(&self, source: &Source, start: FileOffset, scan: &mut FrameScan, enter: bool) -> Result<()> {
        let (mut next, mut at) = (SeekPosition::default(), start);
        self.rows(source, |SeekRow { at: row_at, stored, content, checksum }| {
            let wrong = |why: String| Error::corrupt(why, "seek table").at(row_at);
            let frame = match next.take(scan) {
                Some(entry) if entry.at == at && entry.stored == u64::from(stored) => entry.frame,
                _ => return Err(wrong(format!("no frame of {stored} bytes starts at byte {:#x}", at.0))),
            };
            at = at.plus(stored.into());
            match frame {
                None if content != 0 => Err(wrong("a skippable frame has content".into())),
                Some((_, frame)) if !fits(&frame, content) => {
                    Err(wrong(format!("{content} bytes, which the blocks of the frame do not produce")))
                }
                Some((index, _)) if enter => scan.frames.update(index, |frame| {
                    frame.seek_content = Some(content);
                    frame.seek_checksum = checksum;
                }),
                _ => Ok(()),
            }
        })?;
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
struct SeekEntry {
    at: FileOffset,
    stored: u64,
    /// Its index and header, if it has content.
    frame: Option<(usize, Frame)>,
}

/// A position in the frames and skippable frames together, in file order.
#[derive(Default)]
struct SeekPosition {
    frame: usize,
    skippable: usize,
}

impl SeekPosition {
    /// The next one.
    fn take(&mut self, scan: &FrameScan) -> Option<SeekEntry> {
        let (frame, skippable) = (scan.frames.get(self.frame), scan.skippables.get(self.skippable));
        match (frame, skippable) {
            (Some(frame), skippable) if skippable.is_none_or(|skippable| frame.at < skippable.at) => {
                let index = self.frame;
                self.frame = index.saturating_add(1);
                Some(SeekEntry { at: frame.at, stored: frame.stored, frame: Some((index, frame)) })
            }
            (_, Some(skippable)) => {
                self.skippable = self.skippable.saturating_add(1);
                Some(SeekEntry { at: skippable.at, stored: skippable.len.saturating_add(8), frame: None })
            }
            _ => None,
        }
    }
}
