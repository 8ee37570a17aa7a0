//! The values of a picture, cell by cell.
#![forbid(unsafe_code)]

/// Maximum number of values that get a colour each.
pub(super) const LABELS: usize = 16;
/// The cell has no label.
pub(super) const NO_LABEL: u8 = u8::MAX;

/// Rows and columns of cells.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// The mean of each cell; infinite if it has no finite element, NaN if it has only NaN, or nothing was read.
    pub(super) mean: Vec<f64>,
    /// The smallest and the largest element of each cell; of curves only.
    pub(super) low: Vec<f64>,
    pub(super) high: Vec<f64>,
    /// If the elements are integers with few values: these in ascending order, and which of them the middle element of
    /// each cell has.
    pub(super) labels: Option<(Vec<String>, Vec<u8>)>,
    /// Over all elements read.
    pub(super) minimum: String,
    pub(super) maximum: String,
    /// The number of elements read.
    pub(super) decoded: u64,
}

impl Cells {
    /// Fills cells without any element read with the content of the cell above, or else of the one before.
    pub(super) fn spread(&mut self, is_read: &[bool]) {
        for i in 0..is_read.len() {
            let from = if i >= self.columns { i - self.columns } else { i.saturating_sub(1) };
            if !is_read[i] {
                for values in [&mut self.mean, &mut self.low, &mut self.high] {
                    if let Some(&value) = values.get(from) {
                        values[i] = value;
                    }
                }
                if let Some((_, labels)) = &mut self.labels {
                    labels[i] = labels[from];
                }
            }
        }
    }
}
