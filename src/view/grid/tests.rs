//! Which dimensions are merged, which windows are ranges of the blob, and what padding clears.

use std::sync::Arc;

use super::*;
use crate::format::testing::{Memory, Plain, noise};
use crate::format::{Content, Window};
use crate::view::View;

/// A window of an array: its start and its shape.
type Part<'a> = (&'a [u64], &'a [u64]);

/// An array of bytes in pieces of 4, or a window of it. The bytes of the blob are not 0.
fn grid(shape: &[u64], chunk: &[u64], block: &[u64], window: Option<Part<'_>>) -> Grid {
    let stored = (shape.iter().zip(chunk)).zip(block).map(|((s, c), b)| s.div_ceil(*c) * c.div_ceil(*b) * b);
    let bytes = noise(stored.product::<u64>() as usize).into_iter().map(|byte| byte | 1).collect();
    let window = window.map(|(start, shape)| Window { start: start.to_vec(), shape: shape.to_vec() });
    let (shape, chunk, block) = (shape.to_vec(), chunk.to_vec(), block.to_vec());
    Grid { blob: Memory::new(bytes, 4).blob().0, itemsize: 1, shape, chunk, block, window }
}

#[test]
fn dimensions_that_follow_each_other_in_both_orders_are_one_axis() {
    // Chunk, block and window; the number of axes.
    type Row<'a> = (&'a [u64], &'a [u64], Option<Part<'a>>, usize);
    let whole: &[u64] = &[4, 5, 6];
    let rows: [Row<'_>; 8] = [
        (whole, whole, None, 1),
        // Blocks of whole planes, of columns, of rows.
        (whole, &[2, 5, 6], None, 1),
        (whole, &[4, 5, 3], None, 2),
        (&[4, 2, 6], &[4, 2, 6], None, 2),
        (whole, whole, Some((&[1, 0, 0], &[2, 5, 6])), 1),
        (whole, whole, Some((&[0, 0, 2], &[4, 5, 3])), 2),
        // As long as the array, but not from its start.
        (whole, whole, Some((&[0, 0, 2], &[4, 5, 6])), 2),
        (whole, whole, Some((&[0, 1, 0], &[4, 5, 6])), 2),
    ];
    for (chunk, block, window, axes) in rows {
        let reader = GridReader::new(&grid(whole, chunk, block, window)).unwrap();
        assert_eq!(reader.axes.len(), axes, "{chunk:?} {block:?} {window:?}");
    }
}

#[test]
fn a_window_is_a_range_of_the_blob_if_it_is_in_one_block_and_its_rows_follow_each_other() {
    // Each chunk has two rows of blocks: three rows of the array, and two with one of padding.
    let rows: [(Part<'_>, Option<u64>); 8] = [
        ((&[5, 0], &[3, 4]), Some(48)),
        ((&[6, 4], &[2, 4]), Some(64)),
        ((&[8, 4], &[2, 4]), Some(84)),
        ((&[1, 2], &[1, 2]), Some(6)),
        // In two blocks, one after the other in the array and in the chunk.
        ((&[7, 0], &[2, 4]), None),
        ((&[0, 2], &[1, 4]), None),
        ((&[4, 0], &[2, 4]), None),
        ((&[0, 0], &[2, 3]), None),
    ];
    for ((start, shape), at) in rows {
        let reader = GridReader::new(&grid(&[10, 8], &[5, 8], &[3, 4], Some((start, shape)))).unwrap();
        assert_eq!(reader.contiguous().map(|(.., at)| at), at, "{start:?} {shape:?}");
    }
    // The block of the last step has room for one that the array does not have.
    for (start, len, at) in [(8, 2, Some(12)), (8, 3, None), (9, 1, Some(13))] {
        let reader = GridReader::new(&grid(&[10], &[4], &[3], Some((&[start], &[len])))).unwrap();
        assert_eq!(reader.contiguous().map(|(.., at)| at), at, "{start} {len}");
    }
}

#[test]
fn only_what_is_outside_the_array_is_cleared() {
    for (shape, chunk, block, window) in [
        (&[3, 4][..], &[3, 4][..], &[3, 4][..], &[3, 6][..]),
        (&[3, 4], &[2, 4], &[2, 2], &[5, 4]),
        // The last step of an axis is followed by the first one of the axis around it.
        (&[2, 2, 4], &[2, 2, 4], &[1, 2, 2], &[2, 3, 4]),
        // Three axes, as each dimension is divided.
        (&[2, 2, 2], &[2, 1, 2], &[2, 1, 2], &[3, 3, 4]),
    ] {
        let content = Content::Grid(Arc::new(grid(shape, chunk, block, Some((&vec![0; shape.len()], window)))));
        let view = View::new(&content, &Plain).unwrap();
        let inside = |index: u64| {
            let mut rest = index;
            window.iter().zip(shape).rev().all(|(side, len)| {
                let at = rest % side;
                rest /= side;
                at < *len
            })
        };
        for from in 0..view.len() {
            for to in from..=view.len() {
                // The bytes in the array are known, and not to be written again.
                let mut bytes = vec![0xAA; (to - from) as usize];
                view.read_rest(from, &mut bytes, &|_, _| true, &Plain).unwrap();
                let want: Vec<u8> = (from..to).map(|index| if inside(index) { 0xAA } else { 0 }).collect();
                assert_eq!(bytes, want, "{shape:?} in {window:?}, {from}..{to}");
            }
        }
    }
}

#[test]
fn a_range_past_the_end_of_the_array_is_an_error_and_an_empty_one_is_not() {
    let reader = GridReader::new(&grid(&[10], &[4], &[3], None)).unwrap();
    for (at, len, is_inside) in [(0, 10, true), (10, 0, true), (4, 0, true), (10, 1, false), (11, 0, false)] {
        let read = reader.copy(at, &mut vec![0; len], &|_, _| Ok(None), true);
        let pieces = reader.pieces(at, len as u64, &mut |_, _, _| true);
        assert_eq!((read.is_ok(), pieces.is_ok()), (is_inside, is_inside), "{at} {len}");
    }
}
