//! Tests of the pictures of arrays of one dimension, pixel by pixel.

use super::*;

const WHITE: [u8; 4] = [255; 4];
const GRAY: [u8; 4] = [0xB0, 0xB0, 0xB0, 255];
const RED: [u8; 4] = [0xE0, 0x40, 0x10, 255];

/// The colour of the curve.
fn dark() -> [u8; 4] {
    viridis(60)
}

/// The row of `place`, from 0 for the smallest value to 1 for the largest: 12 rows are free above and below.
fn row(height: usize, place: f64) -> usize {
    let bottom = height as f64 - 13.0;
    (bottom - place * (bottom - 12.0)).round() as usize
}

fn shown(values: &[f32]) -> Decoded {
    picture(&array("<f4", 4, &[to_u64(values.len())]), &blob(floats(values.iter().copied()), 1 << 16), &Plain).unwrap()
}

fn count(shown: &Decoded, colour: [u8; 4]) -> usize {
    shown.pixels.iter().filter(|&&pixel| pixel == colour).count()
}

#[test]
fn each_column_is_joined_to_the_one_before() {
    for (values, is_rising) in [([-2.0, -1.0, 0.0, 1.0, 2.0], true), ([2.0, 1.0, 0.0, -1.0, -2.0], false)] {
        let shown = shown(&values);
        let zero = row(shown.height, 0.5);
        let y = |x: usize| {
            let place = x as f64 / (shown.width as f64 - 1.0);
            row(shown.height, if is_rising { place } else { 1.0 - place })
        };
        for x in 0..shown.width {
            let before = y(x.saturating_sub(1));
            let curve = y(x).min(before)..y(x).max(before) + 2;
            for row in 0..shown.height {
                let rest = if row == zero { GRAY } else { WHITE };
                let want = if curve.contains(&row) { dark() } else { rest };
                assert_eq!(shown.at(x, row), want, "{x}, {row}");
            }
        }
    }
}

#[test]
fn zero_is_a_line_only_between_values_below_and_above_it() {
    assert!(count(&shown(&[-1.0, 1.0]), GRAY) > 0);
    for values in [[0.0, 1.0], [-1.0, 0.0], [1.0, 2.0], [-2.0, -1.0]] {
        assert_eq!(count(&shown(&values), GRAY), 0, "{values:?}");
    }
}

#[test]
fn where_there_is_no_number_there_is_nothing() {
    let shown = shown(&[0.0, f32::NAN, 2.0]);
    let last = shown.width - 1;
    let (zero, two) = (row(shown.height, 0.0), row(shown.height, 1.0));
    for x in 0..shown.width {
        let column: Vec<_> = (0..shown.height).map(|y| shown.at(x, y)).collect();
        let darks: Vec<usize> = (0..shown.height).filter(|&y| column[y] == dark()).collect();
        match 2.0 * x as f64 / last as f64 {
            place if place < 0.5 => assert_eq!(darks, [zero, zero + 1], "{x}"),
            place if place >= 1.5 => assert_eq!(darks, [two, two + 1], "{x}"),
            _ => assert!(column.iter().all(|pixel| pixel[3] == 0), "{x}"),
        }
    }
}

#[test]
fn values_far_beyond_all_others_are_marked() {
    let mut values: Vec<f32> = (0..100_000).map(|i| (i % 11) as f32).collect();
    (values[0], values[20_000], values[70_000], values[99_999]) = (1000.0, 1000.0, -1000.0, -1000.0);
    let shown = shown(&values);
    let column = |element: usize| element * shown.width / values.len();
    let (last, height) = (shown.width - 1, shown.height);
    let marks = [
        (0, 2, 0),
        (column(20_000) - 2, column(20_000) + 2, 0),
        (column(70_000) - 2, column(70_000) + 2, height - 8),
        (last - 2, last, height - 8),
    ];
    for x in 0..shown.width {
        for y in 0..height {
            let is_marked =
                marks.iter().any(|&(from, to, top)| (from..=to).contains(&x) && (top..top + 8).contains(&y));
            assert_eq!(shown.at(x, y) == RED, is_marked, "{x}, {y}");
        }
    }
    // A tenth of the usual range is free at both ends.
    assert_eq!(shown.text("Colours"), "a curve from -1.0 to 11.0; red marks are beyond");
}
