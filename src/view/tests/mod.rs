//! Views of synthetic blobs: every kind of content at every range; grids compared with an element-wise gather.

mod parts;
mod whole_blocks;
mod windows;
mod zarr;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::bytes::FileOffset;
use crate::checksum::{ChecksumGate, Threads, Verify};
use crate::error::Kind;
use crate::format::testing::{Memory, Plain, noise};
use crate::format::{FileExtent, Grid};
use crate::source::Source;

fn all(content: &Content) -> Result<Vec<u8>> {
    let view = View::new(content, &Plain)?;
    let mut bytes = vec![0xAA; view.len() as usize];
    view.read(0, &mut bytes, &Plain)?;
    Ok(bytes)
}

fn stored(bytes: &[u8], at: u64, len: u64, gate: Option<ChecksumGate>) -> Content {
    Content::FileExtent(FileExtent { source: Source::from_bytes(bytes.to_vec()), at: FileOffset(at), len, gate })
}

fn made(len: Option<u64>, bytes: &'static [u8], asked: &Arc<AtomicU64>) -> Content {
    let asked = asked.clone();
    let make = move |_: &dyn Fetch| {
        asked.fetch_add(1, Ordering::Relaxed);
        Ok(bytes.to_vec())
    };
    Content::Computed { len, make: Arc::new(make) }
}

/// One part of every kind, 64 bytes, and its content.
fn mixed() -> (Content, Vec<u8>) {
    let noise = noise(20);
    let (blob, _) = Memory::new(noise.clone(), 7).blob();
    let asked = Arc::default();
    let parts: Vec<Content> = vec![
        Content::bytes(*b"0123456789"),
        Content::Blob(blob.clone()),
        Content::bytes(*b""),
        Content::Zeros(3),
        stored(b"abcdefgh", 2, 4, None),
        Content::Join(Arc::from([Content::Blob(blob).slice(5..16), made(None, b"made!", &asked).slice(1..4)]))
            .slice(2..13),
        made(Some(12), b"twelve bytes", &asked),
        Content::Zeros(4),
    ];
    let mut want = b"0123456789".to_vec();
    want.extend(&noise);
    want.extend([0; 3]);
    want.extend(b"cdef");
    want.extend(&noise[7..16]);
    want.extend(b"ad");
    want.extend(b"twelve bytes");
    want.extend([0; 4]);
    assert_eq!(want.len(), 64);
    (Content::Join(parts.into()), want)
}

/// The bytes of `range` if no decoding, computing, waiting or reading of the container is required.
fn ready(view: &View, range: Range<u64>, peek: &dyn Fn(&BlobRef, u64) -> Option<Piece>) -> Option<Bytes> {
    if view.is_piece(&range) {
        return view.ready_piece(&range, peek);
    }
    view.inside(&range).ok()?;
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    view.fill_ready(range.start, &mut bytes, peek).then_some(Bytes::Owned(bytes))
}

#[test]
fn every_range_of_every_kind_of_content_equals_that_of_the_whole() {
    let (content, want) = mixed();
    assert_eq!(len(&content, &Plain).unwrap(), 64);
    let view = View::new(&content, &Plain).unwrap();
    for start in 0..=64_u64 {
        for end in start..=64 {
            let (from, to) = (start as usize, end as usize);
            let mut got = vec![0xAA; to - from];
            view.read(start, &mut got, &Plain).unwrap();
            assert_eq!(got, want[from..to], "{start}..{end}");
            assert_eq!(*view.get(start..end, &Plain).unwrap(), want[from..to], "{start}..{end}");
            let mut sum = 0;
            view.extents(start..end, &mut |s| {
                assert!(s.len() > 0);
                sum += s.len();
                Ok(())
            })
            .unwrap();
            assert_eq!(sum, end - start);
        }
    }
}

#[test]
fn a_range_past_the_end_is_an_error_before_anything_is_allocated() {
    let view = View::new(&mixed().0, &Plain).unwrap();
    for range in [0..65, 64..65, 65..65, u64::MAX - 1..u64::MAX, 0..u64::MAX] {
        assert!(matches!(view.get(range, &Plain).unwrap_err().kind(), Kind::Truncated { .. }));
    }
    assert!(view.read(60, &mut [0; 5], &Plain).is_err());
    assert_eq!(view.get(64..64, &Plain).unwrap().len(), 0);
    let bytes = Content::bytes(*b"abc");
    assert!(all(&bytes.clone().slice(1..4)).is_err());
    #[expect(clippy::reversed_empty_ranges, reason = "what a broken description may say")]
    let backwards = bytes.clone().slice(2..1);
    assert!(all(&backwards).is_err());
    assert!(known_len(&backwards).is_none());
    let huge = Content::Join(Arc::from([Content::Zeros(u64::MAX), Content::Zeros(1)]));
    assert!(all(&huge).is_err());
    let deep = (0..100).fold(bytes, |inner, _| inner.slice(0..3));
    assert!(matches!(all(&deep).unwrap_err().kind(), Kind::TooLarge { .. }));
}

