//! The decoded bytes of all chunks, as a blob.
//!
//! Piece: a chunk of up to 2 MiB; of a larger one consecutive blocks of about 1 MiB together. Pieces do not cross
//! chunk boundaries, so that a corrupt chunk makes only its own bytes unreadable.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::bytes::{to_u64, to_usize};
use crate::checksum::{ChecksumGate, Verified};
use crate::error::Result;
use crate::format::{Blob, Check, Layout};
use crate::limits::{Charge, Limits};
use crate::once::Once;

use super::chunk_blocks::BIG;
use super::chunk_index::ChunkIndex;
use super::header::{Header, Kind};

/// Approximate size of a piece.
const PIECE: u64 = 1 << 20;
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
    layout: Once<Layout>,
    /// For the table of pieces.
    charge: OnceLock<Charge>,
}

impl ChunkBlob {
    /// `gate` withholds the decoded bytes until it has passed.
    pub(super) fn new(chunks: Arc<ChunkIndex>, gate: Option<ChecksumGate>) -> Self {
        Self { chunks, gate, layout: Once::new(), charge: OnceLock::new() }
    }

    fn compute_layout(&self) -> Result<Layout> {
        let (block, step) = self.units();
        let Some(chunk) = self.chunks.fixed() else {
            let list = self.chunks.listed()?;
            let max_pieces = list.ends.last().map_or(0, |total| total / step) + self.chunks.count();
            Limits::check(max_pieces, 16 * TABLE, "number of pieces")?;
            self.charge_table(max_pieces)?;
            let mut start = 0;
            let mut ends = Vec::with_capacity(to_usize(max_pieces, "number of pieces")?);
            for &end in &list.ends {
                push_pieces(&mut ends, start..end, step);
                start = end;
            }
            return Ok(Layout::Ends(ends.into()));
        };
        let len = self.chunks.total();
        let piece = if chunk <= 2 * PIECE { chunk.max(1) } else { even_piece(chunk, block, step).unwrap_or(step) };
        if chunk % piece == 0 || self.chunks.count().saturating_mul(chunk.div_ceil(piece)) > TABLE {
            return Ok(Layout::Uniform { len, piece });
        }
        let max_pieces = self.chunks.count().saturating_mul(chunk.div_ceil(piece));
        self.charge_table(max_pieces)?;
        let mut ends = Vec::with_capacity(to_usize(max_pieces, "number of pieces")?);
        for i in 0..self.chunks.count() {
            push_pieces(&mut ends, self.chunks.range(i)?, piece);
        }
        Ok(Layout::Ends(ends.into()))
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
        let some = |header: &Header| header.kind == Kind::Blocks && u64::from(header.blocksize) <= BIG;
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
        self.chunks(range, |i, part| self.chunks.verify(i, part, PIECE))
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
        self.layout.get(|| self.compute_layout()).cloned()
    }

    fn gate(&self, piece: u64) -> Option<ChecksumGate> {
        let layout = self.layout.ready()?.ok()?;
        ChecksumGate::shut(self.gate.as_ref(), piece.saturating_add(1) >= layout.count())
    }

    fn verified(&self) -> Verified {
        self.gate.as_ref().map_or(Verified::No, ChecksumGate::verified)
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        let layout = self.layout()?;
        ChecksumGate::wait_before(self.gate.as_ref(), piece.saturating_add(1) >= layout.count())?;
        let range = layout.range(piece);
        let mut rest = dst;
        self.chunks(range, |i, part| {
            let len = (part.end - part.start) as usize;
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
            rest = later;
            self.chunks.read(i, part.start, now)
        })
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

fn push_pieces(ends: &mut Vec<u64>, chunk: Range<u64>, step: u64) {
    let mut at = chunk.start;
    while at < chunk.end {
        let left = chunk.end - at;
        at += if left <= 2 * PIECE && at == chunk.start { left } else { step.min(left) };
        ends.push(at);
    }
}
