//! Boxes of arrays that are stored in chunks of blocks, and the padding outside the array.

use super::*;
use crate::format::Window;

/// The box of a grid, and its bytes: zeros outside the array.
fn window(content: &Content, array: &[u8], window: &Window) -> (Content, Vec<u8>) {
    let Content::Grid(grid) = content else { unreachable!() };
    let itemsize = grid.itemsize as usize;
    let mut want = Vec::new();
    for number in 0..window.shape.iter().product::<u64>() {
        let (mut rest, mut element, mut per_row, mut inside) = (number, 0, 1, true);
        for ((&start, &len), &shape) in window.start.iter().zip(&window.shape).zip(&grid.shape).rev() {
            let index = start + rest % len;
            inside &= index < shape;
            element += index * per_row;
            (rest, per_row) = (rest / len, per_row * shape);
        }
        let at = element as usize * itemsize;
        want.extend_from_slice(if inside { &array[at..at + itemsize] } else { &[0; 16][..itemsize] });
    }
    (Content::Grid(Arc::new(Grid { window: Some(window.clone()), ..Grid::clone(grid) })), want)
}

#[test]
fn a_window_in_one_block_of_whole_rows_is_a_range_of_the_blob() {
    let (content, array) = grid(4, &[6, 8], &[4, 8], &[2, 8], 1 << 20);
    let rows: [(&[u64], &[u64], bool); 6] = [
        (&[0, 0], &[2, 8], true),
        (&[3, 0], &[1, 8], true),
        (&[3, 2], &[1, 5], true),
        // Blocks of whole rows follow each other; so do these chunks.
        (&[1, 0], &[4, 8], true),
        (&[0, 2], &[2, 5], false),
        (&[5, 0], &[2, 8], false),
    ];
    for (start, shape, is_range) in rows {
        let (content, want) = window(&content, &array, &Window { start: start.to_vec(), shape: shape.to_vec() });
        let view = View::new(&content, &Plain).unwrap();
        assert_eq!(view.single_blob().is_some(), is_range, "{start:?} {shape:?}");
        assert_eq!(all(&content).unwrap(), want, "{start:?} {shape:?}");
    }
}

#[test]
fn a_window_that_starts_outside_the_array_is_an_error() {
    let (content, _) = grid(1, &[6, 8], &[4, 8], &[2, 8], 1 << 20);
    let Content::Grid(grid) = content else { unreachable!() };
    for (start, shape) in [(vec![6, 0], vec![1, 1]), (vec![0], vec![1]), (vec![0, 0], vec![1]), (vec![0], vec![1, 1])] {
        let window = Some(Window { start, shape });
        let grid = Grid { window, ..Grid::clone(&grid) };
        assert!(all(&Content::Grid(Arc::new(grid.clone()))).is_err(), "{grid:?}");
    }
}

/// A dimension of the array, of the chunk, of the block; the start and the length of the window.
fn dim() -> impl Strategy<Value = (u64, u64, u64, u64, u64)> {
    (1_u64..9, 1_u64..10, 1_u64..6, 0_u64..8, 1_u64..10)
        .prop_map(|(shape, chunk, block, start, len)| (shape, chunk, block, start % shape, len))
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(proptest::test_runner::FileFailurePersistence::Direct("tests/suite/regressions/view.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_range_of_any_window_is_what_a_naive_gather_gives(
        dims in prop::collection::vec(dim(), 1..5),
        itemsize in 1_u64..9,
        piece in 1_u64..400,
        parts in 2_u64..20,
        from in 0.0..1.0_f64,
        to in 0.0..1.0_f64,
    ) {
        let of = |f: fn(&(u64, u64, u64, u64, u64)) -> u64| dims.iter().map(f).collect::<Vec<u64>>();
        let sizes = (piece, Some((piece / parts).max(1)));
        let (content, array) = grid_of(itemsize, &of(|d| d.0), &of(|d| d.1), &of(|d| d.2), sizes);
        let (content, want) = window(&content, &array, &Window { start: of(|d| d.3), shape: of(|d| d.4) });
        let view = View::new(&content, &Plain).unwrap();
        let at = |f: f64| (f * want.len() as f64) as u64;
        let (from, to) = (at(from.min(to)), at(from.max(to)));
        let mut got = vec![0xAA; (to - from) as usize];
        view.read(from, &mut got, &Plain).unwrap();
        prop_assert_eq!(&*got, &want[from as usize..to as usize]);
        if let Some(fragments) = view.fragments() {
            prop_assert_eq!(&*fragments.get(from..to, &Plain).unwrap(), &want[from as usize..to as usize]);
        }

        // In two passes, as for a reader that has some of the pieces: the others, and the padding, come second.
        let mut got = vec![0xAA; (to - from) as usize];
        let has = |_: &BlobRef, piece: u64| piece.is_multiple_of(2);
        view.read_pieces(from, &mut got, &|blob, piece| has(blob, piece).then(|| Plain.piece(blob, piece).unwrap())).unwrap();
        view.read_rest(from, &mut got, &has, &Plain).unwrap();
        prop_assert_eq!(&*got, &want[from as usize..to as usize]);

        // Every piece that was read was announced.
        let mut announced = Vec::new();
        view.pieces(from..to, &mut |_, piece, _| { announced.push(piece); true }).unwrap();
        let peek = |blob: &BlobRef, piece| announced.contains(&piece).then(|| Plain.piece(blob, piece).unwrap());
        prop_assert!(ready(&view, from..to, &peek).is_some());
    }
}