#[test]
fn bytes_are_computed_once_per_view_and_checked_against_their_announced_length() {
    let asked = Arc::new(AtomicU64::new(0));
    let content = made(Some(5), b"five!", &asked);
    assert_eq!(known_len(&content), Some(5));
    let view = View::new(&content, &Plain).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    assert!(ready(&view, 0..5, &|_, _| None).is_none());
    assert_eq!(*view.get(1..3, &Plain).unwrap(), *b"iv");
    assert_eq!(*ready(&view, 0..5, &|_, _| None).unwrap(), *b"five!");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert!(matches!(all(&made(Some(4), b"five!", &asked)).unwrap_err().kind(), Kind::Corrupt(_)));
    let unknown = made(None, b"five!", &asked);
    assert_eq!((known_len(&unknown), len(&unknown, &Plain).unwrap()), (None, 5));
}

#[test]
fn stored_bytes_wait_for_their_gate() {
    let shut = ChecksumGate::new(&Verify::First, 0, &Threads::default(), || Err(Error::corrupt("no", "checksum")));
    assert!(all(&stored(b"abc", 0, 3, Some(shut))).is_err());
    let open = ChecksumGate::new(&Verify::First, 0, &Threads::default(), || Ok(()));
    assert_eq!(all(&stored(b"abc", 0, 3, Some(open))).unwrap(), b"abc");
    assert!(all(&stored(b"abc", 1, 3, None)).is_err());
}

#[test]
fn ready_returns_only_bytes_that_are_available() {
    let noise = noise(30);
    let (blob, counter) = Memory::new(noise.clone(), 10).blob();
    let view = View::new(&Content::Blob(blob), &Plain).unwrap();
    let have = |blob: &BlobRef, piece| (piece < 2).then(|| Plain.piece(blob, piece).unwrap());
    assert!(matches!(ready(&view, 12..20, &have), Some(Bytes::Shared(_, r)) if r == (2..10)));
    assert_eq!(*ready(&view, 5..15, &have).unwrap(), noise[5..15]);
    assert!(ready(&view, 15..25, &have).is_none());
    let before = counter.decodes.load(Ordering::Relaxed);
    assert!(ready(&view, 25..26, &|_, _| None).is_none());
    assert_eq!(counter.decodes.load(Ordering::Relaxed), before);
    let (view, fetch) = (View::new(&stored(b"abc", 0, 3, None), &Plain).unwrap(), |_: &BlobRef, _| None);
    assert!(ready(&view, 0..1, &fetch).is_none());
}

#[test]
fn pieces_are_visited_in_order_until_the_visitor_stops() {
    let (blob, _) = Memory::new(noise(30), 10).blob();
    let content = Content::Join(Arc::from([Content::bytes(*b"head"), Content::Blob(blob)]));
    let view = View::new(&content, &Plain).unwrap();
    let mut got = Vec::new();
    view.pieces(0..25, &mut |_, piece, size| {
        got.push((piece, size));
        got.len() < 2
    })
    .unwrap();
    assert_eq!(got, [(0, 10), (1, 10)]);
    assert_eq!(view.piece_and_batch(), (10, 10));
}

/// Stores the C-order `array` as chunks of blocks, row by row of a block, as [`Grid`] defines it.
fn scatter(array: &[u8], itemsize: usize, shape: &[u64], chunk: &[u64], block: &[u64]) -> Vec<u8> {
    let product = |v: &[u64]| v.iter().product::<u64>();
    let Some(last) = shape.len().checked_sub(1) else { return array.to_vec() };
    let grid: Vec<u64> = shape.iter().zip(chunk).map(|(n, chunk)| n.div_ceil(*chunk)).collect();
    let blocks: Vec<u64> = chunk.iter().zip(block).map(|(n, block)| n.div_ceil(*block)).collect();
    let per_chunk = product(&blocks) * product(block);
    // Where the elements are whose index in dimension `d` is `i`, from those whose index is 0.
    let place = |d: usize, i: u64| {
        let (of_chunk, of_block) = (i / chunk[d], i % chunk[d] / block[d]);
        of_chunk * product(&grid[d + 1..]) * per_chunk
            + of_block * product(&blocks[d + 1..]) * product(block)
            + i % chunk[d] % block[d] * product(&block[d + 1..])
    };
    let mut out = vec![0xEE; (product(&grid) * per_chunk) as usize * itemsize];
    for row in 0..product(&shape[..last]) {
        let (mut rest, mut start) = (row, 0);
        for d in (0..last).rev() {
            start += place(d, rest % shape[d]);
            rest /= shape[d];
        }
        let mut i = 0;
        while i < shape[last] {
            let of_chunk = i % chunk[last];
            let n = (block[last] - of_chunk % block[last]).min(chunk[last] - of_chunk).min(shape[last] - i);
            let (from, to) =
                ((row * shape[last] + i) as usize * itemsize, (start + place(last, i)) as usize * itemsize);
            out[to..][..n as usize * itemsize].copy_from_slice(&array[from..][..n as usize * itemsize]);
            i += n;
        }
    }
    out
}

