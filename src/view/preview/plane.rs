//! Which elements of an array a picture shows, and at which size.
//!
//! A picture shows a [`Slice`], one row of elements after the other.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::slice::{Along, Slice};
use crate::format::Array;

/// Maximum number of pixels of a side.
pub(super) const SIDE: u64 = 1024;
/// The shorter side is at least so many pixels, if the longer one has room.
const THIN: u64 = 128;
/// Height of a curve.
const CURVE: u64 = 320;
/// The elements that are shown: rows and columns of an array. A curve has one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plane {
    /// Offset of the first element, in bytes.
    first: u64,
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Bytes of an element, from an element to the next in its row, and from a row to the next.
    pub(super) itemsize: u64,
    pub(super) step: u64,
    pub(super) row_step: u64,
    /// The elements as an index of NumPy.
    pub(super) shown: String,
    /// Most pixels of a side.
    side: u64,
}

impl Plane {
    /// The plane in the middle of `array`; `None` if that has no elements or no dimensions.
    pub(super) fn middle(array: &Array) -> Option<Self> {
        Self::of(array, &Slice::at(array, |len| len / 2)?, SIDE)
    }

    /// The plane at its start.
    pub(super) fn start(array: &Array) -> Option<Self> {
        Self::of(array, &Slice::at(array, |_| 0)?, SIDE)
    }

    /// The elements `slice` of `array`; `None` if there are none, or if it spans more than two dimensions.
    pub(super) fn of(array: &Array, slice: &Slice, side: u64) -> Option<Self> {
        array.byte_len().filter(|&len| len > 0)?;
        let (mut first, mut stride) = (0_u64, array.itemsize);
        // Inner dimensions first: the columns, then the rows.
        let mut spans = Vec::new();
        for (&len, along) in array.shape.iter().zip(&slice.0).rev() {
            let start = match *along {
                Along::At(at) => at,
                Along::Span { start, end } => {
                    spans.push((end.checked_sub(start).filter(|&n| n > 0)?, stride));
                    start
                }
            };
            first += start * stride;
            stride *= len;
        }
        let (columns, step) = spans.first().copied().unwrap_or((1, array.itemsize));
        let (rows, row_step) = spans.get(1).copied().unwrap_or((1, columns * step));
        let shown = slice.to_string();
        (spans.len() <= 2).then_some(Self {
            first,
            rows,
            columns,
            itemsize: array.itemsize,
            step,
            row_step,
            shown,
            side,
        })
    }

    pub(super) fn is_curve(&self) -> bool {
        self.rows == 1
    }

    /// Whether there are other elements between two rows.
    pub(super) fn has_gaps(&self) -> bool {
        self.row_step > self.columns * self.step
    }

    /// The bytes from the first to the last element of `rows` and `columns`; columns are all unless there is one row.
    pub(super) fn bytes(&self, rows: &Range<u64>, columns: &Range<u64>) -> Range<u64> {
        let start = self.first + rows.start * self.row_step + columns.start * self.step;
        let last = self.first + (rows.end - 1) * self.row_step + (columns.end - 1) * self.step;
        start..last + self.itemsize
    }

    /// A side shorter than this is enlarged by itself.
    fn thin(&self) -> u64 {
        THIN.min(self.side / 4)
    }

    /// The most rows and columns of cells that the picture can show.
    pub(super) fn cells(&self) -> (u64, u64) {
        if self.is_curve() {
            return (1, self.columns.min(self.side));
        }
        let longest = self.rows.max(self.columns);
        let cells = |n: u64| match longest {
            longest if longest <= self.side => n,
            longest => (u128::from(n) * u128::from(self.side) / u128::from(longest)) as u64,
        };
        let thin = self.thin();
        (cells(self.rows).max(self.rows.min(thin)), cells(self.columns).max(self.columns.min(thin)))
    }

    /// Width of the picture in pixels.
    pub(super) fn width(&self) -> u64 {
        if self.is_curve() { self.side } else { self.side(self.cells().1) }
    }

    /// Height of the picture in pixels.
    pub(super) fn height(&self) -> u64 {
        if self.is_curve() { CURVE } else { self.side(self.cells().0) }
    }

    fn side(&self, cells: u64) -> u64 {
        let (rows, columns) = self.cells();
        // Smaller images are enlarged by the factor that a longer side of three quarters allows.
        let factor = (self.side / 4 * 3 / rows.max(columns)).max(1);
        let thin = self.thin();
        cells * if cells * factor < thin { thin.div_ceil(cells) } else { factor }
    }
}
