//! Computes the decoded size of a frame that does not state it, without decoding.
//!
//! Reference: sections 2.4 and 3. A compressed block produces its literals and its matches. The size of the literals is
//! in a header; the match lengths are in the stream of sequences, the only part that is read. The cost is therefore
//! proportional to the stored size, not to the decoded size.
//!
//! Parts of a long frame are measured at once. A block may repeat tables of the blocks before it: those that do so at the
//! beginning of a part are measured when the part before is.
//!
//! Limits: frames of 0.5 and 0.6, and frames that depend on a dictionary, cannot be measured.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::account::decode_budget;
use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::checksum::Threads;
use crate::error::{Error, Result};
use crate::parallel;
use crate::source::Source;

use super::entropy::{Dialect, Sequences, Tables};
use super::frame::Frame;
use super::header::{BlockKind, ZstdBlockHeader};
use super::literals::Literals;
use super::v07::measure_literals;
use crate::codec::simd_dispatch::{self, SimdLoop, SimdOps};

/// Bytes per read if frames are measured in order (a few blocks, or many small frames), and otherwise.
const READ_AHEAD: u64 = 512 << 10;
const READ_SINGLE: u64 = 4 << 10;

/// Least stored bytes of a part, and maximum parts of a frame.
const PART: u64 = 1 << 20;
const MOST: u64 = 256;

/// Measures frames, reusing buffers and tables.
#[derive(Debug, Default)]
pub(super) struct Measure {
    bytes: Vec<u8>,
    at: FileOffset,
    /// Where the last requested range ends.
    next: FileOffset,
    tables: Tables,
}

/// Blocks in a row, measured without those before them.
#[derive(Debug)]
struct BlockRun {
    blocks: Range<FileOffset>,
    /// Where all three tables are known: blocks before that may repeat tables of earlier parts, and are not counted.
    known_at: FileOffset,
    /// Bytes of content from there on; `None` if they cannot be measured.
    sum: Option<u64>,
    is_coded: bool,
    /// Whether the last block of the frame is among them.
    has_ended: bool,
    tables: Tables,
}

/// The headers of the blocks, by which a frame is divided into parts.
struct Headers<'a> {
    measure: &'a mut Measure,
    /// The next part: its number, and where it begins; `None` after the last one.
    number: u64,
    at: Option<FileOffset>,
}

impl Headers<'_> {
    /// The next part, of at least `len` stored bytes: its number, and its blocks.
    fn next(&mut self, source: &Source, frame: &Frame, len: u64) -> Result<Option<(u64, Range<FileOffset>)>> {
        let Some(start) = self.at.take() else { return Ok(None) };
        let (mut at, end, number) = (start, frame.at.plus(frame.stored), self.number);
        self.number += 1;
        if frame.stored <= len {
            return Ok(Some((number, start..end)));
        }
        while at < end {
            let block = self.measure.block(source, frame, at)?;
            at = at.plus(to_u64(ZstdBlockHeader::HEADER + block.stored()));
            if is_end(block) {
                break;
            }
            if at.0 - start.0 >= len {
                self.at = Some(at).filter(|&at| at < end);
                break;
            }
        }
        Ok(Some((number, start..at)))
    }
}

/// Whether it is the last block of a frame.
fn is_end(block: ZstdBlockHeader) -> bool {
    block.last || block.kind == BlockKind::End
}

/// The parts of a frame, in order.
struct FrameSum {
    next: u64,
    waiting: BTreeMap<u64, BlockRun>,
    /// With the tables of the part before.
    measure: Measure,
    /// Bytes of content so far; `None` if they cannot be measured.
    total: Option<u64>,
    is_coded: bool,
    has_ended: bool,
}

impl Default for FrameSum {
    fn default() -> Self {
        let (waiting, measure) = (BTreeMap::new(), Measure::default());
        Self { next: 0, waiting, measure, total: Some(0), is_coded: false, has_ended: false }
    }
}

