//! The decoded bytes of all chunks, as a blob.
//!
//! Piece: a chunk of up to 2 MiB; of a larger one consecutive blocks of about 1 MiB together. Consecutive chunks of up
//! to [`SMALL_CHUNK`] share a piece of up to [`SHARED`]: a corrupt one makes that piece unreadable, but not the other
//! chunks by themselves (see [`SingleChunk`]). A larger corrupt chunk makes only its own bytes unreadable.
//! Fragment: the blocks in 16 KiB, or one block, if every piece begins with a block.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::bytes::{to_u64, to_usize};
use crate::checksum::{ChecksumGate, Verified};
use crate::error::{Error, Result, UnknownParts};
use crate::format::{Blob, Check, Far, Fragmented, Layout, Need};
use crate::limits::{Charge, Limits};
use crate::once::Once;

use super::chunk_blocks::BIG;
use super::chunk_index::ChunkIndex;
use super::decode_buffers::sized;
use super::header::{ChunkHeader, ChunkKind};

/// Approximate size of a piece.
const PIECE: u64 = 1 << 20;
/// Target size of a fragment.
const FRAGMENT: u64 = 16 << 10;
/// Fragments of a piece, unless their target size or the blocks are larger.
const FEWEST: u64 = 8;
/// Chunks up to this size share pieces: a piece takes some microseconds besides its decoding.
const SMALL_CHUNK: u64 = 2 << 10;
/// Maximum size of a piece of several chunks: the smallest page of any system, which the kernel reads as a whole anyway,
/// so that a corrupt chunk makes no more unreadable in a mount than its size does.
const SHARED: u64 = 4 << 10;
/// Maximum number of pieces in a table of pieces of different sizes; above it all pieces have one size.
const TABLE: u64 = 1 << 20;
/// Tables of pieces up to this many bytes are not charged.
const SMALL: u64 = 1 << 20;
/// Maximum number of checks that a verification is divided into, and the minimum size of each in bytes.
const RUNS: u64 = 1024;
const RUN: u64 = 16 << 20;

/// The decoded bytes of all chunks in order.
#[derive(Debug)]
pub(super) struct ChunkBlob {
    chunks: Arc<ChunkIndex>,
    gate: Option<ChecksumGate>,
    /// With the size of a fragment.
    layout: Once<(Layout, Option<u64>)>,
    /// For the table of pieces.
    charge: OnceLock<Charge>,
}

impl ChunkBlob {
    /// `gate` withholds the decoded bytes until it has passed.
    pub(super) fn new(chunks: Arc<ChunkIndex>, gate: Option<ChecksumGate>) -> Self {
        Self { chunks, gate, layout: Once::new(), charge: OnceLock::new() }
    }

    fn compute_layout(&self) -> Result<(Layout, Option<u64>)> {
        let (block, step) = self.units();
        let Some(chunk) = self.chunks.fixed() else {
            let list = self.chunks.listed()?;
            let mut count = 0;
            divide(&list.ends, step, |_| count += 1);
            Limits::check(count, 16 * TABLE, "number of pieces")?;
            self.charge_table(count)?;
            let mut ends = Vec::with_capacity(to_usize(count, "number of pieces")?);
            divide(&list.ends, step, |end| ends.push(end));
            return Ok((Layout::Ends(ends.into()), None));
        };
        let len = self.chunks.total();
        let piece = match chunk.max(1) {
            chunk @ ..=SMALL_CHUNK => SHARED / chunk * chunk,
            chunk if chunk <= 2 * PIECE => chunk,
            chunk => even_piece(chunk, block, step).unwrap_or(step),
        };
        if chunk <= SMALL_CHUNK
            || chunk % piece == 0
            || self.chunks.count().saturating_mul(chunk.div_ceil(piece)) > TABLE
        {
            let is_whole = chunk > SMALL_CHUNK && chunk % piece == 0 && (piece == chunk || piece % block == 0);
            let fragment = block.saturating_mul((FRAGMENT.min(piece / FEWEST) / block).max(1));
            return Ok((Layout::Uniform { len, piece }, is_whole.then_some(fragment)));
        }
        let max_pieces = self.chunks.count().saturating_mul(chunk.div_ceil(piece));
        self.charge_table(max_pieces)?;
        let mut ends = Vec::with_capacity(to_usize(max_pieces, "number of pieces")?);
        for i in 0..self.chunks.count() {
            divide_chunk(self.chunks.range(i)?, piece, |end| ends.push(end));
        }
        Ok((Layout::Ends(ends.into()), None))
    }

