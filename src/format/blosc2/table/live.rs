//! Which rows of a table are live: a deleted row stays in the columns, marked.
//!
//! Limits: [`BLOCK`] marks are read at a time, and for each such block one number is kept.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::limits::{Charge, zeroed};
use crate::wanted;

use super::rows::{Rows, Touched};

/// Marks that are counted together.
const BLOCK: u64 = 16 << 10;

/// The live rows of a table.
pub(super) struct Live {
    count: u64,
    /// `None` if they are the first rows, without gaps.
    marks: Option<Marks>,
}

/// The marks of all rows, one byte each.
struct Marks {
    rows: Arc<Rows>,
    /// The live rows up to the end of each block.
    ends: Vec<u64>,
    _charge: Charge,
}

impl Live {
    /// The first `count` rows.
    pub(super) fn first(count: u64) -> Self {
        Self { count, marks: None }
    }

    /// Counts the marks in `rows`.
    ///
    /// # Errors
    /// Fails if they cannot be decoded.
    pub(super) fn marked(rows: Arc<Rows>, account: &Account) -> Result<Self> {
        if rows.row_len != 1 {
            return Err(Error::corrupt(format!("marks of {} bytes", rows.row_len), "_valid_rows"));
        }
        let blocks = rows.count().div_ceil(BLOCK);
        let charge = account.charge(blocks.saturating_mul(to_u64(size_of::<u64>())), "_valid_rows")?;
        let mut ends = Vec::with_capacity(to_usize(blocks, "_valid_rows")?);
        let (mut count, mut has_gaps, mut has_ended) = (0, false, false);
        let mut touched = Touched::default();
        for block in 0..blocks {
            wanted::check()?;
            let marks = read(&rows, block, &mut touched)?;
            let first = marks.iter().position(|&mark| mark == 0).unwrap_or(marks.len());
            let live = marks.iter().filter(|&&mark| mark != 0).count();
            has_gaps |= live > first || (live > 0 && has_ended);
            has_ended |= first < marks.len();
            count += to_u64(live);
            ends.push(count);
        }
        let marks = has_gaps.then(|| Marks { rows, ends, _charge: charge });
        Ok(Self { count, marks })
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The rows of the columns that the live rows in `range` are, as consecutive ones together.
    ///
    /// # Errors
    /// Fails if the marks cannot be decoded.
    pub(super) fn runs(&self, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        if range.end > self.count || range.start > range.end {
            return Err(Error::corrupt(format!("row {} of {} live ones", range.end, self.count), "_valid_rows"));
        }
        let Some(Marks { rows, ends, .. }) = &self.marks else { return Ok(vec![range]) };
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut touched = Touched::default();
        let (mut next, mut block) = (range.start, ends.partition_point(|&end| end <= range.start));
        while next < range.end {
            let Some(&end) = ends.get(block) else {
                return Err(Error::corrupt("fewer marks than before", "_valid_rows"));
            };
            let before = block.checked_sub(1).and_then(|i| ends.get(i)).copied().unwrap_or(0);
            if end > before {
                let first = to_u64(block) * BLOCK;
                let marks = read(rows, to_u64(block), &mut touched)?;
                let live = (first..).zip(&marks).filter(|(_, mark)| **mark != 0).map(|(row, _)| row);
                for row in live.skip(to_usize(next - before, "row")?) {
                    match runs.last_mut() {
                        _ if next == range.end => break,
                        Some(run) if run.end == row => run.end += 1,
                        _ => runs.push(row..row + 1),
                    }
                    next += 1;
                }
                if next != end.min(range.end) {
                    return Err(Error::corrupt("fewer marks than before", "_valid_rows"));
                }
            }
            block += 1;
        }
        Ok(runs)
    }
}

/// The marks of a block.
fn read(rows: &Rows, block: u64, touched: &mut Touched) -> Result<Vec<u8>> {
    let range = block * BLOCK..((block + 1) * BLOCK).min(rows.count());
    let mut marks = zeroed(range.end - range.start, "_valid_rows")?;
    rows.read(range, &mut marks, touched)?;
    Ok(marks)
}
