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
        let finite = || cells.low.iter().chain(&cells.high).copied().filter(|value| value.is_finite());
        let usual = Self::of(finite());
        let (Some(low), Some(high)) = (finite().reduce(f64::min), finite().reduce(f64::max)) else { return usual };
        let span = usual.high - usual.low;
        if high - low <= 4.0 * span {
            return Self::between(low, high);
        }
        let margin = span * 0.1;
        Self::between(low.max(usual.low - margin), high.min(usual.high + margin))
    }

    /// The place of `value` from 0 to 1; one half if all values are equal.
    pub(super) fn place(self, value: f64) -> f64 {
        // Halves, so that no difference overflows.
        let (low, high, value) = (self.low / 2.0, self.high / 2.0, value / 2.0);
        if value.is_infinite() {
            return if value.is_sign_positive() { 1.0 } else { 0.0 };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Scale {
        Scale::of(values.iter().copied())
    }

    fn ends(scale: Scale) -> (f64, f64) {
        (scale.low, scale.high)
    }

    #[test]
    fn an_image_is_shown_from_percentile_1_to_99_of_its_finite_values() {
        let values = || (0..1000).map(f64::from);
        for more in [&[][..], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]] {
            let scale = Scale::of(values().rev().chain(more.iter().copied()));
            assert_eq!(scale, Scale { low: 9.0, high: 990.0, ground: None });
        }
        assert_eq!(of(&[3.0, 1.0]), Scale { low: 1.0, high: 3.0, ground: None });
        assert_eq!(of(&[f64::NAN]), Scale { low: 0.0, high: 0.0, ground: None });
    }

    #[test]
    fn where_nearly_all_values_are_equal_the_others_are_shown() {
        for (others, low, high) in [
            (&[50.0, 1.0, 30.0, 2.0, 40.0][..], 1.0, 50.0),
            (&[7.0, 8.0], 5.0, 8.0),
            (&[-1.0], -1.0, 5.0),
            (&[f64::INFINITY], 5.0, 5.0),
            (&[], 5.0, 5.0),
        ] {
            let values = [&[5.0; 995], others].concat();
            assert_eq!(of(&values), Scale { low, high, ground: Some(5.0) }, "{others:?}");
        }
    }

    #[test]
    fn a_curve_is_shown_whole_unless_its_extremes_are_far_from_the_rest() {
        let curve = |extremes: &[f64]| {
            let low = [&[0.0; 100], &[10.0; 100], extremes].concat();
            ends(Scale::of_curve(&Cells { high: low.clone(), low, ..Cells::default() }))
        };
        assert_eq!(curve(&[]), (0.0, 10.0));
        assert_eq!(curve(&[-30.0]), (-30.0, 10.0));
        assert_eq!(curve(&[40.0]), (0.0, 40.0));
        // Four times the usual span at most; then a tenth of it at both ends, if there is anything.
        assert_eq!(curve(&[-30.5]), (-1.0, 10.0));
        assert_eq!(curve(&[40.5]), (0.0, 11.0));
        assert_eq!(curve(&[-30.5, 40.5]), (-1.0, 11.0));
        assert_eq!(curve(&[-0.5, 100.0]), (-0.5, 11.0));
        assert_eq!(curve(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]), (0.0, 10.0));
        let high = [&[10.0; 100][..], &[20.0; 100], &[-25.0]].concat();
        assert_eq!(ends(Scale::of_curve(&Cells { low: high.clone(), high, ..Cells::default() })), (9.0, 20.0));
    }

    #[test]
    fn of_a_curve_only_finite_numbers_count() {
        let curve = |low: f64, high: f64| {
            ends(Scale::of_curve(&Cells { low: vec![low; 3], high: vec![high; 3], ..Cells::default() }))
        };
        assert_eq!(curve(1.0, 2.0), (1.0, 2.0));
        assert_eq!(curve(5.0, 5.0), (5.0, 5.0));
        assert_eq!(curve(1.0, f64::INFINITY), (1.0, 1.0));
        assert_eq!(curve(f64::NEG_INFINITY, 2.0), (2.0, 2.0));
        assert_eq!(curve(f64::NAN, f64::NAN), (0.0, 0.0));
    }

    #[test]
    fn a_value_has_its_place_on_the_scale() {
        let places = |low, high, values: &[f64]| {
            values.iter().map(|&value| Scale::between(low, high).place(value)).collect::<Vec<_>>()
        };
        assert_eq!(places(2.0, 6.0, &[1.0, 2.0, 3.0, 6.0, 7.0]), [0.0, 0.0, 0.25, 1.0, 1.0]);
        assert_eq!(places(2.0, 6.0, &[f64::NEG_INFINITY, f64::INFINITY]), [0.0, 1.0]);
        assert_eq!(places(5.0, 5.0, &[5.0, f64::INFINITY]), [0.5, 1.0]);
        // Their difference is more than the largest number.
        assert_eq!(places(f64::MIN, f64::MAX, &[0.0, f64::MAX]), [0.5, 1.0]);
    }
}
