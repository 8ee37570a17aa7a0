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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_was_not_read_shows_the_one_above_or_in_the_first_row_the_one_before() {
        let spread = |is_read: &[u8], mean: &[f64]| {
            let labels = Some((Vec::new(), mean.iter().map(|&mean| mean as u8).collect()));
            let mut cells = Cells { rows: 2, columns: 3, mean: mean.to_vec(), labels, ..Cells::default() };
            cells.spread(&is_read.iter().map(|&is_read| is_read == 1).collect::<Vec<_>>());
            assert_eq!(cells.labels.unwrap().1, cells.mean.iter().map(|&mean| mean as u8).collect::<Vec<_>>());
            cells.mean
        };
        assert_eq!(spread(&[1; 6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(spread(&[1, 0, 1, 0, 1, 0], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [1.0, 1.0, 3.0, 1.0, 5.0, 3.0]);
        // Nothing is before the first.
        assert_eq!(spread(&[0, 0, 1, 1, 0, 0], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [1.0, 1.0, 3.0, 4.0, 1.0, 3.0]);
    }
}