    /// Fills `dst` with the decoded bytes `range`.
    fn read(&self, range: Range<u64>, dst: &mut [u8]) -> Result<()> {
        let mut rest = dst;
        self.chunks(range, |i, part| {
            let len = (part.end - part.start) as usize;
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
            rest = later;
            self.chunks.read(i, part.start, now)
        })
    }

    /// Charges a table of `pieces` pieces unless it is small: it is copied once when it is complete.
    fn charge_table(&self, pieces: u64) -> Result<()> {
        let bytes = pieces.saturating_mul(2 * to_u64(size_of::<u64>()));
        if bytes > SMALL {
            // If it is set, an earlier attempt failed after it was charged.
            drop(self.charge.set(self.chunks.item().memory.account().charge(bytes, "table of pieces")?));
        }
        Ok(())
    }

    /// Block size according to the first chunks, and the size of as many blocks as make about a piece.
    fn units(&self) -> (u64, u64) {
        let some = |header: &ChunkHeader| header.kind == ChunkKind::Blocks && u64::from(header.blocksize) <= BIG;
        let headers = (0..self.chunks.count().min(16)).filter_map(|i| self.chunks.header(i).ok()?);
        match headers.map(|(_, header)| header).find(some) {
            Some(header) => {
                let width = u32::from(header.typesize);
                let block = u64::from(header.blocksize - header.blocksize % width).max(1);
                (block, block * (PIECE / block).max(1))
            }
            None => (PIECE, PIECE),
        }
    }

    /// The checks that decode all chunks. `name` is a prefix for messages.
    pub(super) fn checks(self: &Arc<Self>, name: &str) -> Vec<Check> {
        let run = |label: String, bytes: u64, run: Box<dyn Fn() -> Result<()> + Send + Sync>| Check::Run {
            name: format!("{name}{label}"),
            bytes,
            run,
        };
        let count = self.chunks.count();
        if count == 0 {
            return Vec::new();
        }
        if self.chunks.is_constant() {
            // All chunks share one entry; only the last may be shorter.
            let data = self.clone();
            let both = move || {
                [0, count - 1].iter().try_for_each(|&i| {
                    let range = data.chunks.range(i)?;
                    data.chunks.verify(i, 0..range.end - range.start, PIECE)
                })
            };
            return vec![run("chunks".into(), self.chunks.total(), Box::new(both))];
        }
        let layout = match self.layout() {
            Ok(layout) => layout,
            Err(e) => return vec![run("chunks".into(), 0, Box::new(move || Err(e.clone())))],
        };
        let mut checks = Vec::new();
        if let Ok(list) = self.chunks.listed() {
            // Only the first chunk of unknown size is reported.
            if let Some(&i) = list.unknown.first() {
                let chunks = Arc::clone(&self.chunks);
                checks.push(run(format!("chunk {i}"), 0, Box::new(move || Err(chunks.why_unknown(i)))));
            }
        }
        let (pieces, len) = (layout.count(), layout.len());
        let group = pieces.div_ceil(RUNS).max(RUN.saturating_mul(pieces) / len.max(1)).max(1);
        let mut first = 0;
        while first < pieces {
            let last = (first + group).min(pieces) - 1;
            let range = layout.range(first).start..layout.range(last).end;
            let (data, bytes) = (self.clone(), range.end - range.start);
            let label = format!("bytes {} to {}", range.start, range.end);
            checks.push(run(label, bytes, Box::new(move || data.verify(range.clone()))));
            first += group;
        }
        checks
    }

