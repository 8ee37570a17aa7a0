//! Tests of pictures: their content, and the pieces decoded for them.

use std::cell::Cell;
use std::collections::HashSet;

use super::*;
use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::testing::{Memory, Plain};
use crate::format::{BlobRef, Grid, InOrder, Piece};

mod curves;
mod images;
mod slices;

/// Counts fetches; no piece may be fetched twice.
#[derive(Default)]
struct Counting {
    bytes: Cell<u64>,
    pieces: std::cell::RefCell<HashSet<(u64, u64)>>,
}

impl Fetch for Counting {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        assert!(self.pieces.borrow_mut().insert((blob.id(), piece)), "piece {piece} is fetched twice");
        let bytes = Plain.piece(blob, piece)?;
        self.bytes.set(self.bytes.get() + to_u64(bytes.len()));
        Ok(bytes)
    }
}

struct Decoded {
    width: usize,
    height: usize,
    /// Red, green, blue, opacity.
    pixels: Vec<[u8; 4]>,
    texts: Vec<(String, String)>,
}

impl Decoded {
    fn at(&self, x: usize, y: usize) -> [u8; 4] {
        self.pixels[y * self.width + x]
    }

    fn text(&self, key: &str) -> &str {
        &self.texts.iter().find(|(k, _)| k == key).unwrap().1
    }
}

fn decode(bytes: &[u8]) -> Decoded {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::ALPHA);
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let info = reader.info();
    let texts = info.uncompressed_latin1_text.iter().map(|t| (t.keyword.clone(), t.text.clone())).collect();
    let (width, height) = (info.width as usize, info.height as usize);
    Decoded { width, height, pixels: pixels.as_chunks().0.to_vec(), texts }
}

fn array(descr: &str, itemsize: u64, shape: &[u64]) -> Array {
    Array { descr: format!("'{descr}'"), itemsize, shape: shape.to_vec() }
}

/// The picture of `array`, of exactly the announced size.
fn picture(array: &Array, data: &Content, fetch: &dyn Fetch) -> Result<Decoded> {
    let Some(Content::Computed { len: Some(len), make }) = content(array, data, &Account::new(1 << 20, 0)) else {
        panic!("no picture: {array:?}")
    };
    let bytes = make(fetch)?;
    assert_eq!(to_u64(bytes.len()), len, "{array:?}");
    Ok(decode(&bytes))
}

/// The picture of a slice.
fn drawn(array: &Array, data: &Content, look: &Drawing, fetch: &dyn Fetch) -> Result<Decoded> {
    super::picture(array, data, look, &Account::new(1 << 20, 0), fetch).map(|bytes| decode(&bytes))
}

/// Colour `level` of viridis, opaque.
fn viridis(level: usize) -> [u8; 4] {
    let [_, red, green, blue] = super::viridis::VIRIDIS[level].to_be_bytes();
    [red, green, blue, 255]
}

