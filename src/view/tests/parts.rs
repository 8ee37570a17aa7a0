//! What a view tells of its parts, and how contents become parts.

use super::*;
use crate::format::{Blob, Far};
use crate::source::Need;

/// Ten bytes on a server.
struct Distant;

impl Blob for Distant {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: 10, piece: 10 })
    }

    fn decode(&self, piece: u64, _: &mut [u8]) -> Result<()> {
        panic!("piece {piece} is decoded")
    }

    fn far(&self) -> Option<&dyn Far> {
        Some(self)
    }
}

impl Far for Distant {
    fn announce(&self, _: &[Range<u64>], _: Need) {}
}

fn join(parts: &[&Content]) -> View {
    View::new(&Content::Join(parts.iter().map(|&part| part.clone()).collect()), &Plain).unwrap()
}

/// The ten bytes of a blob as an array, and one of padding, so that it is not a range of the blob.
fn padded(blob: BlobRef) -> Content {
    let window = Some(crate::format::Window { start: vec![0], shape: vec![11] });
    Content::Grid(Arc::new(Grid { blob, itemsize: 1, shape: vec![10], chunk: vec![10], block: vec![10], window }))
}

#[test]
fn a_view_is_far_if_one_of_its_first_parts_is() {
    let near = padded(Memory::new(noise(10), 10).blob().0);
    let (blob, grid) = (Content::Blob(BlobRef::new(Distant)), padded(BlobRef::new(Distant)));
    let zeros = Content::Zeros(1);
    assert!(!join(&[&zeros, &near, &Content::Blob(Memory::new(noise(10), 10).blob().0)]).is_far());
    assert!(join(&[&zeros, &blob]).is_far() && join(&[&near, &grid]).is_far());
    let late: Vec<_> = std::iter::repeat_n(&zeros, 8).chain([&blob]).collect();
    assert!(!join(&late).is_far() && join(&late[1..]).is_far());
}

#[test]
fn the_largest_piece_and_batch_are_those_of_blobs_and_arrays() {
    let of = |len, piece, batch| Memory { batch, ..Memory::new(noise(len), piece) }.blob().0;
    let (small, large) = (Content::Blob(of(30, 5, 7)), padded(of(10, 6, 3)));
    assert_eq!(join(&[&small]).piece_and_batch(), (5, 35));
    assert_eq!(join(&[&large]).piece_and_batch(), (6, 18));
    assert_eq!(join(&[&small, &large, &Content::Zeros(100)]).piece_and_batch(), (6, 35));
}

#[test]
fn the_bytes_that_a_view_keeps_are_those_that_are_computed() {
    let asked = Arc::default();
    let (known, unknown) = (made(Some(4), b"four", &asked), made(None, b"twelve bytes", &asked));
    assert_eq!(join(&[&Content::Zeros(7), &known, &unknown, &known.clone().slice(1..3)]).computed_len(), 4 + 12 + 2);
    assert_eq!(join(&[&Content::Zeros(7)]).computed_len(), 0);
}

#[test]
fn a_range_to_the_end_of_a_part_is_in_its_piece_wherever_the_part_begins() {
    let bytes = noise(30);
    let blob = Content::Blob(Memory::new(bytes.clone(), 10).blob().0);
    let view = join(&[&Content::bytes(*b"head"), &blob, &Content::Zeros(1)]);
    for (range, is_piece) in [(4..14, true), (6..14, true), (24..34, true), (24..35, false), (13..15, false)] {
        assert_eq!(view.is_piece(&range), is_piece, "{range:?}");
        let mut want = [&b"head"[..], &bytes, &[0]].concat();
        want.truncate(range.end as usize);
        assert_eq!(*view.get(range.clone(), &Plain).unwrap(), want[range.start as usize..]);
    }
}

#[test]
fn nothing_is_visited_after_the_visitor_has_stopped() {
    let blob = || Memory::new(noise(10), 10).blob().0;
    for (first, second) in [(Content::Blob(blob()), padded(blob())), (padded(blob()), Content::Blob(blob()))] {
        let (view, mut count) = (join(&[&first, &second]), 0);
        let each = &mut |_: &BlobRef, _, _| {
            count += 1;
            false
        };
        view.pieces(0..view.len(), each).unwrap();
        assert_eq!(count, 1);
    }
}

#[test]
fn a_deferred_content_has_the_length_that_was_announced() {
    let deferred = |len| {
        let make = || Ok(Content::Join(Arc::from([Content::bytes(*b"ab"), Content::Zeros(1)])));
        Content::Deferred { len, make: Arc::new(make) }
    };
    for len in [None, Some(3)] {
        assert_eq!(all(&deferred(len)).unwrap(), b"ab\0");
    }
    let error = all(&deferred(Some(2))).unwrap_err();
    assert_eq!(error.to_string(), "its length differs from the announced one (file)");
}

#[test]
fn a_slice_leaves_no_empty_parts() {
    let blob = Content::Blob(Memory::new(noise(10), 10).blob().0);
    let content = Content::Join(Arc::from([Content::Zeros(4), blob, Content::Zeros(4)]));
    let view = View::new(&content.slice(4..14), &Plain).unwrap();
    assert_eq!(view.single_blob().map(|(.., range)| range), Some(0..10));
}

#[test]
fn contents_are_nested_in_at_most_32_levels() {
    let nested = |levels| (1..levels).fold(Content::Zeros(1), |inner, _| inner.slice(0..1));
    assert_eq!(all(&nested(32)).unwrap(), [0]);
    let error = all(&nested(33)).unwrap_err();
    assert_eq!(error.kind(), &Kind::TooLarge { value: 33, limit: 32 });
}

#[test]
fn a_long_range_is_read_by_pieces() {
    let memory = Memory { fragment: Some(1 << 10), ..Memory::new(vec![0; 1 << 20], 1 << 20) };
    let view = View::new(&Content::Blob(memory.blob().0), &Plain).unwrap();
    let pays = |len| view.by_fragments(&(0..len), &|_, _| false).is_some();
    assert!(pays(1) && pays(256 << 10) && !pays((256 << 10) + 1));
}
