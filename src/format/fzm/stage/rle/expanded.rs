//! Windows by the index of runs: the scan of the lengths reads from the front, as far as needed; a window then reads only
//! its own runs.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::coded::{BATCH, Coded, STRIDE};
use super::expand::Expand;
use crate::bytes::to_u64;
use crate::error::{Error, Result};
use crate::format::fzm::inverse::{self, Inverse};
use crate::format::fzm::stage::block_windows::{BlockWindows, Blockwise};
use crate::format::fzm::stream::{Derivation, Setup};

/// The elements of an array without chunks, or with large ones.
pub(super) struct Expanded {
    coded: Coded,
    /// Number of elements, from the configuration or the scan.
    count: u64,
    expand: Expand,
    windows: BlockWindows,
}

impl Expanded {
    pub(super) fn new(coded: Coded, count: u64, len: u64, expand: Expand) -> Self {
        let windows = BlockWindows::new(len, to_u64(coded.size), 1);
        Self { coded, count, expand, windows }
    }

    /// Fills `out` with whole elements from element `at`.
    fn fill(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let size = self.coded.size;
        let (sections, starts) = (self.coded.sections()?, self.coded.starts()?);
        let end = at.saturating_add(to_u64(out.len() / size));
        if end < self.count {
            self.coded.scan(|frontier| frontier.last >= end)?;
        } else {
            // The window includes the last element, so all lengths must add up to the count.
            let total = self.coded.total()?;
            if total != self.count {
                let why = format!("{total} elements in the runs, {} in the configuration", self.count);
                return Err(Error::corrupt(why, "lengths"));
            }
        }
        let (mut at, mut rest) = (at, out);
        while !rest.is_empty() {
            // The last stride that starts at or before `at`; skips strides without elements.
            let stride = starts.partition_point(|start| start <= at)?.checked_sub(1).ok_or_else(gap)?;
            let past = starts.partition_point(|start| start < end)?;
            let start = starts.get(stride)?.ok_or_else(gap)?;
            let first = stride * STRIDE;
            let last = (past * STRIDE).min(first + BATCH).min(sections.runs);
            let n = last.checked_sub(first).ok_or_else(gap)?;
            let lengths = self.coded.numbers(sections.lengths, first, n)?;
            let values = self.coded.values(sections, first, n)?;
            let done = (self.expand)(&values, &lengths, at - start, rest);
            if done == 0 {
                // The runs end before `count`, or the bytes changed between two reads.
                return Err(gap());
            }
            at += to_u64(done);
            rest = &mut rest[done * size..];
        }
        Ok(())
    }
}

fn gap() -> Error {
    Error::corrupt("the runs end before the last element", "lengths")
}

impl Blockwise for Expanded {
    fn windows(&self) -> &BlockWindows {
        &self.windows
    }

    fn decode(&self, start: u64, out: &mut [u8]) -> Result<()> {
        self.fill(start / to_u64(self.coded.size), out)
    }

    fn setup(&self) -> Setup {
        Setup::Scan
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        if !self.coded.is_plain() {
            return None;
        }
        let (size, input, own) = (to_u64(self.coded.size), Arc::clone(&self.coded.input), Arc::clone(&self));
        let runs = Arc::new(move || own.coded.sections().map(|sections| (sections.runs, sections.lengths)));
        let inverse = Inverse::Rle(inverse::Rle { size, count: self.count, runs });
        Some(Derivation { inverse, input })
    }
}
