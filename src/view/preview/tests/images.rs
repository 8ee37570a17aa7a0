//! Tests of the pictures of arrays of two dimensions, pixel by pixel.

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
fn small(array: &Array, data: &Content, look: Drawing) -> Decoded {
    drawn(array, data, &Drawing { size: Some(64), ..look }, &Plain).unwrap()
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
        let shown = small(&array("|u1", 1, &shape.map(to_u64)), &blob(bytes.clone(), 1000), gray(""));
        demand(&shown, shape, cells, |row, column| bytes[row * shape[1] + column]);
        assert!(shown.text("Decoded").starts_with(&format!("{0} of {0} elements", bytes.len())));
    }
}

#[test]
fn a_cell_may_lie_in_two_strips() {
    // A row of 1,500 elements, 1 KiB apart, is read in two strips of at most 1 MiB.
    let shape = [2, 1500, 1024];
    let bytes = noise(to_u64(shape.iter().product()), 255);
    let shown = small(&array("|u1", 1, &shape.map(to_u64)), &blob(bytes.clone(), 1 << 16), gray(":,:,5"));
    demand(&shown, [2, 1500], [2, 64], |row, column| bytes[(row * 1500 + column) * 1024 + 5]);
    let few: Vec<u8> = bytes.iter().map(|byte| byte % 5).collect();
    let look = Drawing { slice: ":,:,5".to_owned(), ..Drawing::default() };
    let shown = small(&array("|u1", 1, &shape.map(to_u64)), &blob(few.clone(), 1 << 16), look);
    demand_labels(&shown, [2, 1500], [2, 64], |row, column| few[(row * 1500 + column) * 1024 + 5]);
}

/// Demands that each cell of `shown` has the colour of its middle element, which is one of 0 to 4.
fn demand_labels(
    shown: &Decoded,
    [rows, columns]: [usize; 2],
    [high, wide]: [usize; 2],
    value: impl Fn(usize, usize) -> u8,
) {
    assert!(shown.text("Colours").ends_with(": 0, 1, 2, 3, 4"), "{}", shown.text("Colours"));
    for (row, column) in (0..high).flat_map(|row| (0..wide).map(move |column| (row, column))) {
        let (rows, columns) = (cell(rows, high, row), cell(columns, wide, column));
        let middle = value(rows.start + (rows.len() - 1) / 2, columns.start + (columns.len() - 1) / 2);
        // As far from each other as 254 colours allow.
        let want = viridis(usize::from(middle) * 254 / 4);
        let (x, y) = (cell(shown.width, wide, column), cell(shown.height, high, row));
        let pixels = [shown.at(x.start, y.start), shown.at(x.end - 1, y.end - 1)];
        assert_eq!(pixels, [want; 2], "{row} {column}");
    }
}

#[test]
fn a_cell_of_few_values_has_the_colour_of_its_middle_element() {
    for (shape, cells) in [([40, 30], [40, 30]), ([190, 145], [64, 48]), ([1000, 3], [64, 3])] {
        let bytes = noise(to_u64(shape[0] * shape[1]), 5);
        let array = array("|u1", 1, &shape.map(to_u64));
        let shown = small(&array, &blob(bytes.clone(), 1000), Drawing::default());
        demand_labels(&shown, shape, cells, |row, column| bytes[row * shape[1] + column]);
    }
}

#[test]
fn a_cell_that_was_not_read_looks_like_the_one_before() {
    // Elements at the end of one piece and at the start of the last; both together are more than 64 MiB.
    const PIECE: u64 = 33 << 20;
    let layout = crate::format::Layout::Uniform { len: 2 * PIECE, piece: PIECE };
    let both = Content::Blob(BlobRef::new(Huge { layout, is_run: false }));
    let data = Content::Slice(Arc::new(both), PIECE - 1024..PIECE + 1024);
    let shown = picture(&array("|u1", 1, &[2048]), &data, &Counting::default()).unwrap();
    assert!(shown.text("Decoded").starts_with("1024 of 2048 "), "{}", shown.text("Decoded"));
    assert!(shown.pixels.iter().all(|pixel| pixel[3] == 255));
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
    let shown = small(&array("<f4", 4, &[128, 16]), &blob(floats(values), 4096), gray(""));
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
