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
                    spans.push((end.checked_sub(start)?, stride));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(shape: &[u64], slice: &str, side: u64) -> Option<Plane> {
        let array = Array { descr: "'<f4'".to_owned(), itemsize: 4, shape: shape.to_vec() };
        Plane::of(&array, &Slice::parse(slice, &array).unwrap(), side)
    }

    #[test]
    fn the_longer_side_fits_and_small_images_are_enlarged() {
        for (side, rows, columns, cells, width, height) in [
            (SIDE, 700, 900, (700, 900), 900, 700),
            (SIDE, 1024, 1024, (1024, 1024), 1024, 1024),
            (SIDE, 1025, 1024, (1024, 1023), 1023, 1024),
            // By the factor with which the longer side has three quarters at most.
            (SIDE, 10, 10, (10, 10), 760, 760),
            (SIDE, 384, 100, (384, 100), 200, 768),
            (SIDE, 385, 200, (385, 200), 200, 385),
            // A thin side by itself, and it keeps its cells.
            (SIDE, 384, 64, (384, 64), 128, 768),
            (SIDE, 384, 63, (384, 63), 189, 768),
            (SIDE, 2000, 3, (1024, 3), 129, 1024),
            (SIDE, 3, 2000, (3, 1024), 1024, 129),
            (SIDE, 4096, 256, (1024, 128), 128, 1024),
            (SIDE, 256, 4096, (128, 1024), 1024, 128),
            // Of a small picture, a quarter is thin.
            (256, 100, 100, (100, 100), 100, 100),
            (256, 10, 10, (10, 10), 190, 190),
            (256, 512, 4, (256, 4), 64, 256),
            (16, 100, 2, (16, 2), 4, 16),
        ] {
            let plane = plane(&[rows, columns], ":,:", side).unwrap();
            assert_eq!((plane.cells(), plane.width(), plane.height()), (cells, width, height), "{rows} x {columns}");
        }
        for (len, side, cells) in [(7, SIDE, 7), (1024, SIDE, 1024), (5000, SIDE, 1024), (5000, 100, 100)] {
            let plane = plane(&[len], ":", side).unwrap();
            assert_eq!((plane.cells(), plane.width(), plane.height()), ((1, cells), side, 320), "{len}");
        }
    }

    #[test]
    fn the_bytes_of_a_plane_lie_between_its_first_and_its_last_element() {
        for (slice, [rows, columns, step, row_step], has_gaps, bytes) in [
            ("1,:,:", [6, 5, 4, 20], false, 120..240),
            (":,1,:", [4, 5, 4, 120], true, 20..400),
            (":,:,1", [4, 6, 20, 120], false, 4..468),
            ("1,2:4,:", [2, 5, 4, 20], false, 160..200),
            ("1,:,1:3", [6, 2, 4, 20], true, 124..232),
            ("1,2,:", [1, 5, 4, 20], false, 160..180),
            (":,2,3", [1, 4, 120, 480], false, 52..416),
            ("1,2,3", [1, 1, 4, 4], false, 172..176),
        ] {
            let plane = plane(&[4, 6, 5], slice, SIDE).unwrap();
            assert_eq!(
                [plane.rows, plane.columns, plane.step, plane.row_step],
                [rows, columns, step, row_step],
                "{slice}"
            );
            assert_eq!((plane.has_gaps(), plane.is_curve()), (has_gaps, rows == 1), "{slice}");
            assert_eq!(plane.bytes(&(0..rows), &(0..columns)), bytes, "{slice}");
            let last = bytes.end - 4..bytes.end;
            assert_eq!(plane.bytes(&(rows - 1..rows), &(columns - 1..columns)), last, "{slice}");
        }
        assert_eq!(plane(&[4, 6, 5], ":,:,:", SIDE), None);
    }
}
