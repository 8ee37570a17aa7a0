//! Reads rows of a leaf that lie in runs: those between deleted ones.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::bytes::to_usize;
use crate::error::{Error, Result};
use crate::limits::zeroed;

use super::rows::{Rows, Touched};

/// The number of rows in `runs`.
pub(super) fn total(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

/// The same rows in runs of at most `step`.
pub(super) fn pieces(runs: &[Range<u64>], step: u64) -> impl Iterator<Item = Range<u64>> {
    runs.iter().flat_map(move |run| {
        let (start, end) = (run.start, run.end);
        (0..(end - start).div_ceil(step)).map(move |i| start + i * step..(start + (i + 1) * step).min(end))
    })
}

/// Fills `dst` with the rows in `runs`.
pub(super) fn gather(rows: &Rows, runs: &[Range<u64>], dst: &mut [u8]) -> Result<()> {
    let (mut rest, mut touched) = (dst, Touched::default());
    for run in runs {
        let len = to_usize((run.end - run.start).saturating_mul(rows.row_len), "row")?;
        let Some((head, tail)) = std::mem::take(&mut rest).split_at_mut_checked(len) else {
            return Err(Error::corrupt("more rows than requested", "row"));
        };
        rows.read(run.clone(), head, &mut touched)?;
        rest = tail;
    }
    Ok(())
}

/// Passes the bytes of each row in `runs` to `each`.
pub(super) fn for_each_row(rows: &Rows, runs: &[Range<u64>], mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (row_len, mut touched) = (rows.row_len.max(1), Touched::default());
    for run in pieces(runs, (1 << 20) / row_len + 1) {
        let mut values = zeroed((run.end - run.start).saturating_mul(row_len), "row")?;
        rows.read(run, &mut values, &mut touched)?;
        values.chunks(to_usize(row_len, "row")?).try_for_each(&mut each)?;
    }
    Ok(())
}