impl Measure {
    /// Bytes of content of `frame`; `None` if they cannot be measured. On all threads that are free if it is long.
    ///
    /// # Errors
    /// Fails if the file cannot be read or a header is malformed.
    pub(super) fn frame(&mut self, source: &Source, frame: &Frame, threads: &Threads) -> Result<Option<u64>> {
        if Dialect::of(frame).is_none() || frame.header.dictionary != 0 {
            return Ok(None);
        }
        // Reads for a container that is being opened are charged to this thread.
        let parts = if decode_budget::is_opening() { 1 } else { (frame.stored / PART).max(1) };
        let helpers = threads.helpers(parts - 1);
        let len = if helpers.count() == 0 { u64::MAX } else { PART.max(frame.stored / MOST) };
        self.in_parts(source, frame, helpers.count(), len)
    }

    /// The same in parts of at least `len` stored bytes, on this thread and `helpers` others.
    fn in_parts(&mut self, source: &Source, frame: &Frame, helpers: usize, len: u64) -> Result<Option<u64>> {
        let headers = Mutex::new(Headers { measure: self, number: 0, at: Some(frame.blocks_at) });
        let sum = Mutex::new(FrameSum::default());
        let work = || {
            let mut measure = Self::default();
            loop {
                let next = lock(&headers).next(source, frame, len)?;
                let Some((number, blocks)) = next else { return Ok(()) };
                // The first one begins without tables.
                let part = measure.part(source, frame, blocks, number == 0)?;
                lock(&sum).add(source, frame, number, part)?;
            }
        };
        parallel::together(helpers, work)?;
        let FrameSum { total, is_coded, has_ended, .. } = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Of a frame that is cut off, as much as is there.
        if !has_ended && total.is_some() && !frame.is_cut {
            let end = frame.at.plus(frame.stored);
            return Err(Error::corrupt("the frame has no last block", "block header").at(end));
        }
        // An empty total from compressed blocks is not trusted: only decoding shows whether they are valid.
        Ok(total.filter(|&total| total > 0 || !is_coded || frame.is_cut))
    }

    fn block(&mut self, source: &Source, frame: &Frame, at: FileOffset) -> Result<ZstdBlockHeader> {
        let start = self.read(source, at, ZstdBlockHeader::HEADER)?;
        ZstdBlockHeader::read(&mut Cursor::new(self.bytes.get(start..).unwrap_or_default(), at), &frame.header)
    }

    /// Measures `blocks`, up to the last one of the frame; `is_known` says that the tables are those of the blocks before.
    fn part(&mut self, source: &Source, frame: &Frame, blocks: Range<FileOffset>, is_known: bool) -> Result<BlockRun> {
        let dialect = Dialect::of(frame).unwrap_or(Dialect::Modern);
        if !is_known {
            self.tables.clear();
        }
        let (mut at, mut known_at) = (blocks.start, is_known.then_some(blocks.start));
        let (mut sum, mut is_coded, mut has_ended) = (Some(0_u64), false, false);
        while at < blocks.end && sum.is_some() && !has_ended {
            let block = self.block(source, frame, at)?;
            let size = ZstdBlockHeader::HEADER + block.stored();
            let content = if let Some(known) = block.content() {
                Some(known)
            } else {
                is_coded = true;
                let start = self.read(source, at, size)?;
                let bytes = self.bytes.get(start + ZstdBlockHeader::HEADER..start + size).unwrap_or_default();
                let measured = compressed(bytes, dialect, &mut self.tables);
                if measured.is_ok() && self.tables.are_known() {
                    known_at = known_at.or(Some(at));
                }
                // A repeated table may belong to a dictionary that the frame does not name.
                measured.ok().filter(|&size| size <= to_u64(frame.header.max_block()))
            };
            if known_at.is_some() {
                sum = sum.zip(content).map(|(sum, content)| sum.saturating_add(content));
            }
            at = at.plus(to_u64(size));
            has_ended = is_end(block);
        }
        let known_at = known_at.unwrap_or(blocks.end);
        Ok(BlockRun { known_at, sum, is_coded, has_ended, tables: std::mem::take(&mut self.tables), blocks })
    }

