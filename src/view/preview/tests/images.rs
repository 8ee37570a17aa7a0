//! Tests of the pictures of arrays of two dimensions, pixel by pixel.

use super::super::viridis::VIRIDIS;
use super::*;

/// Values without order, from 0 to `below`.
fn noise(count: u64, below: u64) -> Vec<u8> {
    (0..count).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % below).map(|value| value as u8).collect()
}

/// The elements of cell `cell` of `cells` along `n` elements.
fn cell(n: usize, cells: usize, cell: usize) -> std::ops::Range<usize> {
    n * cell / cells..n * (cell + 1) / cells
}

/// Demands that each pixel of `shown`, in shades of gray, has what `value` says of the elements of its cell.
fn demand(shown: &Decoded, [rows, columns]: [usize; 2], [high, wide]: [usize; 2], value: impl Fn(usize, usize) -> u8) {
    for row in 0..high {
        let mut previous = None;
        for column in 0..wide {
            let all = || cell(rows, high, row).flat_map(|r| cell(columns, wide, column).map(move |c| (r, c)));
            let sum: f64 = all().map(|(row, column)| f64::from(value(row, column))).sum();
            let want = (sum / all().count() as f64 / 254.0 * 254.0).round() as u8;
            for pixel in cell(shown.width, wide, column) {
                for line in cell(shown.height, high, row) {
                    assert_eq!(shown.at(pixel, line), [want, want, want, 255], "{row} {column} {previous:?}");
                }
            }
            previous = Some(want);
        }
    }
}

/// A picture with sides of at most 64 pixels.
fn drawn(array: &Array, data: &Content, look: Drawing) -> Decoded {
    let look = Drawing { size: Some(64), ..look };
    decode(&super::super::picture(array, data, &look, &Account::new(1 << 20, 0), &Plain).unwrap())
}

/// A value is its shade of gray.
fn gray(slice: &str) -> Drawing {
    let (low, high) = (Some(0.0), Some(254.0));
    Drawing { slice: slice.to_owned(), low, high, colours: "gray".to_owned(), ..Drawing::default() }
}

#[test]
fn a_cell_has_the_colour_of_the_mean_of_its_elements() {
    for (shape, cells) in
        [([40, 30], [40, 30]), ([90, 70], [64, 49]), ([64, 80], [51, 64]), ([3, 300], [3, 64]), ([1000, 2], [64, 2])]
    {
        let bytes = noise(to_u64(shape[0] * shape[1]), 255);
        let shown = drawn(&array("|u1", 1, &shape.map(to_u64)), &blob(bytes.clone(), 1000), gray(""));
        demand(&shown, shape, cells, |row, column| bytes[row * shape[1] + column]);
        assert!(shown.text("Decoded").starts_with(&format!("{0} of {0} elements", bytes.len())));
    }
}

#[test]
fn a_cell_may_lie_in_two_strips() {
    // A row of 1,500 elements, 1 KiB apart, is read in two strips of at most 1 MiB.
    let shape = [2, 1500, 1024];
    let bytes = noise(to_u64(shape.iter().product()), 255);
    let shown = drawn(&array("|u1", 1, &shape.map(to_u64)), &blob(bytes.clone(), 1 << 16), gray(":,:,5"));
    demand(&shown, [2, 1500], [2, 64], |row, column| bytes[(row * 1500 + column) * 1024 + 5]);
}

#[test]
fn a_cell_of_few_values_has_the_colour_of_its_middle_element() {
    let colour = |label: usize| {
        let [_, red, green, blue] = VIRIDIS[label].to_be_bytes();
        [red, green, blue, 255]
    };
    for (shape, [high, wide]) in [([40, 30], [40, 30]), ([190, 145], [64, 48]), ([1000, 3], [64, 3])] {
        // The labels of 0 to 4 are as far from each other as 254 colours allow.
        let bytes = noise(to_u64(shape[0] * shape[1]), 5);
        let array = array("|u1", 1, &shape.map(to_u64));
        let shown = drawn(&array, &blob(bytes.clone(), 1000), Drawing::default());
        assert!(shown.text("Colours").ends_with(": 0, 1, 2, 3, 4"), "{}", shown.text("Colours"));
        for row in 0..high {
            for column in 0..wide {
                let (rows, columns) = (cell(shape[0], high, row), cell(shape[1], wide, column));
                let middle = (rows.start + (rows.len() - 1) / 2) * shape[1] + columns.start + (columns.len() - 1) / 2;
                let want = colour(usize::from(bytes[middle]) * 254 / 4);
                let (x, y) = (cell(shown.width, wide, column), cell(shown.height, high, row));
                assert_eq!([shown.at(x.start, y.start), shown.at(x.end - 1, y.end - 1)], [want; 2], "{row} {column}");
            }
        }
    }
}

#[test]
fn at_most_16_values_have_a_colour_each_and_two_are_not_worth_it() {
    for (values, is_labelled) in [(2, false), (3, true), (16, true), (17, false)] {
        let shown = picture(&array("|u1", 1, &[40, 30]), &blob(noise(1200, values), 64), &Plain).unwrap();
        assert_eq!(shown.text("Colours").contains("one for each value"), is_labelled, "{values}");
    }
}

#[test]
fn infinities_of_one_sign_have_a_mean_and_those_of_both_have_none() {
    let infinity = f32::INFINITY;
    // Two rows are a cell, and a column is a pixel.
    let mut values = vec![7.0; 128 * 16];
    let cells = [[infinity, infinity], [-infinity, -infinity], [infinity, 100.0], [infinity, -infinity]];
    for (column, [above, below]) in cells.into_iter().enumerate() {
        (values[column], values[16 + column]) = (above, below);
    }
    let shown = drawn(&array("<f4", 4, &[128, 16]), &blob(floats(values), 4096), gray(""));
    assert_eq!(
        [0, 1, 2, 4].map(|column| shown.at(column, 0)),
        [254, 0, 100, 7].map(|shade| [shade, shade, shade, 255])
    );
    assert_eq!((shown.width, shown.at(3, 0)[3]), (16, 0));
}

#[test]
fn of_equal_extremes_the_first_is_named() {
    for (values, zero) in [([0.0, -0.0], "0.0"), ([-0.0, 0.0], "-0.0")] {
        let shown = picture(&array("<f4", 4, &[2]), &blob(floats(values), 8), &Plain).unwrap();
        assert_eq!((shown.text("Minimum"), shown.text("Maximum")), (zero, zero));
    }
}