    fn verify(&self, range: Range<u64>) -> Result<()> {
        let mut buffer = Vec::new();
        let layout = self.layout()?;
        let mut unknown = UnknownParts::default();
        let mut at = range.start;
        while at < range.end {
            let end = layout.range(layout.locate(at)).end.min(range.end);
            let together = self.first_small(at)?.map(|first| {
                let piece = sized(&mut buffer, (end - at) as usize, "piece")?;
                self.chunks.read_small(first, piece)
            });
            match together {
                Some(result) if !result.as_ref().is_err_and(Error::is_unknown) => result?,
                _ => self.chunks(at..end, |i, part| unknown.keep(self.chunks.verify(i, part, PIECE)))?,
            }
            at = end;
        }
        unknown.result()
    }

    /// The number of the chunk that begins at decoded byte `at`, if it shares a piece.
    fn first_small(&self, at: u64) -> Result<Option<u64>> {
        let first = self.chunks.locate(at)?;
        let chunk = self.chunks.range(first)?;
        Ok((chunk.start == at && shares_piece(&chunk)).then_some(first))
    }

    /// Calls `f` for each chunk that overlaps `range`, with the overlapping range within the chunk.
    fn chunks(&self, range: Range<u64>, mut f: impl FnMut(u64, Range<u64>) -> Result<()>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let i = self.chunks.locate(at)?;
            let chunk = self.chunks.range(i)?;
            let end = chunk.end.min(range.end);
            f(i, at - chunk.start..end - chunk.start)?;
            at = end;
        }
        Ok(())
    }
}

impl Blob for ChunkBlob {
    fn layout(&self) -> Result<Layout> {
        self.layout.get(|| self.compute_layout()).map(|(layout, _)| layout.clone())
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        let (layout, _) = self.layout.ready()?.ok()?;
        ChecksumGate::shut(self.gate.as_ref(), piece.saturating_add(1) >= layout.count())
    }

    fn verified(&self, _: Range<u64>) -> Verified {
        self.gate.as_ref().map_or(Verified::No, ChecksumGate::verified)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        let layout = self.layout()?;
        ChecksumGate::wait_before(self.gate.as_ref(), piece.saturating_add(1) >= layout.count())?;
        let range = layout.range(piece);
        if let Some(first) = self.first_small(range.start)? {
            return self.chunks.read_small(first, dst);
        }
        self.read(range, dst)
    }

    fn far(&self) -> Option<&dyn Far> {
        if self.chunks.store().is_far() { Some(self) } else { None }
    }

    fn fragmented(&self) -> Option<&dyn Fragmented> {
        Some(self)
    }
}

impl Far for ChunkBlob {
    fn announce(&self, ranges: &[Range<u64>], need: Need) {
        let mut parts = Vec::new();
        for range in ranges {
            // A failure is that of the decode.
            self.chunks(range.clone(), |i, part| {
                parts.push((i, part));
                Ok(())
            })
            .ok();
        }
        self.chunks.announce(&parts, need);
    }
}

impl Fragmented for ChunkBlob {
    fn fragments(&self) -> Option<Layout> {
        let (layout, fragment) = self.layout.ready()?.ok()?;
        layout.divided((*fragment)?)
    }

    fn decode_fragment(&self, piece: u64, at: u64, dst: &mut [u8]) -> Result<()> {
        let layout = self.layout()?;
        ChecksumGate::wait_before(self.gate.as_ref(), piece.saturating_add(1) >= layout.count())?;
        let start = layout.range(piece).start.saturating_add(at);
        self.read(start..start.saturating_add(to_u64(dst.len())), dst)
    }
}

