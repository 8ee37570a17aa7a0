//! Draws an image: a colour for each cell.
#![forbid(unsafe_code)]

use super::cells::{Cells, NO_LABEL};
use super::colours::Colouring;
use super::plan::edge;
use super::plane::Plane;
use super::png_file::{Legend, Picture};
use super::scale::{LEVELS, Scale};
use crate::bytes::to_u64;

/// Cells are few if they are less than one in this many.
const FEW: usize = 500;
/// Cells of a side that are drawn so large that each is seen.
const LARGE: usize = 256;

pub(super) fn draw(plane: &Plane, cells: &Cells, look: &Colouring) -> Picture {
    // Colour 0 is transparent.
    let (colours, legend) = colours(cells, look);
    let (width, height) = (plane.width(), plane.height());
    let nearest = |pixels: u64, cells: usize| -> Vec<usize> {
        (0..pixels).map(|pixel| edge(to_u64(cells), pixels, pixel) as usize).collect()
    };
    let (rows, columns) = (nearest(height, cells.rows), nearest(width, cells.columns));
    let mut pixels = Vec::with_capacity((width * height) as usize);
    for row in rows {
        let line = colours.get(row * cells.columns..).unwrap_or_default();
        pixels.extend(columns.iter().map(|&column| line.get(column).copied().unwrap_or(0)));
    }
    let palette = std::iter::once(0).chain(look.map.colours().into_iter().take(255)).collect();
    Picture { width: width as u32, height: height as u32, pixels, palette, legend }
}

/// The colour of each cell, 0 for transparent, and the legend.
fn colours(cells: &Cells, look: &Colouring) -> (Vec<u8>, Legend) {
    let map = look.map;
    if let Some((values, labels)) = &cells.labels
        && look.is_automatic()
    {
        let last = (values.len() - 1).max(1);
        let colour = |&label: &u8| match label {
            NO_LABEL => 0,
            label => (usize::from(label) * usize::from(LEVELS) / last) as u8 + 1,
        };
        let values = values.join(", ");
        let text = format!("{map}, one for each value: {values}");
        return (labels.iter().map(colour).collect(), Legend { text, key: ("Values", values) });
    }
    let scale = Scale::of_image(cells).with(look);
    let colour = |&value: &f64| match value {
        value if value.is_nan() => 0,
        value => (scale.place(value) * f64::from(LEVELS)).round() as u8 + 1,
    };
    let (low, high) = (scale.low, scale.high);
    let how = if look.is_automatic() { "percentiles 1 and 99 of the picture" } else { "as chosen" };
    let text = format!("{map}, from {low:?} to {high:?} ({how})");
    let legend = Legend { text, key: ("Range", format!("{low:?} {high:?}")) };
    let colours: Vec<u8> = cells.mean.iter().map(colour).collect();
    match scale.ground {
        Some(ground) => (enlarged(cells, &colours, ground), legend),
        None => (colours, legend),
    }
}

/// The colours with the few cells that differ from the ground, which are easily overlooked, three or five times as
/// wide.
fn enlarged(cells: &Cells, colours: &[u8], ground: f64) -> Vec<u8> {
    let differs = |i: usize| (cells.mean[i] - ground).abs() > 0.0;
    let Cells { rows, columns, mean, .. } = cells;
    let others: Vec<usize> = (0..mean.len()).filter(|&i| differs(i)).collect();
    let by = match others.len().checked_mul(FEW) {
        _ if *rows.max(columns) < LARGE => 0,
        Some(n) if n < mean.len() => 2,
        _ => 1,
    };
    let mut out = colours.to_vec();
    for i in others {
        let (row, column) = (i / columns, i % columns);
        for row in row.saturating_sub(by)..(row + by + 1).min(*rows) {
            for column in column.saturating_sub(by)..(column + by + 1).min(*columns) {
                let place = row * columns + column;
                // Another cell that differs keeps its own colour, and NaN stays transparent.
                if !differs(place) && !mean[place].is_nan() {
                    out[place] = colours[i];
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUND: u8 = 1;

    /// The cells that are not of the colour of the ground, after enlarging: (row, column, colour).
    fn enlarged_cells(rows: usize, columns: usize, others: &[(usize, usize, f64)]) -> Vec<(usize, usize, u8)> {
        let (mut mean, mut colours) = (vec![7.0; rows * columns], vec![GROUND; rows * columns]);
        for &(row, column, value) in others {
            let colour = if value.is_nan() { 0 } else { value as u8 };
            (mean[row * columns + column], colours[row * columns + column]) = (value, colour);
        }
        let cells = Cells { rows, columns, mean, ..Cells::default() };
        let out = enlarged(&cells, &colours, 7.0);
        let differing = out.iter().enumerate().filter(|&(_, &colour)| colour != GROUND);
        differing.map(|(i, &colour)| (i / columns, i % columns, colour)).collect()
    }

    fn square(rows: std::ops::Range<usize>, columns: std::ops::Range<usize>, colour: u8) -> Vec<(usize, usize, u8)> {
        rows.flat_map(|row| columns.clone().map(move |column| (row, column, colour))).collect()
    }

    #[test]
    fn few_cells_are_five_times_as_wide_as_far_as_the_picture_goes() {
        assert_eq!(enlarged_cells(300, 256, &[(100, 50, 9.0)]), square(98..103, 48..53, 9));
        assert_eq!(enlarged_cells(300, 256, &[(0, 0, 9.0)]), square(0..3, 0..3, 9));
        assert_eq!(enlarged_cells(300, 256, &[(299, 255, 9.0)]), square(297..300, 253..256, 9));
        assert_eq!(enlarged_cells(2, 256, &[(0, 9, 9.0)]), square(0..2, 7..12, 9));
    }

    #[test]
    fn more_cells_are_three_times_as_wide_and_those_of_small_images_as_they_are() {
        let column = |n: usize| -> Vec<_> { (0..n).map(|row| (row, 50, 9.0)).collect() };
        // One in 500.
        assert_eq!(enlarged_cells(500, 300, &column(299)), square(0..301, 48..53, 9));
        assert_eq!(enlarged_cells(500, 300, &column(300)), square(0..301, 49..52, 9));
        assert_eq!(enlarged_cells(255, 255, &[(100, 50, 9.0)]), square(100..101, 50..51, 9));
        assert_eq!(enlarged_cells(10, 256, &[(5, 50, 9.0)]), square(3..8, 48..53, 9));
        assert_eq!(enlarged_cells(256, 10, &[(50, 5, 9.0)]), square(48..53, 3..8, 9));
    }

    #[test]
    fn no_cell_hides_another_or_a_gap() {
        let out = enlarged_cells(300, 300, &[(100, 50, 9.0), (100, 52, 3.0), (101, 51, f64::NAN)]);
        let at = |row, column| out.iter().find(|&&(r, c, _)| (r, c) == (row, column)).map(|&(_, _, colour)| colour);
        assert_eq!([at(100, 50), at(100, 52), at(101, 51)], [Some(9), Some(3), Some(0)]);
        assert_eq!([at(100, 48), at(100, 54), at(100, 55)], [Some(9), Some(3), None]);
    }
}
