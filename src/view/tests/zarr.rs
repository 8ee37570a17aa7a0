//! The chunks of arrays: together they are the array, and what they have besides is zero.

use std::collections::HashSet;

use super::*;
use crate::format::{Array, File, NamedArray, Tiles};
use crate::view::zarr::Chunks;

fn named(descr: &str, itemsize: u64, shape: &[u64], content: &Content) -> NamedArray {
    let array = Array { descr: descr.into(), itemsize, shape: shape.to_vec() };
    let tiles = Tiles::of(content, &array);
    NamedArray { name: b"data".to_vec(), array, type_name: None, tiles, stored: 0, dimensions: None }
}

/// Checks every chunk of the array in `content` against `want`, its bytes; returns the chunk shape and the most pieces
/// that a chunk touches.
fn check(itemsize: u64, shape: &[u64], content: &Content, want: &[u8]) -> (Vec<u64>, usize) {
    let chunks = Chunks::new(&named("'<f4'", itemsize, shape, content)).unwrap();
    let file = File::new(content.clone());
    let (sizes, sides) = (chunks.sizes().to_vec(), chunks.sides().to_vec());
    let (n, itemsize) = (shape.len(), itemsize as usize);
    let (mut most, mut covered) = (0, 0);
    for number in 0..sides.iter().product::<u64>() {
        let chunk = chunks.file(number, &file).unwrap();
        assert_eq!(known_len(&chunk.content), Some(chunks.byte_len()));
        let view = View::new(&chunk.content, &Plain).unwrap();
        let mut pieces = HashSet::new();
        view.pieces(0..view.len(), &mut |_, piece, _| {
            pieces.insert(piece);
            true
        })
        .unwrap();
        most = most.max(pieces.len());
        let mut bytes = vec![0xAA; view.len() as usize];
        view.read(0, &mut bytes, &Plain).unwrap();
        // Row by row: the elements along the last dimension.
        let row = sizes.last().map_or(1, |&len| len as usize) * itemsize;
        let zeros = vec![0; row];
        for (i, row) in bytes.chunks(row).enumerate() {
            let (mut index, mut rest, mut left) = (vec![0; n], i as u64, number);
            for d in (0..n).rev() {
                index[d] = left % sides[d] * sizes[d];
                left /= sides[d];
                if d + 1 < n {
                    index[d] += rest % sizes[d];
                    rest /= sizes[d];
                }
            }
            let inside = index.iter().zip(shape).all(|(index, len)| index < len);
            let len = match (shape.last(), index.last()) {
                (Some(len), Some(start)) if inside => ((len - start).min(sizes[n - 1])) as usize * itemsize,
                (None, _) => itemsize,
                _ => 0,
            };
            let at = index.iter().zip(shape).fold(0, |at, (&index, &len)| at * len + index) as usize * itemsize;
            assert!(len == 0 || row[..len] == want[at..at + len], "chunk {number}, row {i}");
            assert!(row[len..] == zeros[len..], "chunk {number}, row {i}");
            covered += len;
        }
    }
    assert_eq!(covered, want.len(), "{shape:?} in chunks of {sizes:?}");
    assert!(chunks.file(sides.iter().product(), &file).is_err(), "a chunk after the last");
    (sizes, most)
}

#[test]
fn the_chunks_of_an_array_in_c_order_are_its_ranges() {
    // Item size, shape, piece; the chunk shape, and the most pieces that a chunk touches.
    type Row<'a> = (u64, &'a [u64], u64, &'a [u64], usize);
    let rows: [Row<'_>; 8] = [
        (4, &[], 1 << 20, &[], 1),
        (8, &[1], 1 << 20, &[1], 1),
        (4, &[1, 300, 1], 1 << 20, &[1, 300, 1], 1),
        (4, &[3 << 19], 1 << 20, &[1 << 19], 2),
        (1, &[5_000_011], 1 << 20, &[1 << 21], 2),
        (4, &[1100, 1024], 1 << 20, &[512, 1024], 2),
        // Rows that are not part of a piece: one piece more.
        (4, &[1100, 1000], 1 << 20, &[367, 1000], 3),
        (4, &[3, 5, 90_000], 1 << 20, &[1, 5, 90_000], 3),
    ];
    for (itemsize, shape, piece, sizes, most) in rows {
        let bytes = noise((shape.iter().product::<u64>() * itemsize) as usize);
        let (blob, _) = Memory::new(bytes.clone(), piece).blob();
        assert_eq!(check(itemsize, shape, &Content::Blob(blob), &bytes), (sizes.to_vec(), most), "{shape:?}");
        let make = {
            let bytes = bytes.clone();
            move || Ok(stored(&bytes, 0, to_u64(bytes.len()), None))
        };
        let deferred = Content::Deferred { len: None, make: Arc::new(make) };
        check(itemsize, shape, &deferred, &bytes);
    }
}

#[test]
fn the_chunks_of_an_array_in_blocks_are_its_windows() {
    // Item size, shape, chunk, block; the chunk shape, and the most pieces that a chunk touches.
    let rows: [(Row, &[u64], usize); 5] = [
        ((4, &[1100, 1300], &[512, 512], &[512, 512]), &[512, 1024], 2),
        ((4, &[900, 1300], &[300, 1024], &[50, 256]), &[300, 1024], 2),
        // Chunks of four blocks, mostly padding.
        ((8, &[700, 1000], &[70, 1000], &[64, 999]), &[210, 1000], 7),
        ((1, &[9, 700, 900], &[4, 350, 900], &[2, 350, 300]), &[4, 350, 900], 2),
        ((2, &[130, 130, 130], &[64, 64, 64], &[64, 64, 64]), &[64, 64, 130], 2),
    ];
    for ((itemsize, shape, chunk, block), sizes, most) in rows {
        let (content, want) = grid(itemsize, shape, chunk, block, 1 << 20);
        assert_eq!(check(itemsize, shape, &content, &want), (sizes.to_vec(), most), "{shape:?}");
    }
}

#[test]
fn arrays_without_elements_have_no_chunks_and_huge_ones_have_them_by_number() {
    let content = Content::bytes([]);
    let chunks = Chunks::new(&named("'<f4'", 4, &[3, 0, 2], &content)).unwrap();
    assert_eq!((chunks.sides(), chunks.sizes()), (&[0][..], &[3, 1, 2][..]));
    assert!(chunks.file(0, &File::new(content)).is_err());

    let huge = Content::Zeros(1 << 45);
    let chunks = Chunks::new(&named("'<f8'", 8, &[1 << 21, 1 << 21], &huge)).unwrap();
    assert_eq!((chunks.sides(), chunks.byte_len()), (&[1 << 21, 8][..], 2 << 20));
    let last = chunks.file((1 << 24) - 1, &File::new(huge)).unwrap();
    assert_eq!(View::new(&last.content, &Plain).unwrap().len(), 2 << 20);
}

#[test]
fn what_zarr_cannot_have_is_said() {
    let why = |descr, shape: &[u64]| Chunks::new(&named(descr, 4, shape, &Content::bytes([]))).unwrap_err();
    assert_eq!(why("'<f16'", &[3]), "Zarr has no data type for <f16");
    assert_eq!(why("'<f4'", &[1; 33]), "33 dimensions, and readers of Zarr have 32");
    assert_eq!(why("'<f4'", &[u64::MAX, 2]), "it has too many chunks");
}
