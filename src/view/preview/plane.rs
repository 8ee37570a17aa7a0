//! Which elements of an array a picture shows, and at which size.
//!
//! Dimensions of length 1 are left out. Of the others, the last two are rows and columns; of each leading one, the
//! middle is shown, and also of a last one of at most [`COMPONENTS`] elements, such as colours or vectors.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::format::Array;

/// Maximum number of pixels of a side.
pub(super) const SIDE: u64 = 1024;
/// Smaller images are enlarged by the factor that the longer side of this size allows.
const AMPLE: u64 = 768;
/// A side shorter than this is enlarged by itself.
const THIN: u64 = 128;
/// Height of a curve.
const CURVE: u64 = 320;
/// Maximum length of a dimension of components.
const COMPONENTS: u64 = 4;

/// The elements that are shown: rows and columns of an array. A curve has one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plane {
    /// Offset of the first element, in bytes.
    first: u64,
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Bytes of an element, and from an element to the next in its row.
    pub(super) itemsize: u64,
    pub(super) step: u64,
    /// The elements as an index of NumPy.
    pub(super) shown: String,
}

impl Plane {
    /// The plane in the middle of `array`; `None` if that has no elements or no dimensions.
    pub(super) fn middle(array: &Array) -> Option<Self> {
        Self::at(array, |len| len / 2)
    }

    /// The plane at its start.
    pub(super) fn start(array: &Array) -> Option<Self> {
        Self::at(array, |_| 0)
    }

    fn at(array: &Array, index: impl Fn(u64) -> u64) -> Option<Self> {
        let shape = &array.shape;
        array.byte_len().filter(|&len| len > 0 && !shape.is_empty())?;
        let long: Vec<usize> = (0..shape.len()).filter(|&d| shape[d] > 1).collect();
        let (rows, columns) = match long[..] {
            [] => (None, shape.len() - 1),
            [columns] => (None, columns),
            [.., a, b, c] if shape[c] <= COMPONENTS && shape[a] > COMPONENTS && shape[b] > COMPONENTS => (Some(a), b),
            [.., rows, columns] => (Some(rows), columns),
        };
        let (mut first, mut step, mut stride) = (0_u64, 0, array.itemsize);
        let mut shown = vec![":".to_owned(); shape.len()];
        for d in (0..shape.len()).rev() {
            if d == columns {
                step = stride;
            } else if Some(d) != rows {
                let at = index(shape[d]);
                first += at * stride;
                shown[d] = at.to_string();
            }
            stride *= shape[d];
        }
        let rows = rows.map_or(1, |d| shape[d]);
        let shown = format!("[{}]", shown.join(", "));
        Some(Self { first, rows, columns: shape[columns], itemsize: array.itemsize, step, shown })
    }

    pub(super) fn is_curve(&self) -> bool {
        self.rows == 1
    }

    /// Bytes from a row to the next.
    pub(super) fn row_bytes(&self) -> u64 {
        self.columns * self.step
    }

    /// The bytes from the first to the last element of `rows` and `columns`; columns are all unless there is one row.
    pub(super) fn bytes(&self, rows: &Range<u64>, columns: &Range<u64>) -> Range<u64> {
        let start = self.first + rows.start * self.row_bytes() + columns.start * self.step;
        let last = self.first + (rows.end - 1) * self.row_bytes() + (columns.end - 1) * self.step;
        start..last + self.itemsize
    }

    /// The most rows and columns of cells that the picture can show.
    pub(super) fn cells(&self) -> (u64, u64) {
        if self.is_curve() {
            return (1, self.columns.min(SIDE));
        }
        let longest = self.rows.max(self.columns);
        let cells = |n: u64| match longest {
            longest if longest <= SIDE => n,
            longest => (u128::from(n) * u128::from(SIDE) / u128::from(longest)) as u64,
        };
        (cells(self.rows).max(self.rows.min(THIN)), cells(self.columns).max(self.columns.min(THIN)))
    }

    /// Width of the picture in pixels.
    pub(super) fn width(&self) -> u64 {
        if self.is_curve() { SIDE } else { self.side(self.cells().1) }
    }

    /// Height of the picture in pixels.
    pub(super) fn height(&self) -> u64 {
        if self.is_curve() { CURVE } else { self.side(self.cells().0) }
    }

    fn side(&self, cells: u64) -> u64 {
        let (rows, columns) = self.cells();
        let factor = (AMPLE / rows.max(columns)).max(1);
        cells * if cells * factor < THIN { THIN.div_ceil(cells) } else { factor }
    }
}
