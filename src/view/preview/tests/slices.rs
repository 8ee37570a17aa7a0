//! Tests of slices that somebody asks for: their content, and the pieces decoded for them.

use super::*;
use crate::error::Kind;
use crate::format::Layout;

fn drawing(slice: &str) -> Drawing {
    Drawing { slice: slice.to_owned(), ..Drawing::default() }
}

fn numbers(array: &Array, data: &Content, slice: &str, fetch: &dyn Fetch) -> Result<Curve> {
    curve(array, data, &drawing(slice), &Account::new(1 << 20, 0), fetch)
}

/// Blocks of 16 x 16 x 16 bytes, a piece each, of an array of 64 x 48 x 32.
fn blocks() -> (Array, Content) {
    let (shape, side) = ([64_u64, 48, 32], 16_u64);
    let mut bytes = Vec::new();
    for chunk in 0..4 * 3 * 2 {
        let chunk = [chunk / 6 * side, chunk / 2 % 3 * side, chunk % 2 * side];
        for i in 0..side.pow(3) {
            let [z, y, x] = [chunk[0] + i / side.pow(2), chunk[1] + i / side % side, chunk[2] + i % side];
            bytes.push(element(z, y, x));
        }
    }
    let blob = Memory::new(bytes, side.pow(3)).blob().0;
    let grid =
        Grid { blob, itemsize: 1, shape: shape.to_vec(), chunk: vec![side; 3], block: vec![side; 3], window: None };
    (array("|u1", 1, &shape), Content::Grid(Arc::new(grid)))
}

/// The element at a row and a column of a slice.
type Place = fn(u64, u64) -> u8;

fn element(z: u64, y: u64, x: u64) -> u8 {
    (3 * z + 5 * y + 7 * x) as u8
}

/// The same array in C order, in pieces of 32 bytes.
fn rows() -> (Array, Content) {
    let bytes = (0..64 * 48 * 32).map(|i| element(i / (48 * 32), i / 32 % 48, i % 32)).collect();
    (array("|u1", 1, &[64, 48, 32]), blob(bytes, 32))
}

#[test]
fn only_the_pieces_of_a_slice_are_decoded() {
    let piece = 16 * 16 * 16;
    for ((array, data), slices) in [
        (blocks(), [("5,:,:", 6 * piece), (":,5,:", 8 * piece), (":,:,5", 12 * piece), ("5,5,:", 2 * piece)]),
        (rows(), [("5,:,:", 48 * 32), (":,5,:", 64 * 32), ("5,:,5", 48 * 32), ("5,5,:", 32)]),
    ] {
        for (slice, bytes) in slices {
            let fetch = Counting::default();
            drawn(&array, &data, &drawing(slice), &fetch).unwrap();
            assert_eq!(fetch.bytes.get(), bytes, "{slice}");
        }
        let fetch = Counting::default();
        assert_eq!(numbers(&array, &data, "5,6,7", &fetch).unwrap().minimum, element(5, 6, 7).to_string());
        assert!(fetch.bytes.get() <= piece);
    }
}

#[test]
fn slices_along_all_dimensions_show_the_elements_of_the_array() {
    for (array, data) in [blocks(), rows()] {
        let line = |slice: &str| {
            let curve = numbers(&array, &data, slice, &Plain).unwrap();
            assert_eq!(curve.low, curve.high);
            curve.low.iter().map(|&value| value as u8).collect::<Vec<u8>>()
        };
        assert_eq!(line("9,10,:"), (0..32).map(|x| element(9, 10, x)).collect::<Vec<_>>());
        assert_eq!(line("9,4:40,11"), (4..40).map(|y| element(9, y, 11)).collect::<Vec<_>>());
        assert_eq!(line(":,10,11"), (0..64).map(|z| element(z, 10, 11)).collect::<Vec<_>>());
        let cases: [(&str, u64, u64, Place); 4] = [
            ("9,:,:", 48, 32, |row, column| element(9, row, column)),
            (":,10,:", 64, 32, |row, column| element(row, 10, column)),
            (":,:,11", 64, 48, |row, column| element(row, column, 11)),
            ("20:40,10,3:30", 20, 27, |row, column| element(20 + row, 10, 3 + column)),
        ];
        for (slice, rows, columns, value) in cases {
            let look = Drawing { low: Some(0.0), high: Some(254.0), colours: "gray".to_owned(), ..drawing(slice) };
            let shown = drawn(&array, &data, &look, &Plain).unwrap();
            let (wide, high) = (shown.width as u64 / columns, shown.height as u64 / rows);
            for (row, column) in [(0, 0), (1, 0), (0, 1), (rows - 1, columns - 1), (rows / 2, columns / 3)] {
                let pixel = shown.at((column * wide + wide / 2) as usize, (row * high + high / 2) as usize);
                let want = value(row, column).min(254);
                assert_eq!(pixel, [want, want, want, 255], "{slice} {row} {column}");
            }
        }
    }
}

