//! Producing windows: inner steps of a few tens of KiB, and scratch memory that is used again.
//!
//! A stage decodes blocks; a window is any byte range. [`Steps::fill`] cuts a window into steps that
//! are whole blocks, decoded in place, and at most two torn blocks, decoded beside it. A step is
//! small enough that what passes between the stages of a chain stays in the first-level caches.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use crate::bytes::{narrow, wide};
use crate::error::Result;

/// Bytes of output that a step aims at.
pub(super) const STEP: u64 = 32 << 10;

/// A unit of two stages together is given up beyond this; steps then follow the outer stage alone.
const JOINT: u64 = 1 << 20;

/// How a stream of `len` bytes that decodes in blocks is cut into steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    len: u64,
    block: u64,
    step: u64,
    unit: u64,
}

impl Steps {
    /// A stream of `len` bytes in blocks of `block` bytes, whose input comes in units that give
    /// `unit` bytes of output.
    pub(super) fn new(len: u64, block: u64, unit: u64) -> Self {
        let (block, unit) = (block.max(1), unit.max(1));
        let joint = lcm(block, unit).filter(|&joint| joint <= JOINT);
        let whole = joint.unwrap_or(block);
        let step = whole.saturating_mul((STEP / whole).max(1));
        Self { len, block, step, unit: joint.unwrap_or_else(|| block.max(unit.div_ceil(block).saturating_mul(block))) }
    }

    /// Bytes of the stream.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// As [`super::super::stream::Stream::unit`].
    pub(super) fn unit(&self) -> u64 {
        self.unit
    }

    /// Fills `dst`, which starts at byte `at`, through `decode(start, out)`: `start` is a multiple of
    /// the block, and `out` ends at one or at the end of the stream.
    pub(super) fn fill(
        &self,
        at: u64,
        dst: &mut [u8],
        mut decode: impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let end = at.saturating_add(wide(dst.len()));
        let (mut at, mut rest) = (at, dst);
        while !rest.is_empty() {
            let start = at - at % self.block;
            let full = (at - at % self.step).saturating_add(self.step).min(self.len);
            let stop = if end >= full { full } else { end - end % self.block };
            if at == start && stop > at {
                let (head, tail) = std::mem::take(&mut rest).split_at_mut(narrow(stop - at, "window")?);
                decode(at, head)?;
                (at, rest) = (stop, tail);
                continue;
            }
            // The window begins or ends inside this block.
            let mut torn = Scratch::bytes(narrow(self.block.min(self.len - start), "block")?);
            decode(start, &mut torn)?;
            let from = narrow(at - start, "block")?;
            let n = rest.len().min(torn.len() - from);
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(n);
            head.copy_from_slice(&torn[from..from + n]);
            (at, rest) = (at + wide(n), tail);
        }
        Ok(())
    }
}

/// Least common multiple; `None` where it does not fit.
fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).checked_mul(b)
}

/// Output bytes that come from `unit` input bytes, when `from` bytes become `to`.
pub(super) fn scaled(unit: u64, from: usize, to: usize) -> u64 {
    let whole = lcm(unit.max(1), wide(from)).unwrap_or(unit);
    (whole / wide(from).max(1)).saturating_mul(wide(to)).max(1)
}

/// Bytes taken from a stack of this thread, given back on drop. What they hold is left over from
/// earlier use.
#[derive(Debug)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
    len: usize,
}

/// A thread keeps this many buffers: as many as a graph is deep, mostly.
const KEPT: usize = 16;
/// Larger buffers are not kept.
const KEPT_BYTES: usize = 1 << 20;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Scratch {
    /// `len` bytes. Callers bound `len` by a step, a block or a piece.
    pub(super) fn bytes(len: usize) -> Self {
        let mut bytes = POOL.with_borrow_mut(Vec::pop).unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Self { bytes, len }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.bytes.len() <= KEPT_BYTES {
            let bytes = std::mem::take(&mut self.bytes);
            POOL.with_borrow_mut(|pool| {
                if pool.len() < KEPT {
                    pool.push(bytes);
                }
            });
        }
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_is_filled_from_whole_blocks() {
        let whole: Vec<u8> = (0..1003_u32).map(|i| i as u8).collect();
        for (block, unit) in [(1, 1), (4, 6), (7, 13), (64, 64), (2000, 3)] {
            let steps = Steps { step: block * 2, ..Steps::new(1003, block, unit) };
            for at in (0..1003_u64).step_by(17) {
                for len in [0, 1, 5, 64, 300, 1003] {
                    let len = len.min(1003 - at as usize);
                    let mut dst = vec![0xAA; len];
                    steps
                        .fill(at, &mut dst, |start, out| {
                            let end = start + wide(out.len());
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
    fn units_join_while_they_stay_small() {
        assert_eq!(Steps::new(1 << 30, 4096, 32768).unit(), 32768);
        assert_eq!(Steps::new(1 << 30, 4096, 3072).unit(), 12288);
        assert_eq!(Steps::new(1 << 30, 4096, 1_000_003).unit(), 1_003_520);
        assert_eq!((scaled(768, 2, 4), scaled(3, 2, 4), scaled(1, 1, 1)), (1536, 12, 1));
    }

    #[test]
    fn scratch_is_exactly_as_long_as_asked() {
        drop(Scratch::bytes(100));
        assert_eq!(Scratch::bytes(10).len(), 10);
    }
}