fn blob(bytes: Vec<u8>, piece: u64) -> Content {
    Content::Blob(Memory::new(bytes, piece).blob().0)
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn the_size_follows_from_the_shape_and_no_side_is_longer_than_1024() {
    for shape in
        [&[1][..], &[7], &[5000], &[1, 1], &[3, 2], &[700, 900], &[1, 40], &[2000, 3], &[3, 2000], &[1025, 1024]]
    {
        let n = shape.iter().product::<u64>();
        let shown =
            picture(&array("|u1", 1, shape), &blob((0..n).map(|i| i as u8).collect(), 1 << 16), &Plain).unwrap();
        assert!((128..=1024).contains(&shown.width) && (128..=1024).contains(&shown.height), "{shape:?}");
    }
    for (descr, itemsize, shape) in [("|V4", 4, &[3][..]), ("<f4", 4, &[0]), ("<f4", 4, &[]), ("<M8[s]", 8, &[2])] {
        assert!(
            content(&array(descr, itemsize, shape), &blob(vec![0; 64], 64), &Account::new(0, 0)).is_none(),
            "{descr} {shape:?}"
        );
    }
}

#[test]
fn what_is_held_for_a_picture_is_charged_while_it_is_made() {
    let (account, data) = (Account::new(1 << 20, 0), blob(vec![7; 1 << 20], 100_000));
    let Some(Content::Computed { make, .. }) = content(&array("|u1", 1, &[1024, 1024]), &data, &account) else {
        panic!("no picture")
    };
    make(&Counting::default()).unwrap();
    let memory = account.memory();
    assert!(memory.peak() >= 100_000 && memory.used() == 0, "{memory:?}");
}

#[test]
fn a_piece_is_held_until_the_last_strip_that_needs_it() {
    // Each piece has four rows, which are read one by one.
    let (account, data) = (Account::new(1 << 20, 0), blob(vec![7; 1 << 20], 4 << 10));
    let Some(Content::Computed { make, .. }) = content(&array("|u1", 1, &[1024, 1024]), &data, &account) else {
        panic!("no picture")
    };
    make(&Counting::default()).unwrap();
    assert_eq!(account.memory().peak(), 4 << 10);
}

#[test]
fn pictures_made_at_once_hold_no_more_than_one_does() {
    let account = Account::new(64 << 20, 0);
    // Each row needs four bytes of every piece: all are held.
    let make = |_| {
        let blob = Memory::new(vec![7; 1 << 20], 4 << 10).blob().0;
        let grid =
            Grid { blob, itemsize: 1, shape: vec![1024; 2], chunk: vec![1024, 4], block: vec![1024, 4], window: None };
        match content(&array("|u1", 1, &[1024, 1024]), &Content::Grid(Arc::new(grid)), &account) {
            Some(Content::Computed { make, .. }) => make,
            _ => panic!("no picture"),
        }
    };
    let pictures: Vec<_> = (0..4).map(make).collect();
    pictures[0](&Plain).unwrap();
    let one = account.memory().peak();
    assert!(one >= 1 << 20, "{one}");
    let begin = std::sync::Barrier::new(pictures.len());
    std::thread::scope(|scope| {
        for make in &pictures {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                make(&Plain).map(drop).unwrap();
            });
        }
    });
    assert_eq!(account.memory().peak(), one);
}

#[test]
fn every_type_and_byte_order_shows_the_same_picture() {
    let ramp: Vec<i8> = (0..100).collect();
    let show = |descr: &str, bytes: Vec<u8>| {
        let itemsize = to_u64(bytes.len() / ramp.len());
        let shown = picture(&array(descr, itemsize, &[10, 10]), &blob(bytes, 64), &Plain).unwrap();
        assert!(["0", "0.0"].contains(&shown.text("Minimum")) && shown.text("Maximum").starts_with("99"), "{descr}");
        shown.pixels
    };
    let want = show("|i1", ramp.iter().map(|&v| v as u8).collect());
    macro_rules! same {
        ($($type:ty, $le:literal, $be:literal;)*) => {$(
            assert!(show($le, ramp.iter().flat_map(|&v| <$type>::from(v).to_le_bytes()).collect()) == want, $le);
            assert!(show($be, ramp.iter().flat_map(|&v| <$type>::from(v).to_be_bytes()).collect()) == want, $be);
        )*};
    }
    same! { i16, "<i2", ">i2"; i32, "<i4", ">i4"; i64, "<i8", ">i8"; }
    same! { f32, "<f4", ">f4"; f64, "<f8", ">f8"; half::f16, "<f2", ">f2"; }
    for width in [1, 2, 4, 8] {
        let bytes = |v: &i8| [vec![*v as u8], vec![0; width - 1]].concat();
        let order = if width == 1 { "|" } else { "<" };
        assert!(show(&format!("{order}u{width}"), ramp.iter().flat_map(bytes).collect()) == want);
    }
    let complex = ramp.iter().flat_map(|&v| [0.0, f32::from(v)]);
    assert!(show("<c8", floats(complex)) == want);
}

