//! Finds the frames of a file by their headers, without decoding.
//!
//! Reference: sections 1, 2.2, 5 (skippable frames).
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::account::{Account, decode_budget};
use crate::bytes::{Cursor, FileOffset, to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::source::Source;
use crate::wanted;

use super::frame::{Cut, Frame, Skippable};
use super::frame_list::{FrameList, SkippableList};
use super::header::{BlockKind, Generation, Header, ZstdBlockHeader};

/// All frames in a range of a file, in order within each kind.
#[derive(Debug)]
pub struct FrameScan {
    /// The frames with content.
    pub frames: FrameList,
    /// The skippable frames.
    pub skippables: SkippableList,
    /// Why no more frames can be found, if the end of one depends on an unknown part.
    pub unknown: Option<Error>,
    /// The cut, if the range ends inside a frame. The last frame is then the part before the cut.
    pub cut: Option<Cut>,
}

impl FrameScan {
    /// No frames yet.
    pub(super) fn new(account: &Account) -> Self {
        Self { frames: FrameList::new(account), skippables: SkippableList::new(account), unknown: None, cut: None }
    }
}

/// Empty blocks allowed in a frame: this many per non-empty block, plus a constant.
const EMPTY: (u64, u64) = (64, 1 << 16);

/// Whether `magic` starts one of the 16 kinds of skippable frames; returns its last hexadecimal digit.
pub fn skippable(magic: u32) -> Option<u8> {
    (magic & 0xFFFF_FFF0 == 0x184D_2A50).then_some(magic.to_le_bytes()[0] & 0x0F)
}

/// Finds the frames in `range`, which must follow each other without gaps.
///
/// # Errors
/// Fails if a frame is truncated or has an unknown part, or bytes between frames are not a frame.
pub(super) fn scan_frames(
    source: &Source,
    range: Range<FileOffset>,
    limits: &Limits,
    account: &Account,
) -> Result<FrameScan> {
    let mut scan = scan_known_frames(source, range, limits, account)?;
    let incomplete = scan.unknown.take().or(scan.cut.take().map(|cut| cut.error));
    incomplete.map_or(Ok(scan), Err)
}

/// As [`scan_frames`], but ends at the first frame with an unknown part, and at one that is truncated.
///
/// # Errors
/// As [`scan_frames`], and if there is nothing before the truncation.
pub(super) fn scan_known_frames(
    source: &Source,
    range: Range<FileOffset>,
    limits: &Limits,
    account: &Account,
) -> Result<FrameScan> {
    let mut scan = FrameScan::new(account);
    let mut window = HeaderBuffer::new(source, range.end);
    let mut at = range.start;
    if range.is_empty() {
        return Err(Error::corrupt("no frames", "magic number").at(at));
    }
    while at < range.end && scan.unknown.is_none() && scan.cut.is_none() {
        let entries = to_u64(scan.frames.len()).saturating_add(to_u64(scan.skippables.len()));
        Limits::check(entries, limits.entries, "number of frames").map_err(|e| e.at(at))?;
        decode_budget::charge_opening(0)?;
        match scan.next(&mut window, at) {
            Ok(end) => at = end,
            Err(error) if error.is_unknown() => scan.unknown = Some(error),
            Err(error) if entries > 0 && matches!(error.kind(), Kind::Truncated { .. }) => {
                scan.cut = Some(Cut { error, is_frame: false, content: None });
            }
            Err(error) => return Err(error),
        }
    }
    scan.frames.finish()?;
    scan.skippables.finish()?;
    Ok(scan)
}

impl FrameScan {
    /// Adds the frame at `at`; returns where it ends.
    fn next(&mut self, window: &mut HeaderBuffer<'_>, at: FileOffset) -> Result<FileOffset> {
        let mut cur = window.at(at, 22)?;
        let magic = cur.u32_le("magic number")?;
        if let Some(nibble) = skippable(magic) {
            let len = cur.u32_le("skippable frame size")?;
            let (data_at, len) = (cur.at(), u64::from(len));
            window.check(data_at, len, "skippable frame").map_err(|e| e.at(at.plus(4)))?;
            self.skippables.push(&Skippable { at, nibble, len })?;
            return Ok(data_at.plus(len));
        }
        if let 0xFD2F_B529..=0xFD2F_B52F = magic {
            return Err(Error::unknown(format!("the frame format {magic:#010x}"), "magic number").at(at));
        }
        let Some(generation) = Generation::of(magic) else {
            return Err(match magic {
                0xFD2F_B51E | 0xFD2F_B522..=0xFD2F_B524 => {
                    Error::unsupported("a frame of zstd 0.1 to 0.4", "magic number")
                }
                _ => Error::corrupt(format!("{magic:#010x} does not start a frame"), "magic number"),
            }
            .at(at));
        };
        let header = Header::read(&mut cur, generation)?;
        let blocks_at = cur.at();
        let (frame, cut) = blocks(window, at, blocks_at, header)?;
        self.frames.push(&frame)?;
        self.cut = cut.map(|error| Cut { error, is_frame: true, content: header.content_size });
        Ok(at.plus(frame.stored))
    }
}

/// Reads the block headers of one frame. If the file ends after its first block and before its last one, returns the
/// complete blocks, and the error.
fn blocks(
    window: &mut HeaderBuffer<'_>,
    start: FileOffset,
    blocks_at: FileOffset,
    header: Header,
) -> Result<(Frame, Option<Error>)> {
    let mut at = blocks_at;
    let (mut bound, mut known, mut blocks, mut empty) = (0_u64, Some(0_u64), 0_u64, 0_u64);
    let end = loop {
        decode_budget::charge_opening(0)?;
        let (block, next) = match window.block(at, &header) {
            Ok(block) => block,
            Err(e) if blocks > 0 && matches!(e.kind(), Kind::Truncated { .. }) => break Err(e),
            Err(e) => return Err(e),
        };
        at = next;
        if block.kind == BlockKind::End {
            break Ok(header.has_checksum.then_some(block.size));
        }
        blocks = blocks.saturating_add(1);
        empty = empty.saturating_add(u64::from(block.content() == Some(0)));
        let most = blocks.saturating_sub(empty).saturating_mul(EMPTY.0).saturating_add(EMPTY.1);
        Limits::check(empty, most, "number of empty blocks").map_err(|e| e.at(at))?;
        known = known.zip(block.content()).and_then(|(sum, n)| sum.checked_add(n));
        bound = bound.saturating_add(block.content().unwrap_or(to_u64(header.max_block())));
        if block.last && !header.has_checksum {
            break Ok(None);
        }
        if block.last {
            let stored = window.at(at, 4)?.u32_le("content checksum");
            at = at.plus(if stored.is_ok() { 4 } else { 0 });
            break stored.map(Some);
        }
    };
    let is_cut = end.is_err();
    // Only the complete blocks, if it is cut.
    let own = if is_cut { Header { content_size: None, has_checksum: false, ..header } } else { header };
    let frame = Frame {
        at: start,
        stored: at.0.saturating_sub(start.0),
        header: own,
        blocks_at,
        content: own.content_size.or(known),
        bound,
        blocks,
        checksum: end.as_ref().ok().copied().flatten(),
        seek_checksum: None,
        seek_content: None,
        is_cut,
        is_listed: false,
    };
    Ok((frame, end.err()))
}

/// A read buffer for headers: small if headers are far apart, larger if they are close.
struct HeaderBuffer<'a> {
    source: &'a Source,
    end: FileOffset,
    at: FileOffset,
    bytes: Vec<u8>,
}

