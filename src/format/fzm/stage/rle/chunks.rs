//! Windows by the table of chunks: a window reads the runs of its own chunks.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::coded::{Coded, descending, no_elements, surplus};
use super::expand::Expand;
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise};
use crate::format::fzm::stage::types::elements;
use crate::format::fzm::stream::Derivation;

/// Larger chunks are not decoded as a whole, in bytes.
pub(super) const LARGEST: u64 = 64 << 10;

/// The elements of an array with chunks.
pub(super) struct RleChunks {
    coded: Coded,
    /// Bytes of a chunk.
    chunk: u64,
    expand: Expand,
    windows: BlockWindows,
}

impl RleChunks {
    pub(super) fn new(coded: Coded, len: u64, chunk: u64, expand: Expand) -> Self {
        Self { coded, chunk, expand, windows: BlockWindows::new(len, chunk, 1) }
    }
}

impl Blockwise for RleChunks {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let sections = self.coded.sections()?;
        let chunks = to_u64(out.len()).div_ceil(self.chunk);
        // Entry 0 of the table is the start of the first chunk.
        let table = self.coded.numbers(4, start / self.chunk, chunks + 1)?;
        let places = || elements::<u32>(&table).map(u64::from);
        let (first, end) = (places().next().unwrap_or_default(), places().next_back().unwrap_or_default());
        let count = to_u64(out.len() / self.coded.size);
        let n = end.checked_sub(first).filter(|&n| n <= count && end <= sections.runs);
        let n = n.ok_or_else(|| Error::corrupt(format!("runs {first} to {end} of {count} elements"), "run_offsets"))?;
        let lengths = self.coded.numbers(sections.lengths, first, n)?;
        let mut rest = &lengths[..];
        let (per, from) = (self.chunk / to_u64(self.coded.size), start / to_u64(self.coded.size));
        let mut left = count;
        for (from, (place, end)) in (from..).step_by(per as usize).zip(places().zip(places().skip(1))) {
            let runs = end
                .checked_sub(place)
                .filter(|&runs| runs > 0)
                .and_then(|runs| rest.split_at_checked(4 * runs as usize));
            let Some((own, after)) = runs else { return Err(descending(end)) };
            let want = left.min(per);
            if elements::<u32>(own).any(|length| length == 0) {
                return Err(no_elements());
            }
            if elements::<u32>(own).map(u64::from).sum::<u64>() != want {
                return Err(surplus(from + want));
            }
            (rest, left) = (after, left - want);
        }
        let values = self.coded.values(sections, first, n)?;
        let done = (self.expand)(&values, &lengths, 0, out);
        if to_u64(done) == count { Ok(()) } else { Err(surplus(from + count)) }
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        None
    }
}