#[test]
fn the_title_says_that_magnitudes_are_those_of_complex_numbers() {
    for (descr, itemsize, title) in [("<c8", 8, "magnitudes of <c8, shape 4"), ("<f8", 8, "<f8, shape 4")] {
        let shown = picture(&array(descr, itemsize, &[4]), &blob(vec![0; 32], 32), &Plain).unwrap();
        assert!(shown.text("Title").starts_with(title), "{}", shown.text("Title"));
    }
}

#[test]
fn nan_is_transparent_infinity_clipped_and_a_constant_has_one_colour() {
    let mut values: Vec<f32> = (0..400).map(|i| i as f32).collect();
    (values[0], values[1], values[2]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    let shown = picture(&array("<f4", 4, &[20, 20]), &blob(floats(values), 100), &Plain).unwrap();
    let cell = shown.width / 20;
    assert_eq!(shown.at(0, 0)[3], 0);
    assert_eq!(shown.at(cell, 0), shown.at(shown.width - 1, shown.height - 1));
    assert_eq!(shown.at(2 * cell, 0), [0x44, 0x01, 0x54, 255]);
    assert_eq!((shown.text("Minimum"), shown.text("Maximum")), ("-inf", "inf"));
    let shown = picture(&array("<f4", 4, &[20, 20]), &blob(floats([2.5; 400]), 100), &Plain).unwrap();
    assert!(shown.pixels.iter().all(|&pixel| pixel == shown.pixels[0] && pixel[3] == 255));
    let shown = picture(&array("<f4", 4, &[9]), &blob(floats([f32::NAN; 9]), 100), &Plain).unwrap();
    assert!(shown.pixels.iter().all(|pixel| pixel[3] == 0) && shown.text("Minimum") == "NaN");
}

#[test]
fn one_outlier_hides_nothing() {
    let ramp = || (0..10_000).map(|i| (i % 100) as f32);
    let mut values: Vec<f32> = ramp().collect();
    values[5050] = 1e30;
    let plain = picture(&array("<f4", 4, &[100, 100]), &blob(floats(ramp()), 4096), &Plain).unwrap();
    let shown = picture(&array("<f4", 4, &[100, 100]), &blob(floats(values), 4096), &Plain).unwrap();
    let differing = plain.pixels.iter().zip(&shown.pixels).filter(|(a, b)| a != b).count();
    assert!(differing <= 7 * 7, "{differing}");
    assert_eq!(shown.text("Maximum"), "1e30");
}

#[test]
fn few_integers_are_shown_as_they_are() {
    let values: Vec<u8> = (0..90_000).map(|i| [3, 200, 7][i * 3 / 90_000]).collect();
    let shown = picture(&array("|u1", 1, &[300, 300]), &blob(values, 4096), &Plain).unwrap();
    let colours: HashSet<_> = shown.pixels.iter().collect();
    assert_eq!(colours.len(), 3);
    assert!(shown.text("Colours").ends_with(": 3, 7, 200"), "{}", shown.text("Colours"));
}

#[test]
fn a_curve_reaches_from_the_smallest_to_the_largest_value_of_each_column() {
    // One spike in 100,000 elements is seen.
    let mut values = vec![0_i16; 100_000];
    values[50_000] = 100;
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let shown = picture(&array("<i2", 2, &[100_000]), &blob(bytes, 4096), &Plain).unwrap();
    let dark = |x: usize| (0..shown.height).filter(|&y| shown.at(x, y) != [255; 4]).count();
    assert!(dark(512) > 200 && dark(500) < 20 && dark(524) < 20, "{} {}", dark(512), dark(500));
}

#[test]
fn the_middle_slice_is_shown_and_nothing_else_decoded() {
    let (descr, shape) = ("|u1", [4, 6, 100, 200]);
    let bytes: Vec<u8> = (0..24).flat_map(|slice| vec![slice; 20_000]).collect();
    let fetch = Counting::default();
    let shown = picture(&array(descr, 1, &shape), &blob(bytes, 20_000), &fetch).unwrap();
    assert_eq!((shown.text("Minimum"), shown.text("Maximum"), fetch.bytes.get()), ("15", "15", 20_000));
    assert!(shown.text("Title").ends_with("elements [2, 3, :, :]"), "{}", shown.text("Title"));
    // Colours: the second of three.
    let bytes = (0..30_000).map(|i| (i % 3) as u8).collect();
    let shown = picture(&array(descr, 1, &[100, 100, 3]), &blob(bytes, 999), &Plain).unwrap();
    assert_eq!((shown.text("Minimum"), shown.text("Maximum")), ("1", "1"));
}

#[test]
fn a_broken_piece_that_is_needed_is_an_error() {
    let mut memory = Memory::new(vec![1; 10_000], 1000);
    memory.broken = vec![3];
    let data = Content::Blob(memory.blob().0);
    assert!(picture(&array("|u1", 1, &[100, 100]), &data, &Plain).is_err());
    // Rows 20 to 29 are not part of the slice.
    assert!(picture(&array("|u1", 1, &[5, 20, 100]), &data, &Plain).is_ok());
}

/// A huge stream of bytes that exists only as its pieces.
pub(super) struct Huge {
    pub(super) layout: crate::format::Layout,
    pub(super) is_run: bool,
}

impl crate::format::Blob for Huge {
    fn layout(&self) -> Result<crate::format::Layout> {
        Ok(self.layout.clone())
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        assert!(piece + 1 < self.layout.count(), "the end is verified before it is served");
        dst.fill((piece % 251) as u8);
        Ok(())
    }

    fn in_order(&self) -> Option<&dyn InOrder> {
        Some(self)
    }
}

impl InOrder for Huge {
    fn is_run(&self, piece: u64) -> bool {
        self.is_run && piece > 0
    }
}

#[test]
fn of_a_huge_array_at_most_64_mib_are_decoded_whatever_its_shape() {
    const LEN: u64 = 1 << 37;
    for piece in [4 << 10, 4 << 20] {
        for is_run in [false, true] {
            for shape in [
                &[LEN][..],
                &[1 << 20, 1 << 20],
                &[4, 1 << 38],
                &[1 << 38, 4],
                &[100, 1 << 17, 1 << 15],
                &[1 << 30, 32, 32],
            ] {
                let len = 8 * shape.iter().product::<u64>();
                let layout = crate::format::Layout::Uniform { len, piece };
                let fetch = Counting::default();
                let data = Content::Blob(BlobRef::new(Huge { layout, is_run }));
                let shown = picture(&array("<f8", 8, shape), &data, &fetch).unwrap();
                assert!(fetch.bytes.get() <= BUDGET, "{shape:?}, pieces of {piece}");
                assert!(shown.pixels.iter().any(|pixel| pixel[3] > 0));
            }
        }
    }
}

#[test]
fn of_a_huge_chunked_array_at_most_64_mib_are_decoded() {
    let shape = [1 << 11, 1 << 15, 1 << 14];
    for chunk in [[64, 64, 64], [1, 1 << 15, 32], [1 << 11, 8, 8]] {
        let layout = crate::format::Layout::Uniform { len: 1 << 40, piece: chunk.iter().product() };
        let blob = BlobRef::new(Huge { layout, is_run: false });
        let grid = Grid {
            blob,
            itemsize: 1,
            shape: shape.to_vec(),
            chunk: chunk.to_vec(),
            block: chunk.to_vec(),
            window: None,
        };
        let fetch = Counting::default();
        let shown = picture(&array("|u1", 1, &shape), &Content::Grid(Arc::new(grid)), &fetch).unwrap();
        assert!(fetch.bytes.get() <= BUDGET && shown.width >= 128, "{chunk:?}: {}", fetch.bytes.get());
    }
}

#[test]
fn data_that_does_not_fit_in_the_budget_at_all_is_refused() {
    let layout = crate::format::Layout::Uniform { len: 1 << 40, piece: 1 << 30 };
    let data = Content::Blob(BlobRef::new(Huge { layout, is_run: false }));
    let e = picture(&array("|u1", 1, &[1 << 20, 1 << 20]), &data, &Plain).err().unwrap();
    assert!(matches!(e.kind(), crate::error::Kind::TooLarge { .. }), "{e}");
}
