//! Arrays: their elements by ranges, boxes and steps, and what reading those decodes.

use super::*;
use crate::format::{self, Grid};

const SHAPE: [u64; 3] = [4, 6, 5];
const SIZE: usize = 4;

fn described(shape: &[u64]) -> format::Array {
    format::Array { descr: "'<f4'".into(), itemsize: SIZE as u64, shape: shape.to_vec() }
}

fn array(content: Content, shape: &[u64], start: u64) -> Array {
    Array::new(lone(content, &uncached()), described(shape), start)
}

fn blob(bytes: Vec<u8>, piece: u64) -> Content {
    Content::Blob(Memory::new(bytes, piece).blob().0)
}

/// The elements of an array of [`SHAPE`] as a blob in chunks of 2 x 3 x 5 has them.
fn chunked(elements: &[u8]) -> Content {
    let row = |i: usize, j: usize| &elements[(i * 6 + j) * 5 * SIZE..][..5 * SIZE];
    let rows = |(a, b): (usize, usize)| (0..2).flat_map(move |i| (0..3).map(move |j| (2 * a + i, 3 * b + j)));
    let chunks = [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().flat_map(rows);
    let bytes = chunks.flat_map(|(i, j)| row(i, j).to_vec()).collect();
    let chunk = vec![2, 3, 5];
    Content::Grid(Arc::new(Grid {
        blob: Memory::new(bytes, 30 * SIZE as u64).blob().0,
        itemsize: SIZE as u64,
        shape: SHAPE.to_vec(),
        chunk: chunk.clone(),
        block: chunk,
        window: None,
    }))
}

/// The same elements, in a file in several ways.
fn arrays(elements: &[u8]) -> Vec<(&'static str, Array)> {
    let (len, before) = (to_u64(elements.len()), noise(10));
    let (all, after) = (elements.to_vec(), [&before[..], elements].concat());
    let whole = blob(all.clone(), 64);
    let deferred = whole.clone();
    let deferred = Content::Deferred { len: Some(len), make: Arc::new(move || Ok(deferred.clone())) };
    let slice = |bytes, from| Content::Slice(Arc::new(blob(bytes, 64)), from..from + len);
    let join = |parts: Vec<Content>| Content::Join(parts.into());
    let bytes = |bytes: &[u8]| Content::bytes(bytes);
    let at_start = [
        ("in memory", bytes(elements)),
        ("a blob", whole.clone()),
        ("the beginning of a blob", slice([&all[..], &before].concat(), 0)),
        ("the end of a blob", slice(after.clone(), 10)),
        ("a blob that is described when it is used", deferred),
        ("chunks", chunked(elements)),
    ];
    let after_header = [
        ("a blob after a header", join(vec![bytes(&before), whole.clone()])),
        ("a blob after a header in two parts", join(vec![bytes(&before[..4]), bytes(&before[4..]), whole])),
        ("a blob after a header with an element", join(vec![bytes(&after[..18]), blob(after[18..].to_vec(), 64)])),
        ("a blob that has the end of the header", join(vec![bytes(&after[..6]), blob(after[6..].to_vec(), 64)])),
        ("the end of bytes in memory", bytes(&after)),
    ];
    let of = |start| move |(name, content)| (name, array(content, &SHAPE, start));
    at_start.into_iter().map(of(0)).chain(after_header.into_iter().map(of(10))).collect()
}

/// The elements that `steps` choose, one by one.
fn gathered(elements: &[u8], [a, b, c]: [Steps; 3]) -> Vec<u8> {
    let along = |steps: Steps| (0..steps.count).map(move |i| steps.start + i * steps.step);
    let at = along(a).flat_map(|i| along(b).flat_map(move |j| along(c).map(move |k| (i * 6 + j) * 5 + k)));
    at.flat_map(|at| elements[at as usize * SIZE..][..SIZE].to_vec()).collect()
}

fn read(array: &Array, steps: &[Steps]) -> Result<Vec<u8>> {
    let count: u64 = steps.iter().map(|steps| steps.count).product();
    let mut buffer = vec![0xA5; count as usize * SIZE];
    array.read_steps(steps, &mut buffer).map(|()| buffer)
}

const fn steps(start: u64, count: u64, step: u64) -> Steps {
    Steps { start, count, step }
}

#[test]
fn steps_choose_the_same_elements_however_they_are_stored() {
    let elements = noise(4 * 6 * 5 * SIZE);
    let of = |len| [steps(0, len, 1), steps(1, 2, 1), steps(0, 2, 3), steps(2, 1, 7)];
    for (name, array) in arrays(&elements) {
        for a in of(SHAPE[0]) {
            for b in of(SHAPE[1]) {
                for c in of(SHAPE[2]) {
                    let got = read(&array, &[a, b, c]).unwrap();
                    assert!(got == gathered(&elements, [a, b, c]), "{name}: {a:?} {b:?} {c:?}");
                }
            }
        }
        assert_eq!(read(&array, &[steps(4, 0, 1), steps(0, 6, 1), steps(9, 0, 2)]).unwrap(), b"");
        let (bytes, end) = (&elements[7 * SIZE..9 * SIZE], array.len());
        assert_eq!((array.read(7..9).unwrap(), array.read(end..end).unwrap()), (bytes.to_vec(), vec![]), "{name}");
        assert_eq!(array.chunks(), SHAPE, "{name}");
    }
}

/// Reads `chosen` of an array with `content`, and returns how many pieces that decodes.
fn decodes(content: Content, memory: &Memory, shape: &[u64], start: u64, chosen: &[Steps]) -> u64 {
    let array = array(content, shape, start);
    let before = memory.decodes.load(Ordering::Relaxed);
    read(&array, chosen).unwrap();
    memory.decodes.load(Ordering::Relaxed) - before
}

#[test]
fn a_box_decodes_each_piece_once_in_blobs_that_begin_with_the_array() {
    let chosen = [steps(0, 8, 1), steps(2, 4, 1)];
    let (blob, memory) = Memory::new(noise(64 * SIZE), 64 * SIZE as u64).blob();
    let whole = Content::Blob(blob);
    let deferred = whole.clone();
    let deferred = Content::Deferred { len: Some(256), make: Arc::new(move || Ok(deferred.clone())) };
    let slice = Content::Slice(Arc::new(whole.clone()), 0..256);
    let after_header = Content::Join([Content::bytes(noise(10)), whole.clone()].into());
    for (content, start) in [(whole, 0), (deferred, 0), (slice, 0), (after_header, 10)] {
        let name = format!("{content:?}");
        assert_eq!(decodes(content, &memory, &[8, 8], start, &chosen), 1, "{name}");
    }
}

#[test]
fn wide_steps_decode_only_the_pieces_that_have_an_element_and_narrow_ones_each_once() {
    // Two rows of 64 elements, 4 in a piece.
    let (blob, memory) = Memory::new(noise(128 * SIZE), 4 * SIZE as u64).blob();
    let (shape, chunk) = (vec![2, 64], vec![1, 4]);
    let grid = Grid { blob, itemsize: SIZE as u64, shape, chunk: chunk.clone(), block: chunk, window: None };
    let content = Content::Grid(Arc::new(grid));
    for (row, column, want) in [
        (steps(0, 1, 1), steps(0, 4, 16), 4),
        (steps(1, 1, 1), steps(3, 3, 5), 3),
        (steps(0, 1, 1), steps(0, 32, 2), 16),
        (steps(1, 1, 1), steps(0, 16, 4), 16),
        (steps(0, 2, 1), steps(0, 22, 3), 32),
        (steps(0, 2, 1), steps(1, 2, 40), 4),
    ] {
        assert_eq!(decodes(content.clone(), &memory, &[2, 64], 0, &[row, column]), want, "{row:?} {column:?}");
    }
}

#[test]
fn steps_and_ranges_that_leave_the_array_are_usage_errors() {
    let array = array(Content::bytes(noise(120 * SIZE)), &SHAPE, 0);
    let one = steps(0, 1, 1);
    let is_usage = |result: Result<Vec<u8>>| matches!(result.unwrap_err().kind(), Kind::Usage(_));
    for first in [steps(4, 1, 1), steps(0, 5, 1), steps(1, 2, 3), steps(u64::MAX, 1, 1), steps(0, 1, 0)] {
        assert!(is_usage(read(&array, &[first, one, one])), "{first:?}");
    }
    read(&array, &[steps(1, 3, 1), one, one]).unwrap();
    for wrong in [&[one; 2][..], &[one; 4]] {
        assert!(is_usage(read(&array, wrong)));
    }
    assert!(matches!(array.read_steps(&[one; 3], &mut [0; 5]).unwrap_err().kind(), Kind::Usage(_)));
    for range in [0..121, 120..121, 119..u64::MAX, u64::MAX - 1..u64::MAX] {
        assert!(is_usage(array.read(range)));
    }
    for len in [3, 5, 481] {
        assert!(matches!(array.read_into(0, &mut vec![0; len]).unwrap_err().kind(), Kind::Usage(_)), "{len}");
    }
    let most = |rank: usize| {
        let array = Array::new(lone(Content::bytes(noise(SIZE)), &uncached()), described(&vec![1; rank]), 0);
        read(&array, &vec![one; rank]).is_ok()
    };
    assert!(most(0) && most(64) && !most(65));
}

#[test]
fn an_array_says_what_it_is() {
    let made = |shape: &[u64], attr: Option<&str>| {
        let file = DescribedFile::new(Content::bytes(noise(480))).typed(Some(described(shape))).stored(77);
        let file = file.about(|| Ok([("unit".to_owned(), Value::from("K"))].into_iter().collect()));
        let file = attr.into_iter().fold(file.attr("filter", "none"), |file, value| file.attr("dtype", value));
        let made = Made::new(vec![Described::named("a", ".raw", file)]);
        made.archive(&uncached(), Access::Random).file("a.raw").unwrap().array().unwrap()
    };
    let array = made(&SHAPE, Some("bf16"));
    assert_eq!((array.dtype(), array.type_name(), array.itemsize()), ("<f4", Some("bf16"), 4));
    assert_eq!((array.shape(), array.len(), array.is_empty(), array.stored()), (&SHAPE[..], 120, false, 77));
    assert_eq!(array.attributes().unwrap(), serde_json::json!({"unit": "K"}));
    let none = made(&[0, 5], None);
    assert_eq!((none.type_name(), none.len(), none.is_empty()), (None, 0, true));
}