impl<'a> HeaderBuffer<'a> {
    /// Bytes read for a single header between large blocks.
    const FAR: u64 = 64;
    /// Bytes read if the next header follows closely.
    const NEAR: u64 = 32 << 10;

    fn new(source: &'a Source, end: FileOffset) -> Self {
        Self { source, end, at: FileOffset(0), bytes: Vec::new() }
    }

    /// Fails if fewer than `len` bytes follow `at`.
    fn check(&self, at: FileOffset, len: u64, what: &'static str) -> Result<()> {
        let have = self.end.0.saturating_sub(at.0);
        if len <= have { Ok(()) } else { Err(Error::new(Kind::Truncated { need: len, have }, what)) }
    }

    /// The block at `at` of a frame with the header `frame`, and where it ends.
    ///
    /// # Errors
    /// As [`Source::read`], and if it is malformed or truncated.
    fn block(&mut self, at: FileOffset, frame: &Header) -> Result<(ZstdBlockHeader, FileOffset)> {
        let mut cur = self.at(at, ZstdBlockHeader::HEADER)?;
        let block = ZstdBlockHeader::read(&mut cur, frame)?;
        let (data_at, len) = (cur.at(), to_u64(block.stored()));
        self.check(data_at, len, "block").map_err(|e| e.at(at))?;
        Ok((block, data_at.plus(len)))
    }