fn grid(itemsize: u64, shape: &[u64], chunk: &[u64], block: &[u64], piece: u64) -> (Content, Vec<u8>) {
    grid_of(itemsize, shape, chunk, block, (piece, None))
}

/// With pieces and fragments of these sizes.
fn grid_of(
    itemsize: u64,
    shape: &[u64],
    chunk: &[u64],
    block: &[u64],
    (piece, fragment): (u64, Option<u64>),
) -> (Content, Vec<u8>) {
    let array = noise((shape.iter().product::<u64>() * itemsize) as usize);
    let bytes = if array.is_empty() { Vec::new() } else { scatter(&array, itemsize as usize, shape, chunk, block) };
    let (blob, _) = Memory { fragment, ..Memory::new(bytes, piece) }.blob();
    let grid =
        Grid { blob, itemsize, shape: shape.to_vec(), chunk: chunk.to_vec(), block: block.to_vec(), window: None };
    (Content::Grid(Arc::new(grid)), array)
}

/// Item size, shape, chunk, block.
type Row = (u64, &'static [u64], &'static [u64], &'static [u64]);

#[test]
fn grids_of_awkward_shapes_read_as_c_order() {
    let rows: [Row; 12] = [
        (8, &[], &[], &[]),
        (3, &[10], &[4], &[3]),
        (1, &[10], &[100], &[7]),
        (4, &[0, 5], &[0, 0], &[0, 0]),
        (4, &[3, 0], &[2, 2], &[1, 1]),
        (2, &[5, 7], &[5, 7], &[5, 7]),
        (2, &[5, 7], &[3, 7], &[2, 7]),
        (8, &[5, 7], &[4, 4], &[3, 2]),
        (1, &[7, 1, 5], &[3, 2, 4], &[2, 2, 3]),
        (16, &[4, 1], &[3, 1], &[2, 5]),
        (5, &[3, 3, 3, 3], &[2, 3, 2, 3], &[1, 2, 2, 3]),
        (1, &[2; 16], &[2; 16], &[1; 16]),
    ];
    for (itemsize, shape, chunk, block) in rows {
        for piece in [1_u64, 7, 64, 1 << 20] {
            if shape.len() == 16 && piece < 64 {
                continue;
            }
            let (content, want) = grid(itemsize, shape, chunk, block, piece);
            assert_eq!(known_len(&content), Some(to_u64(want.len())));
            assert_eq!(all(&content).unwrap(), want, "{shape:?} {chunk:?} {block:?} in pieces of {piece}");
        }
    }
}

#[test]
fn an_inconsistent_grid_is_an_error() {
    let (blob, _) = Memory::new(noise(100), 10).blob();
    let rows: [Row; 9] = [
        (1, &[101], &[10], &[10]),
        (1, &[100], &[60], &[60]),
        (1, &[10], &[0], &[1]),
        (1, &[10], &[1], &[0]),
        (1, &[10], &[1, 1], &[1]),
        (1, &[1; 17], &[1; 17], &[1; 17]),
        (u64::MAX, &[2], &[1], &[1]),
        (1, &[1, 1], &[u64::MAX, u64::MAX], &[1, 1]),
        (1, &[1], &[1], &[u64::MAX]),
    ];
    for (itemsize, shape, chunk, block) in rows {
        let (shape, chunk, block) = (shape.to_vec(), chunk.to_vec(), block.to_vec());
        let grid = Grid { blob: blob.clone(), itemsize, shape, chunk, block, window: None };
        assert!(all(&Content::Grid(Arc::new(grid.clone()))).is_err(), "{grid:?}");
    }
}

#[test]
fn a_long_read_across_chunks_fetches_each_piece_once() {
    // 4 x 4 chunks of 8 x 8, one piece each; 32 rows of 32 bytes.
    let (content, want) = grid(1, &[32, 32], &[8, 8], &[4, 4], 64);
    let Content::Grid(grid) = &content else { unreachable!() };
    let asked = std::sync::Mutex::new(Vec::new());
    let view = View::new(&content, &Plain).unwrap();
    let peek = |blob: &BlobRef, piece| {
        asked.lock().unwrap().push(piece);
        Plain.piece(blob, piece).ok()
    };
    assert_eq!(*ready(&view, 0..8 * 32, &peek).unwrap(), want[..8 * 32]);
    assert_eq!(*asked.lock().unwrap(), [0, 1, 2, 3]);
    let mut pieces = Vec::new();
    view.pieces(0..16 * 32, &mut |_, piece, _| {
        pieces.push(piece);
        true
    })
    .unwrap();
    assert_eq!(pieces, (0..8).collect::<Vec<_>>());
    assert_eq!(grid.blob.layout().unwrap().count(), 16);
}

#[test]
fn a_range_is_read_by_fragments_if_they_are_fewer_bytes_than_the_pieces_not_known() {
    let (blob, _) = Memory { fragment: Some(100), ..Memory::new(noise(3000), 1000) }.blob();
    let (plain, _) = Memory::new(noise(3000), 1000).blob();
    let join = |parts: &[&BlobRef]| {
        let parts: Vec<_> = parts.iter().map(|&blob| Content::Blob(blob.clone())).collect();
        View::new(&Content::Join(parts.into()), &Plain).unwrap()
    };
    let view = join(&[&blob, &plain]);
    let pays = |range| view.by_fragments(&range, &|_, _| false).is_some();
    assert!(pays(10..20) && pays(990..1010) && pays(0..500) && pays(500..1300));
    assert!(!pays(0..501) && !pays(3000..3010) && !pays(2990..3010), "half of the bytes, or none, are saved");
    assert!(view.by_fragments(&(10..1020), &|_, piece| piece == 0).is_none());
    assert!(view.by_fragments(&(990..1010), &|_, piece| piece == 0).is_some(), "the other piece is not known");
    assert!(view.by_fragments(&(10..20), &|_, piece| piece == 0).is_none());
    assert!(join(&[&plain]).by_fragments(&(10..20), &|_, _| false).is_none());

    let fragments = view.by_fragments(&(10..20), &|_, _| false).unwrap();
    assert_eq!(&fragments.get(0..6000, &Plain).unwrap()[..], [noise(3000), noise(3000)].concat());
    assert!(fragments.by_fragments(&(10..20), &|_, _| false).is_none());
    assert_eq!(fragments.single_blob().map(|(blob, ..)| blob.id()), None);
}

/// A dimension of the array, of the chunk, of the block.
fn dim() -> impl Strategy<Value = (u64, u64, u64)> {
    (1_u64..9, 1_u64..10, 1_u64..6)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::Direct("tests/suite/regressions/view.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_range_of_any_grid_is_what_a_naive_gather_gives(
        dims in prop::collection::vec(dim(), 1..5),
        itemsize in 1_u64..9,
        piece in 1_u64..400,
        parts in 2_u64..20,
        from in 0.0..1.0_f64,
        to in 0.0..1.0_f64,
    ) {
        let of = |f: fn(&(u64, u64, u64)) -> u64| dims.iter().map(f).collect::<Vec<u64>>();
        let sizes = (piece, Some((piece / parts).max(1)));
        let (content, want) = grid_of(itemsize, &of(|d| d.0), &of(|d| d.1), &of(|d| d.2), sizes);
        let view = View::new(&content, &Plain).unwrap();
        let at = |f: f64| (f * want.len() as f64) as u64;
        let (from, to) = (at(from.min(to)), at(from.max(to)));
        prop_assert_eq!(&*view.get(from..to, &Plain).unwrap(), &want[from as usize..to as usize]);

        if let Some(fragments) = view.fragments() {
            prop_assert_eq!(&*fragments.get(from..to, &Plain).unwrap(), &want[from as usize..to as usize]);
        }

        // Every piece that was read was announced.
        let mut announced = Vec::new();
        view.pieces(from..to, &mut |_, piece, _| { announced.push(piece); true }).unwrap();
        let peek = |blob: &BlobRef, piece| announced.contains(&piece).then(|| Plain.piece(blob, piece).unwrap());
        prop_assert!(ready(&view, from..to, &peek).is_some());
    }
}