    /// Ensures that `bytes` contains `len` bytes from `at` on; returns their index.
    fn read(&mut self, source: &Source, at: FileOffset, len: usize) -> Result<usize> {
        let start = at.0.wrapping_sub(self.at.0);
        let in_order = at >= self.next && at.0.saturating_sub(self.next.0) < READ_SINGLE;
        self.next = at.plus(to_u64(len));
        if start.saturating_add(to_u64(len)) > to_u64(self.bytes.len()) {
            let size =
                if in_order { READ_AHEAD } else { READ_SINGLE }.max(to_u64(len)).min(source.len().saturating_sub(at.0));
            // The buffer is invalid if the read fails.
            self.at = at;
            self.bytes.clear();
            self.bytes.resize(size.max(to_u64(len)) as usize, 0);
            if let Err(e) = source.read(at, &mut self.bytes, "block") {
                self.bytes.clear();
                return Err(e);
            }
            return Ok(0);
        }
        Ok(start as usize)
    }
}

impl FrameSum {
    /// Adds part `number`, and measures what it has left to the tables of the part before.
    fn add(&mut self, source: &Source, frame: &Frame, number: u64, part: BlockRun) -> Result<()> {
        self.waiting.insert(number, part);
        while let Some(part) = self.waiting.remove(&self.next) {
            self.next += 1;
            let BlockRun { blocks, known_at, sum, is_coded, has_ended, tables } = part;
            let before = self.measure.part(source, frame, blocks.start..known_at, true)?;
            let sum = before.sum.zip(sum).map(|(before, sum)| before.saturating_add(sum));
            self.total = self.total.zip(sum).map(|(total, sum)| total.saturating_add(sum));
            self.is_coded |= is_coded || before.is_coded;
            self.has_ended |= has_ended;
            self.measure.tables = if known_at < blocks.end { tables } else { before.tables };
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The decoded size of the compressed block `src`.
fn compressed(src: &[u8], dialect: Dialect, tables: &mut Tables) -> Result<u64> {
    let (literals, rest) = match dialect {
        Dialect::V07 => measure_literals(src)?,
        Dialect::Modern => {
            let (section, rest) = Literals::read(src)?;
            (section.regenerated, rest)
        }
    };
    let mut size = to_u64(literals);
    if let Some(sequences) = Sequences::open(rest, tables, dialect)? {
        size += simd_dispatch::run(Matched(sequences))?;
    }
    Ok(size)
}

/// Sums the match lengths of a section.
struct Matched<'a>(Sequences<'a>);

impl SimdLoop for Matched<'_> {
    type Output = Result<u64>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, _: impl SimdOps) -> Self::Output {
        self.0.matched()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame_scan::scan_frames;
    use super::*;
    use crate::account::Account;
    use crate::limits::Limits;

    /// Frames without a content size.
    fn frames(parts: &[(&[u8], i32)]) -> Vec<u8> {
        let mut file = Vec::new();
        for (part, level) in parts {
            let mut encoder = zstd::Encoder::new(Vec::new(), *level).unwrap();
            encoder.include_contentsize(false).unwrap();
            std::io::Write::write_all(&mut encoder, part).unwrap();
            file.extend(encoder.finish().unwrap());
        }
        file
    }

    #[test]
    fn counted_sizes_equal_decoded_sizes() {
        let text: Vec<u8> =
            (0..60_000_u32).flat_map(|i| (u64::from(i) * u64::from(i) / 77).to_string().into_bytes()).collect();
        let coarse: Vec<u8> = text.iter().map(|byte| byte & 1).collect();
        let zeros = vec![0; 3 << 20];
        let noise: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let parts: Vec<(&[u8], i32)> =
            [&*text, &coarse, &zeros, &noise, b"", b"a", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
                .into_iter()
                .flat_map(|part| [(part, 1), (part, 9), (part, 19), (part, -5)])
                .collect();
        let source = Source::from_bytes(frames(&parts));
        let scan =
            scan_frames(&source, FileOffset(0)..FileOffset(source.len()), &Limits::default(), &Account::new(0, 0))
                .unwrap();
        let mut measure = Measure::default();
        for (frame, (part, level)) in scan.frames.iter().zip(&parts) {
            let want = Some(to_u64(part.len()));
            assert_eq!(measure.frame(&source, &frame, &Threads::new(1)).unwrap(), want, "level {level}");
            for (helpers, len) in [(0, 1), (1, 1), (3, 1000)] {
                let measured = measure.in_parts(&source, &frame, helpers, len).unwrap();
                assert_eq!(measured, want, "level {level}, {helpers} helpers, {len} bytes");
            }
        }
    }
}
