//! Streams of a single symbol, with a code of no bits.
//!
//! Checked: the tables of the partitions that are read give no bits either.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::Symbols;
use super::book::Book;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::stage::scratch::ScratchBuffer;
use crate::format::fzm::stage::types::elements;

/// Partition rows read at a time.
const ROWS: u64 = 4096;

impl Symbols {
    /// Checks that `partitions` have no bits.
    pub(super) fn no_bits(&self, partitions: Range<u64>) -> Result<()> {
        let mut first = partitions.start;
        while first < partitions.end {
            let n = (partitions.end - first).min(ROWS);
            let mut rows = ScratchBuffer::new(to_usize(4 * n, "par_nbit")?)?;
            self.input.read(self.header.par_nbit + 4 * first, &mut rows)?;
            if let Some((i, nbit)) = (first..).zip(elements::<u32>(&rows)).find(|(_, nbit)| *nbit != 0) {
                return Err(Error::corrupt(
                    format!("partition {i} has {nbit} bits, but there are no cells"),
                    "par_nbit",
                ));
            }
            first += n;
        }
        Ok(())
    }

    /// Fills `out`, from symbol `first`, with the only symbol.
    pub(super) fn only(&self, book: &Book, first: u64, out: &mut [u8]) -> Result<()> {
        let only = book.only().ok_or_else(|| Error::corrupt("the alphabet is empty", "bklen"))?;
        let end = first + to_u64(out.len() / self.size);
        self.no_bits(first / self.header.sublen..end.div_ceil(self.header.sublen))?;
        for own in out.chunks_exact_mut(self.size) {
            own.copy_from_slice(&only.to_le_bytes()[..self.size]);
        }
        Ok(())
    }
}
