//! Draws a curve: for each column the values from the smallest to the largest.
#![forbid(unsafe_code)]

use super::cells::Cells;
use super::colours::Colouring;
use super::plane::Plane;
use super::png_file::{Legend, Picture};
use super::scale::Scale;
use super::viridis::VIRIDIS;

/// Colours: transparent, background, zero line, curve, out of scale.
const NOTHING: u8 = 0;
const GROUND: u8 = 1;
const ZERO: u8 = 2;
const CURVE: u8 = 3;
const BEYOND: u8 = 4;
/// Pixels above and below the curve, and the least height of it in a column.
const MARGIN: f64 = 12.0;
const LINE: i64 = 2;
/// Height of a mark, twice its width.
const MARK: usize = 8;

pub(super) fn draw(plane: &Plane, cells: &Cells, look: &Colouring) -> Picture {
    let scale = Scale::of_curve(cells).with(look);
    let (width, height) = (plane.width() as usize, plane.height() as usize);
    let bottom = height as f64 - 1.0 - MARGIN;
    let y = |value: f64| (bottom - scale.place(value) * (bottom - MARGIN)).round() as i64;
    let mut pixels = vec![NOTHING; width * height];
    let zero = (scale.low < 0.0 && scale.high > 0.0).then(|| y(0.0));
    let (mut before, mut marks) = (None, Vec::new());
    for x in 0..width {
        let Some((low, high)) = at(cells, x, width) else {
            before = None;
            continue;
        };
        let mut put = |from: i64, to: i64, colour: u8| {
            for row in from.max(0)..to.min(height as i64) {
                pixels[row as usize * width + x] = colour;
            }
        };
        put(0, height as i64, GROUND);
        if let Some(zero) = zero {
            put(zero, zero + 1, ZERO);
        }
        let (mut top, mut end) = (y(high), y(low));
        if let Some((top_before, end_before)) = before.replace((top, end)) {
            // Joined to the column before.
            top = top.min(end_before);
            end = end.max(top_before);
        }
        put(top, end + LINE, CURVE);
        if high > scale.high {
            marks.push((x, 0));
        }
        if low < scale.low {
            marks.push((x, height - MARK));
        }
    }
    for (x, top) in marks {
        for row in top..top + MARK {
            let line = &mut pixels[row * width..][..width];
            line[x.saturating_sub(MARK / 4)..(x + MARK / 4 + 1).min(width)].fill(BEYOND);
        }
    }
    let mut palette = vec![0, 0x00FF_FFFF, 0x00B0_B0B0, VIRIDIS[60], 0x00E0_4010];
    palette.resize(256, 0);
    let (low, high) = (scale.low, scale.high);
    let text = format!("a curve from {low:?} to {high:?}; red marks are beyond");
    let legend = Legend { text, key: ("Range", format!("{low:?} {high:?}")) };
    Picture { width: width as u32, height: height as u32, pixels, palette, legend }
}

/// The smallest and largest value in column `x`, between the cells next to it if there are fewer than columns.
fn at(cells: &Cells, x: usize, width: usize) -> Option<(f64, f64)> {
    let n = cells.columns;
    let place = x as f64 * (n as f64 - 1.0) / (width as f64 - 1.0);
    let (left, part) = (place.floor() as usize, place.fract());
    let of = |cell: usize| Some((*cells.low.get(cell)?, *cells.high.get(cell)?)).filter(|(low, _)| !low.is_nan());
    match (of(left), of(left + 1)) {
        (Some(a), Some(b)) if [a.0, a.1, b.0, b.1].iter().all(|value| value.is_finite()) => {
            let between = |a: f64, b: f64| a * (1.0 - part) + b * part;
            Some((between(a.0, b.0), between(a.1, b.1)))
        }
        (Some(a), _) if part < 0.5 => Some(a),
        (_, b) if part >= 0.5 => b,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_between_two_cells_is_between_them_or_like_the_nearer_one_if_that_has_no_meaning() {
        let columns = |middle: f64, width: usize| -> Vec<Option<f64>> {
            let low = vec![0.0, middle, 2.0];
            let cells = Cells { columns: 3, high: low.clone(), low, ..Cells::default() };
            (0..width).map(|x| at(&cells, x, width).map(|(low, high)| low.midpoint(high))).collect()
        };
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(columns(4.0, 5), some(&[0.0, 2.0, 4.0, 3.0, 2.0]));
        let infinity = f64::INFINITY;
        assert_eq!(columns(infinity, 5), some(&[0.0, infinity, infinity, 2.0, 2.0]));
        assert_eq!(columns(infinity, 9)[..5], some(&[0.0, 0.0, infinity, infinity, infinity]));
        assert_eq!(columns(f64::NAN, 5), [Some(0.0), None, None, Some(2.0), Some(2.0)]);
    }
}
