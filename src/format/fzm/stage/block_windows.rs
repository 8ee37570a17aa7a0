//! Windows of streams that decode in blocks.
//!
//! A stage decodes blocks; a window is any byte range. [`BlockWindows::fill`] splits a window into steps of whole
//! blocks, decoded in place, and at most two partial blocks, decoded into scratch memory. A step has a few tens of KiB,
//! so that the data passed between the stages of a chain stays in the first-level cache.
//!
//! Each thread keeps the partial blocks it decoded last, so that consecutive windows within one block decode it once.
//! The whole of a partial block is charged to the request.
//!
//! Limits, per thread: 8 kept blocks of up to 256 KiB.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::scratch::ScratchBuffer;
use crate::account::decode_budget;
use crate::bytes::{to_u64, to_usize};
use crate::error::Result;
use crate::format::fzm::stream::{ByteStream, Derivation, Setup};

/// Target size of a step's output in bytes.
pub(super) const STEP: u64 = 32 << 10;

/// Largest joint unit of two stages; beyond it, steps follow the outer stage only.
const JOINT: u64 = 1 << 20;

/// The number of the next stream.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// How a stream of `len` bytes that decodes in blocks is split into steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockWindows {
    /// The unique number of the stream.
    stream: u64,
    /// Offset of the steps in the stream.
    origin: u64,
    len: u64,
    block: u64,
    step: u64,
    unit: u64,
}

impl BlockWindows {
    /// A stream of `len` bytes in blocks of `block` bytes. One unit of its input gives `unit` bytes of output.
    pub(super) fn new(len: u64, block: u64, unit: u64) -> Self {
        let (block, unit) = (block.max(1), unit.max(1));
        let joint = lcm(block, unit).filter(|&joint| joint <= JOINT);
        let whole = joint.unwrap_or(block);
        let step = whole.saturating_mul((STEP / whole).max(1));
        let stream = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            stream,
            origin: 0,
            len,
            block,
            step,
            unit: joint.unwrap_or_else(|| block.max(unit.div_ceil(block).saturating_mul(block))),
        }
    }

    /// The `len` bytes at `origin` as if they were a stream of their own, in blocks of `block` bytes.
    pub(super) fn part(&self, origin: u64, len: u64, block: u64) -> Self {
        let block = block.max(1);
        Self { origin: self.origin.saturating_add(origin), len, block, step: block, unit: block, ..*self }
    }

    /// Bytes of the stream.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// See [`super::super::stream::ByteStream::unit`].
    pub(super) fn unit(&self) -> u64 {
        self.unit
    }

    /// Fills `dst` with the bytes at `at`, by calls of `decode(start, out)`: `start` is a multiple of the block, and
    /// `out` ends at one or at the end of the stream.
    pub(super) fn fill(
        &self,
        at: u64,
        dst: &mut [u8],
        mut decode: impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let end = at.saturating_add(to_u64(dst.len()));
        let (mut at, mut rest) = (at, dst);
        while !rest.is_empty() {
            let start = at - at % self.block;
            let full = (at - at % self.step).saturating_add(self.step).min(self.len);
            let stop = if end >= full { full } else { end - end % self.block };
            if at == start && stop > at {
                let (head, tail) = std::mem::take(&mut rest).split_at_mut(to_usize(stop - at, "window")?);
                decode(at, head)?;
                (at, rest) = (stop, tail);
                continue;
            }
            // The window begins or ends inside this block.
            let block = to_usize(self.block.min(self.len - start), "block")?;
            let from = to_usize(at - start, "block")?;
            let n = rest.len().min(block - from);
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(n);
            let key = (self.stream, self.origin.saturating_add(start));
            if !PartialBlocks::copy(key, block, from, head) {
                decode_budget::charge(to_u64(block - n))?;
                let mut partial = ScratchBuffer::new(block)?;
                decode(start, &mut partial)?;
                head.copy_from_slice(&partial[from..from + n]);
                PartialBlocks::keep(key, &partial);
            }
            (at, rest) = (at + to_u64(n), tail);
        }
        Ok(())
    }
}

/// A stream that decodes in blocks: the part of a [`ByteStream`] that differs from stage to stage.
pub(super) trait Blockwise: Send + Sync {
    /// How it is split into steps.
    fn windows(&self) -> &BlockWindows;

    /// Fills `out`, which is not empty, from `start`: whole blocks; the last one of the stream may be shorter.
    ///
    /// # Errors
    /// As for [`ByteStream::read`].
    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()>;

    /// See [`ByteStream::setup`].
    fn setup(&self) -> Setup {
        Setup::None
    }

    /// See [`ByteStream::derivation`].
    fn derivation(self: Arc<Self>) -> Option<Derivation>;
}

impl<T: Blockwise> ByteStream for T {
    fn len(&self) -> u64 {
        self.windows().len()
    }

    fn unit(&self) -> u64 {
        self.windows().unit()
    }

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        self.windows().fill(at, dst, |start, out| self.decode(start, out))
    }

    fn setup(&self) -> Setup {
        Blockwise::setup(self)
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        Blockwise::derivation(self)
    }
}

/// Least common multiple; `None` if it overflows.
fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).checked_mul(b)
}

