//! Arrays in blocks that are decoded whole for a few of their bytes.

use super::*;
use crate::format::{Blob, Layout, Window};

/// Pieces that must not be decoded.
#[derive(Debug)]
struct Undecoded(u64);

impl Blob for Undecoded {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: self.0, piece: 1 << 20 })
    }

    fn decode(&self, piece: u64, _: &mut [u8]) -> Result<()> {
        panic!("piece {piece} is decoded");
    }
}

#[test]
fn a_read_of_too_many_whole_blocks_is_refused_before_any_is_decoded() {
    // Each column is a chunk of one block of 16 MiB.
    let (rows, columns) = (1 << 24, 2048);
    let (chunk, blob) = (vec![rows, 1], BlobRef::new(Undecoded(rows * columns)));
    let grid = Grid { blob, itemsize: 1, shape: vec![rows, columns], block: chunk.clone(), chunk, window: None };
    let view = |window: Option<Window>| {
        let grid = Grid { window, ..grid.clone() };
        View::new(&Content::Grid(Arc::new(grid)), &Plain).unwrap()
    };
    let pieces = |view: &View, len| {
        let mut count = 0;
        let each = &mut |_: &BlobRef, _, _| {
            count += 1;
            true
        };
        view.pieces(0..len, each).map(|()| count)
    };
    let whole = view(None);
    for e in [whole.read(5, &mut vec![0; 1 << 17], &Plain).unwrap_err(), pieces(&whole, 1 << 17).unwrap_err()] {
        assert!(matches!(e.kind(), Kind::TooLarge { value, .. } if *value > rows * (columns - 8)), "{e}");
    }
    // A few columns, or one of them whole, take no more than they have to.
    assert_eq!(pieces(&whole, 64).unwrap(), 64);
    assert_eq!(pieces(&view(Some(Window { start: vec![0, 5], shape: vec![rows, 1] })), rows).unwrap(), 16);
}

#[test]
fn of_an_array_in_one_block_any_part_is_read() {
    // 4 GiB in C order, as Zstandard and FZM have arrays.
    let shape = vec![4, 1 << 10, 1 << 10, 1 << 10];
    let (chunk, blob) = (shape.clone(), BlobRef::new(Undecoded(1 << 32)));
    let window = Some(Window { start: vec![3, 0, 0, 0], shape: vec![1, 1, 6, 6] });
    let grid = Grid { blob, itemsize: 1, block: chunk.clone(), chunk, shape, window };
    let view = View::new(&Content::Grid(Arc::new(grid)), &Plain).unwrap();
    let mut pieces = Vec::new();
    let each = &mut |_: &BlobRef, piece, _| {
        pieces.push(piece);
        true
    };
    view.pieces(0..36, each).unwrap();
    pieces.dedup();
    assert_eq!(pieces, [3 << 10]);
}