/// A multiple of the block size that is close to the size of a piece and divides the chunk evenly.
fn even_piece(chunk: u64, block: u64, step: u64) -> Option<u64> {
    if chunk.is_multiple_of(step) {
        return Some(step);
    }
    let blocks = chunk.is_multiple_of(block).then_some(chunk / block)?;
    let near = |n: &u64| blocks % n == 0 && n * block >= PIECE / 4;
    (1..=(2 * PIECE / block).min(blocks)).rev().find(near).map(|n| n * block)
}

/// Whether `chunk` is one that can share a piece with its neighbours.
pub(super) fn shares_piece(chunk: &Range<u64>) -> bool {
    chunk.end - chunk.start <= SMALL_CHUNK
}

/// Calls `emit` with the end of every piece of chunks with the ends `ends`; `step` divides large chunks.
fn divide(ends: &[u64], step: u64, mut emit: impl FnMut(u64)) {
    // The range of small chunks that no piece has yet, and the end of the last chunk.
    let (mut open, mut start) = (0..0, 0);
    for &end in ends {
        let is_small = shares_piece(&(start..end));
        let fits = is_small && end - open.start <= SHARED;
        if !open.is_empty() && !fits {
            emit(open.end);
            open = start..start;
        }
        match is_small {
            true if open.is_empty() => open = start..end,
            true => open.end = end,
            false => divide_chunk(start..end, step, &mut emit),
        }
        start = end;
    }
    if !open.is_empty() {
        emit(open.end);
    }
}

/// Calls `emit` with the end of every piece of a chunk.
fn divide_chunk(chunk: Range<u64>, step: u64, mut emit: impl FnMut(u64)) {
    let mut at = chunk.start;
    while at < chunk.end {
        let left = chunk.end - at;
        at += if left <= 2 * PIECE && at == chunk.start { left } else { step.min(left) };
        emit(at);
    }
}

/// A chunk by itself: for one that shares its piece with others, which may be corrupt.
pub(super) struct SingleChunk {
    data: Arc<ChunkBlob>,
    index: u64,
    range: Range<u64>,
}

impl SingleChunk {
    /// Chunk `index`, which has the decoded bytes `range` of `data`.
    pub(super) fn new(data: &Arc<ChunkBlob>, index: u64, range: Range<u64>) -> Self {
        Self { data: Arc::clone(data), index, range }
    }

    fn is_end(&self) -> bool {
        self.range.end >= self.data.chunks.total()
    }
}

impl Blob for SingleChunk {
    fn layout(&self) -> Result<Layout> {
        let len = self.range.end - self.range.start;
        Ok(Layout::Uniform { len, piece: len.max(1) })
    }

    fn gate(&self, _: u64) -> Option<ChecksumGate> {
        ChecksumGate::shut(self.data.gate.as_ref(), self.is_end())
    }

    fn verified(&self, range: Range<u64>) -> Verified {
        self.data.verified(range)
    }

    fn decode(&self, _: u64, dst: &mut [u8]) -> Result<()> {
        ChecksumGate::wait_before(self.data.gate.as_ref(), self.is_end())?;
        self.data.chunks.read(self.index, 0, dst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_chunks_share_pieces_and_large_ones_are_divided() {
        let (small, large, step) = (SMALL_CHUNK, 3 * PIECE, PIECE);
        let pieces = |lens: &[u64]| {
            let ends = lens.iter().scan(0, |end, len| {
                *end += len;
                Some(*end)
            });
            let mut pieces = Vec::new();
            divide(&ends.collect::<Vec<_>>(), step, |end| pieces.push(end));
            pieces
        };
        assert_eq!(pieces(&[]), [0; 0]);
        assert_eq!(pieces(&[0, 0, 0]), [0; 0]);
        assert_eq!(pieces(&[0, 5, 0, 7, 0]), [12]);
        assert_eq!(pieces(&[small; 5]), [2 * small, 4 * small, 5 * small]);
        assert_eq!(pieces(&[small, small + 1, 1, 2]), [small, 2 * small + 1, 2 * small + 4]);
        assert_eq!(pieces(&[1, large, 2]), [1, step + 1, 2 * step + 1, large + 1, large + 3]);
    }
}