/// Output bytes from `unit` input bytes, if `from` bytes become `to` bytes.
pub(super) fn scaled(unit: u64, from: usize, to: usize) -> u64 {
    let whole = lcm(unit.max(1), to_u64(from)).unwrap_or(unit);
    (whole / to_u64(from).max(1)).saturating_mul(to_u64(to)).max(1)
}

/// This thread's cache of blocks that a window covered only in part.
struct PartialBlocks;

/// A block: the number of its stream, and its offset there.
type StreamBlock = (u64, u64);

/// Number of blocks that a thread keeps.
const KEPT_BLOCKS: usize = 8;
/// Sizes kept: smaller blocks are faster to decode than to find, larger ones use too much memory.
const KEPT_SIZES: std::ops::RangeInclusive<usize> = 512..=256 << 10;

thread_local! {
    /// Most recently used first.
    static BLOCKS: RefCell<VecDeque<(StreamBlock, Vec<u8>)>> = const { RefCell::new(VecDeque::new()) };
}

impl PartialBlocks {
    /// Fills `dst` with the bytes of block `key`, of `len` bytes, from offset `from`. Returns false if the block is not
    /// kept.
    fn copy(key: StreamBlock, len: usize, from: usize, dst: &mut [u8]) -> bool {
        if !KEPT_SIZES.contains(&len) {
            return false;
        }
        BLOCKS.with_borrow_mut(|blocks| {
            let Some(place) = blocks.iter().position(|(own, _)| *own == key) else { return false };
            let Some(found) = blocks.remove(place) else { return false };
            let bytes = found.1.get(from..).and_then(|bytes| bytes.get(..dst.len()));
            let is_there = bytes.is_some();
            if let Some(bytes) = bytes {
                dst.copy_from_slice(bytes);
            }
            blocks.push_front(found);
            is_there
        })
    }

    fn keep(key: StreamBlock, block: &[u8]) {
        if !KEPT_SIZES.contains(&block.len()) {
            return;
        }
        BLOCKS.with_borrow_mut(|blocks| {
            let mut bytes =
                if blocks.len() < KEPT_BLOCKS { None } else { blocks.pop_back() }.map_or_else(Vec::new, |b| b.1);
            bytes.clear();
            bytes.extend_from_slice(block);
            blocks.push_front((key, bytes));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn every_window_is_filled_from_whole_blocks() {
        let whole: Vec<u8> = (0..1003_u32).map(|i| i as u8).collect();
        for (block, unit) in [(1, 1), (4, 6), (7, 13), (64, 64), (2000, 3)] {
            let steps = BlockWindows { step: block * 2, ..BlockWindows::new(1003, block, unit) };
            for at in (0..1003_u64).step_by(17) {
                for len in [0, 1, 5, 64, 300, 1003] {
                    let len = len.min(1003 - at as usize);
                    let mut dst = vec![0xAA; len];
                    steps
                        .fill(at, &mut dst, |start, out| {
                            let end = start + to_u64(out.len());
                            assert!(
                                start.is_multiple_of(block) && (end.is_multiple_of(block) || end == 1003),
                                "{start}..{end}"
                            );
                            out.copy_from_slice(&whole[start as usize..end as usize]);
                            Ok(())
                        })
                        .unwrap();
                    assert_eq!(dst, whole[at as usize..at as usize + len]);
                }
            }
        }
    }

    #[test]
    fn units_are_combined_while_they_stay_small() {
        assert_eq!(BlockWindows::new(1 << 30, 4096, 32768).unit(), 32768);
        assert_eq!(BlockWindows::new(1 << 30, 4096, 3072).unit(), 12288);
        assert_eq!(BlockWindows::new(1 << 30, 4096, 1_000_003).unit(), 1_003_520);
        assert_eq!((scaled(768, 2, 4), scaled(3, 2, 4), scaled(1, 1, 1)), (1536, 12, 1));
    }

    #[test]
    fn consecutive_windows_decode_a_block_once() {
        let steps = BlockWindows::new(1 << 20, 64 << 10, 1);
        let mut decoded = 0;
        for at in (0..1 << 20).step_by(1000) {
            let mut dst = vec![0; 1000.min((1 << 20) - at)];
            steps
                .fill(to_u64(at), &mut dst, |start, out| {
                    decoded += out.len();
                    out.iter_mut().zip(start..).for_each(|(own, n)| *own = n as u8);
                    Ok(())
                })
                .unwrap();
            assert!(dst.iter().zip(at..).all(|(own, n)| *own == n as u8), "{at}");
        }
        assert_eq!(decoded, 1 << 20);
    }

    #[test]
    fn streams_do_not_share_blocks_and_failed_blocks_are_not_kept() {
        let [one, two] = [1, 2].map(|_| BlockWindows::new(10_000, 5000, 1));
        let read = |steps: &BlockWindows, value: u8| {
            let mut dst = [0; 10];
            steps.fill(7, &mut dst, |_, out| {
                out.fill(value);
                if value == 0 { Err(Error::corrupt("no", "x")) } else { Ok(()) }
            })?;
            Ok::<u8, Error>(dst[9])
        };
        assert!(read(&one, 0).is_err());
        assert_eq!((read(&one, 1).unwrap(), read(&two, 2).unwrap(), read(&one, 3).unwrap()), (1, 2, 1));
        let part = one.part(5000, 5000, 5000);
        assert_eq!((read(&part, 4).unwrap(), read(&one, 5).unwrap()), (4, 1));
    }
}
