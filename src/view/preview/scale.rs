//! Which values get which colours.
//!
//! From percentile 1 to percentile 99 of the cells shown. If these are equal because most cells have one value, the
//! percentiles of the others.
#![forbid(unsafe_code)]

use super::cells::Cells;
use super::colours::Colouring;

/// Steps of colour.
pub(super) const LEVELS: u8 = 254;

/// A linear scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    /// The value of nearly all cells, if percentiles 1 and 99 of them are equal.
    pub(super) ground: Option<f64>,
}

impl Scale {
    /// The scale of an image.
    pub(super) fn of_image(cells: &Cells) -> Self {
        Self::of(cells.mean.iter().copied())
    }

    /// The scale with the ends that are given.
    pub(super) fn with(self, look: &Colouring) -> Self {
        match (look.low, look.high) {
            (None, None) => self,
            (low, high) => Self::between(low.unwrap_or(self.low), high.unwrap_or(self.high)),
        }
    }

    fn between(low: f64, high: f64) -> Self {
        Self { low, high, ground: None }
    }

    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let Some((low, high)) = percentiles(&mut values) else { return Self::between(0.0, 0.0) };
        if low < high {
            return Self::between(low, high);
        }
        values.retain(|&value| (value - low).abs() > 0.0);
        let others = percentiles(&mut values).unwrap_or((low, high));
        Self { ground: Some(low), ..Self::between(low.min(others.0), high.max(others.1)) }
    }

    /// The scale of a curve: up to its extremes, unless they are far from the percentiles of the extremes of its cells.
    pub(super) fn of_curve(cells: &Cells) -> Self {
        let finite = |values: &[f64]| values.iter().copied().filter(|value| value.is_finite()).collect::<Vec<_>>();
        let (lows, highs) = (finite(&cells.low), finite(&cells.high));
        let low = lows.iter().copied().fold(f64::INFINITY, f64::min);
        let high = highs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let usual = Self::of(lows.into_iter().chain(highs));
        let span = usual.high - usual.low;
        if low > high || (high - low <= 4.0 * span) || span == 0.0 {
            return Self::between(low.min(high), high.max(low));
        }
        let margin = span * 0.1;
        Self::between(low.max(usual.low - margin), high.min(usual.high + margin))
    }

    /// The place of `value` from 0 to 1; one half if all values are equal.
    pub(super) fn place(self, value: f64) -> f64 {
        // Halves, so that no difference overflows.
        let (low, high, value) = (self.low / 2.0, self.high / 2.0, value / 2.0);
        if value.is_infinite() {
            return if value > 0.0 { 1.0 } else { 0.0 };
        }
        if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// Percentiles 1 and 99.
fn percentiles(values: &mut [f64]) -> Option<(f64, f64)> {
    let last = values.len().checked_sub(1)?;
    let mut at = |index: usize| *values.select_nth_unstable_by(index, f64::total_cmp).1;
    Some((at(last / 100), at(last - last / 100)))
}
