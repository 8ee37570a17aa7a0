//! Texts of a column as two leaves: the offset at which each ends, and the bytes of all.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::error::{Error, Result};
use crate::limits::zeroed;

use super::rows::{Rows, Touched};
use super::runs::pieces;
use super::texts::Texts;

/// Rows of offsets that are read at a time.
const STEP: u64 = 64 << 10;

pub(super) fn descending() -> Error {
    Error::corrupt("a text ends before it begins", "utf8")
}

/// Where text `row` begins in `bytes`.
pub(super) fn end_at(ends: &Rows, row: u64, bytes: &Rows, touched: &mut Touched) -> Result<u64> {
    let mut end = [0; 8];
    ends.read(row..row + 1, &mut end, touched)?;
    in_bytes(i64::from_le_bytes(end), bytes)
}

fn in_bytes(end: i64, bytes: &Rows) -> Result<u64> {
    let count = bytes.count();
    match u64::try_from(end) {
        Ok(end) if end <= count => Ok(end),
        _ => Err(Error::corrupt(format!("byte {end} of {count}"), "utf8")),
    }
}

/// Adds the texts of the rows in `runs`, which end in `bytes` as `ends` say.
pub(super) fn utf8(ends: &Rows, bytes: &Rows, runs: &[Range<u64>], texts: &mut Texts) -> Result<()> {
    let (mut touched, mut in_text) = (Touched::default(), Touched::default());
    for run in pieces(runs, STEP) {
        let mut places = zeroed((run.end - run.start + 1) * 8, "utf8")?;
        ends.read(run.start..run.end + 1, &mut places, &mut touched)?;
        let (places, _) = places.as_chunks::<8>();
        let places: Vec<u64> =
            places.iter().map(|place| in_bytes(i64::from_le_bytes(*place), bytes)).collect::<Result<_>>()?;
        if !places.is_sorted() {
            return Err(descending());
        }
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else { continue };
        texts.reserve(last - first)?;
        let mut found = zeroed(last - first, "text")?;
        bytes.read(first..last, &mut found, &mut in_text)?;
        for pair in places.windows(2) {
            texts.push(found.get((pair[0] - first) as usize..(pair[1] - first) as usize))?;
        }
    }
    Ok(())
}
