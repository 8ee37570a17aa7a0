//! Computes the decoded size of a frame that does not state it, without decoding.
//!
//! Reference: sections 2.4 and 3. A compressed block produces its literals and its matches. The size of the literals is
//! in a header; the match lengths are in the stream of sequences, the only part that is read. The cost is therefore
//! proportional to the stored size, not to the decoded size.
//!
//! Limits: frames of 0.5 and 0.6, and frames that depend on a dictionary, cannot be measured.
#![forbid(unsafe_code)]

use crate::bytes::{Cursor, FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::source::Source;

use super::frame::Frame;
use super::header::{Block, BlockKind, Generation};
use super::literals::Literals;
use super::v07::{Dialect, RepeatOffsets, Sequences, Tables, measure_literals};

/// Bytes per read if frames are measured in order (a few blocks, or many small frames), and otherwise.
const READ_AHEAD: u64 = 512 << 10;
const READ_SINGLE: u64 = 4 << 10;

/// Measures frames, reusing buffers and tables.
#[derive(Debug, Default)]
pub(super) struct Measure {
    bytes: Vec<u8>,
    at: FileOffset,
    /// Where the last requested range ends.
    next: FileOffset,
    tables: Tables,
}

impl Measure {
    /// Bytes of content of `frame`; `None` if they cannot be measured.
    ///
    /// # Errors
    /// Fails if the file cannot be read or a header is malformed.
    pub(super) fn frame(&mut self, source: &Source, frame: &Frame) -> Result<Option<u64>> {
        let dialect = match frame.header.generation {
            Generation::V05 | Generation::V06 => return Ok(None),
            Generation::V07 => Dialect::V07,
            Generation::Modern => Dialect::Modern,
        };
        if frame.header.dictionary != 0 {
            return Ok(None);
        }
        self.tables.clear();
        let (mut at, end) = (frame.blocks_at, frame.at.plus(frame.stored));
        let (mut sum, mut is_coded) = (0_u64, false);
        while at < end {
            let start = self.read(source, at, Block::HEADER)?;
            let block = Block::read(&mut Cursor::new(self.bytes.get(start..).unwrap_or_default(), at), &frame.header)?;
            let size = Block::HEADER + block.stored();
            let content = if let Some(known) = block.content() {
                known
            } else {
                is_coded = true;
                let start = self.read(source, at, size)?;
                let bytes = self.bytes.get(start + Block::HEADER..start + size).unwrap_or_default();
                match compressed(bytes, dialect, &mut self.tables) {
                    // A repeated table may belong to a dictionary that the frame does not name.
                    Ok(size) if size <= to_u64(frame.header.max_block()) => size,
                    Ok(_) | Err(_) => return Ok(None),
                }
            };
            sum = sum.saturating_add(content);
            at = at.plus(to_u64(size));
            if block.last || block.kind == BlockKind::End {
                // An empty total from compressed blocks is not trusted: only decoding shows whether they are valid.
                return Ok(Some(sum).filter(|&sum| sum > 0 || !is_coded));
            }
        }
        // As much of it as is there.
        if frame.is_cut {
            Ok(Some(sum))
        } else {
            Err(Error::corrupt("the frame has no last block", "block header").at(at))
        }
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
        let mut recent = RepeatOffsets::INITIAL;
        sequences.each(&mut recent, |sequence| {
            size += u64::from(sequence.matched);
            true
        })?;
    }
    Ok(size)
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
            assert_eq!(measure.frame(&source, &frame).unwrap(), Some(to_u64(part.len())), "level {level}");
        }
    }
}
