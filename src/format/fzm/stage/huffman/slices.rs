//! Partitions larger than [`SLICE`]: windows decode only the slices they need.
//!
//! The starts of a partition's slices are found by decoding it once, and kept for recently read partitions. So a
//! sequential reader decodes a partition twice, not once per window.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::book::{Book, Lane};
use super::{Symbols, broken, ends};
use crate::account::decode_budget;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::limits::Charge;

/// Bytes of a slice.
pub(super) const SLICE: u64 = 64 << 10;
/// Number of partitions with slices that are kept.
const KNOWN: usize = 64;

/// The slice starts of recently read partitions, most recent first.
pub(super) struct Slices(Mutex<VecDeque<Arc<Starts>>>);

/// The slice starts of one partition.
struct Starts {
    partition: u64,
    /// The first cell of the partition.
    entry: u64,
    /// The bit at which each slice starts, then the end.
    bits: Vec<u64>,
    _charge: Charge,
}

impl Slices {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// The starts for `partition`, computed by `find` if they are not kept.
    fn get(&self, partition: u64, find: impl FnOnce() -> Result<Starts>) -> Result<Arc<Starts>> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut known = lock();
            let place = known.iter().position(|starts| starts.partition == partition);
            if let Some(starts) = place.and_then(|place| known.remove(place)) {
                known.push_front(Arc::clone(&starts));
                return Ok(starts);
            }
        }
        let starts = Arc::new(find()?);
        let mut known = lock();
        known.truncate(KNOWN - 1);
        known.push_front(Arc::clone(&starts));
        Ok(starts)
    }
}

impl Symbols {
    /// Decodes symbols into `out`, from byte `at`.
    pub(super) fn slices(&self, book: &Book, at: u64, out: &mut [u8]) -> Result<()> {
        let block = self.header.sublen * to_u64(self.size);
        let (mut at, mut rest) = (at, out);
        while !rest.is_empty() {
            let (partition, within) = (at / block, at % block);
            let start = at - within;
            let len = block.min(self.windows.len() - start);
            let n = rest.len().min(to_usize(len - within, "sublen")?);
            let (own, tail) = std::mem::take(&mut rest).split_at_mut(n);
            let starts = self.slices.get(partition, || self.find(book, partition, len))?;
            self.windows.part(start, len, SLICE).fill(within, own, |from, out| {
                let first = to_usize(from / SLICE, "slice")?;
                for (i, out) in (first..).zip(out.chunks_mut(SLICE as usize)) {
                    let &[from, to] = starts.bits.get(i..).and_then(<[u64]>::first_chunk).ok_or_else(|| missing(i))?;
                    let used = self.slice(book, &starts, from, to, out)?;
                    ends(used, to, partition)?;
                }
                Ok(())
            })?;
            (at, rest) = (at + to_u64(n), tail);
        }
        Ok(())
    }

    /// Decodes a partition of `len` bytes to find its slices.
    fn find(&self, book: &Book, partition: u64, len: u64) -> Result<Starts> {
        let (nbit, entry) = self.row(partition)?;
        let charge = self.cx.account.charge_list(8 * (len.div_ceil(SLICE) + 1), "slices of a partition")?;
        let mut starts = Starts { partition, entry, bits: vec![0], _charge: charge };
        let (mut at, mut bit) = (0, 0);
        while at < len {
            let n = SLICE.min(len - at);
            decode_budget::charge(n)?;
            let mut out = ScratchBuffer::new(to_usize(n, "slice")?)?;
            bit = self.slice(book, &starts, bit, nbit, &mut out)?;
            starts.bits.push(bit);
            at += n;
        }
        ends(bit, nbit, partition)?;
        Ok(starts)
    }

    /// Decodes symbols from bit `from`, at most to bit `to`. Returns the bit where they end.
    fn slice(&self, book: &Book, starts: &Starts, from: u64, to: u64, out: &mut [u8]) -> Result<u64> {
        let first = from / 32;
        // No code is longer than a cell (32 bits).
        let count = to.div_ceil(32).saturating_sub(first).min(to_u64(out.len() / self.size) + 1);
        let cells = self.cells(starts.entry + first, count)?;
        let mut lane = [Lane { cells: &cells, used: from % 32, out }];
        book.decode(&mut lane).map_err(|(_, why)| broken(why, starts.partition))?;
        let [lane] = lane;
        Ok(first * 32 + lane.used)
    }
}

fn missing(slice: usize) -> Error {
    Error::corrupt(format!("slice {slice} is missing"), "bitstream")
}