    /// A cursor at `at` over at least `len` bytes, or all bytes left.
    ///
    /// # Errors
    /// As [`Source::read`].
    fn at(&mut self, at: FileOffset, len: usize) -> Result<Cursor<'_>> {
        let have = to_u64(self.bytes.len());
        let left = self.end.0.saturating_sub(at.0);
        let want = to_u64(len).min(left);
        let inside =
            |w: &Self| at.0.checked_sub(w.at.0).filter(|start| have.saturating_sub(*start) >= want && *start <= have);
        if inside(self).is_none() {
            let near = at.0 >= self.at.0 && at.0.saturating_sub(self.at.0) <= have.saturating_add(Self::FAR);
            let size = if near { Self::NEAR } else { Self::FAR }.max(to_u64(len));
            wanted::check()?;
            self.bytes = self.source.get(at, size.min(left), "frame")?;
            self.at = at;
        }
        let start = to_usize(at.0.saturating_sub(self.at.0), "frame")?;
        Ok(Cursor::new(self.bytes.get(start..).unwrap_or_default(), at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two raw blocks of 0.7 and the end mark.
    const V07: &[u8] = &[0x27, 0xB5, 0x2F, 0xFD, 0, 0, 0x40, 0, 2, b'a', b'b', 0x40, 0, 1, b'c', 0xC0, 0, 0];
    /// A run of 5 and the checksum.
    const MODERN: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD, 4, 0, 0x2B, 0, 0, b'x', 1, 2, 3, 4];
    const SKIP: &[u8] = &[0x53, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 9, 9];

    fn scan_bytes(parts: &[&[u8]]) -> Result<FrameScan> {
        let source = Source::from_bytes(parts.concat());
        scan_frames(&source, FileOffset(0)..FileOffset(source.len()), &Limits::default(), &Account::new(1 << 20, 0))
    }

    #[test]
    fn frames_of_all_kinds_are_found_without_decoding() {
        let w = scan_bytes(&[V07, SKIP, MODERN, V07]).unwrap();
        let seen: Vec<_> = w.frames.iter().map(|f| (f.at.0, f.stored, f.content, f.blocks, f.checksum)).collect();
        assert_eq!(
            seen,
            [(0, 18, Some(3), 2, None), (28, 14, Some(5), 1, Some(0x0403_0201)), (42, 18, Some(3), 2, None)]
        );
        let skips: Vec<_> = w.skippables.iter().map(|s| (s.at.0, s.len, s.nibble)).collect();
        assert_eq!(skips, [(18, 2, 3)]);
    }

    #[test]
    fn a_frame_of_few_bytes_in_many_blocks_is_read_in_parts() {
        let frame = |empty: usize, last: &[u8]| {
            let header = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 5];
            scan_bytes(&[&header, &[0, 0, 0].repeat(empty), last]).unwrap().frames.get(0).unwrap()
        };
        let five = &[5 << 3 | 1, 0, 0, 1, 2, 3, 4, 5];
        assert!(!frame(1000, five).is_long() && frame(30_000, five).is_long());
        assert_eq!(frame(30_000, five).content, Some(5));
    }

    #[test]
    fn truncated_frames_and_other_bytes_are_rejected() {
        for part in [V07, MODERN, SKIP] {
            for cut in 1..part.len() {
                assert!(scan_bytes(&[SKIP, part.get(..cut).unwrap()]).is_err(), "{cut}");
            }
        }
        assert!(scan_bytes(&[]).is_err());
        let e = scan_bytes(&[V07, &[0, 0, 0, 0]]).unwrap_err();
        assert_eq!(e.to_string(), "0x00000000 does not start a frame (magic number, at byte 0x12)");
        let old = scan_bytes(&[&[0x24, 0xB5, 0x2F, 0xFD]]).unwrap_err();
        assert!(old.to_string().contains("0.1 to 0.4"), "{old}");
    }
}