#[test]
fn a_slice_of_a_huge_array_decodes_at_most_64_mib_and_is_as_large_as_is_asked_for() {
    let shape = [1 << 12, 1 << 15, 1 << 14];
    for slice in ["7,:,:", ":,7,:", ":,:,7", "7,:,7", ":,7,7"] {
        for chunk in [Some([64, 64, 64]), None] {
            let layout = Layout::Uniform { len: 1 << 41, piece: 1 << 18 };
            let blob = BlobRef::new(Huge { layout, is_run: false });
            let data = match chunk {
                Some(chunk) => {
                    let (shape, chunk) = (shape.to_vec(), chunk.to_vec());
                    let block = chunk.clone();
                    Content::Grid(Arc::new(Grid { blob, itemsize: 1, shape, chunk, block, window: None }))
                }
                None => Content::Blob(blob),
            };
            let fetch = Counting::default();
            let shown = drawn(&array("|u1", 1, &shape), &data, &Drawing { size: Some(256), ..drawing(slice) }, &fetch);
            let shown = shown.unwrap();
            assert!(fetch.bytes.get() <= BUDGET, "{slice} {chunk:?}: {}", fetch.bytes.get());
            assert!(shown.width <= 256 && shown.height <= 320, "{slice}: {} x {}", shown.width, shown.height);
        }
    }
}

#[test]
fn what_has_no_picture_is_refused_and_scalars_have_a_value() {
    let (whole, data) = rows();
    let refused = |array: &Array, look: &Drawing| {
        let error = drawn(array, &data, look, &Plain).err().unwrap();
        assert!(matches!(error.kind(), Kind::Usage(_)), "{look:?}: {error}");
    };
    refused(&whole, &drawing(":,:,:"));
    refused(&whole, &drawing("1,1,1"));
    refused(&whole, &Drawing { size: Some(8), ..drawing("1,:,:") });
    refused(&whole, &Drawing { size: Some(4096), ..drawing("1,:,:") });
    refused(&whole, &Drawing { low: Some(1.0), high: Some(1.0), ..drawing("1,:,:") });
    refused(&whole, &Drawing { high: Some(f64::NAN), ..drawing("1,:,:") });
    refused(&array("|V4", 4, &[64, 48, 8]), &drawing("1,:,:"));
    refused(&array("|u1", 1, &[0, 3]), &drawing(""));
    let scalar = numbers(&array("|u1", 1, &[]), &data, "", &Plain).unwrap();
    assert_eq!((&*scalar.minimum, scalar.elements), (&*element(0, 0, 0).to_string(), 1));
    let error = numbers(&whole, &data, "1,:,:", &Plain).err().unwrap();
    assert!(matches!(error.kind(), Kind::Usage(_)), "{error}");
}

#[test]
fn the_end_of_a_stream_that_is_decoded_from_its_start_is_refused_and_never_replaced_by_the_start() {
    let layout = Layout::Uniform { len: 1 << 32, piece: 1 << 20 };
    let data = Content::Blob(BlobRef::new(Huge { layout, is_run: true }));
    let array = array("|u1", 1, &[1 << 12, 1 << 10, 1 << 10]);
    drawn(&array, &data, &drawing("3,:,:"), &Plain).unwrap();
    let error = drawn(&array, &data, &drawing("4000,:,:"), &Plain).err().unwrap();
    assert!(matches!(error.kind(), Kind::TooLarge { .. }), "{error}");
}

#[test]
fn with_one_end_of_the_range_the_other_is_that_of_the_values() {
    let (array, data) = (array("|u1", 1, &[4, 4]), blob((0..16).map(|i| i % 4 * 10).collect(), 16));
    let range = |low, high| {
        let look = Drawing { low, high, ..drawing(":,:") };
        drawn(&array, &data, &look, &Plain).unwrap().text("Colours").to_owned()
    };
    assert!(range(None, None).ends_with("one for each value: 0, 10, 20, 30"), "{}", range(None, None));
    for (low, high, want) in [
        (Some(5.0), None, "from 5.0 to 30.0 (as chosen)"),
        (None, Some(20.0), "from 0.0 to 20.0 (as chosen)"),
        (Some(5.0), Some(20.0), "from 5.0 to 20.0 (as chosen)"),
    ] {
        assert!(range(low, high).ends_with(want), "{}", range(low, high));
    }
}

#[test]
fn bfloat16_is_known_by_its_name_in_the_container() {
    let curve = |descr: &str, itemsize, type_name: &str, bytes: &[u8]| {
        let look = Drawing { type_name: Some(type_name.to_owned()), ..drawing(":") };
        curve(&array(descr, itemsize, &[2]), &blob(bytes.to_vec(), 16), &look, &Account::new(1 << 20, 0), &Plain)
    };
    // 1.0 and -2.5 are the upper halves of these as float32.
    let halves = [0x80, 0x3F, 0x20, 0xC0];
    for name in ["bf16", "bfloat16"] {
        assert_eq!(curve("|V2", 2, name, &halves).unwrap().low, [1.0, -2.5]);
    }
    let whole = [0, 0, 0x80, 0x3F, 0, 0, 0x20, 0xC0];
    assert_eq!(curve("<f4", 4, "bf16", &whole).unwrap().low, [1.0, -2.5]);
    for (itemsize, name) in [(4, "bf16"), (2, "f16x")] {
        let error = curve(&format!("|V{itemsize}"), itemsize, name, &whole).unwrap_err();
        assert!(matches!(error.kind(), Kind::Usage(_)), "{error}");
    }
}
