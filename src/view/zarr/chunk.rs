//! The chunks of an array: their grid, and each as a view over the pieces of the array.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Kind, Result};
use crate::format::{Array, Content, File, Grid, NamedArray, Tiles, Window};

use super::RANK;
use super::chunk_shape::chunk_shape;
use super::data_type::DataType;

/// Maximum number of chunks and of the directories that contain them.
const NODES: u64 = 1 << 62;

/// The chunks of an array.
#[derive(Debug)]
pub struct Chunks {
    array: Array,
    data_type: DataType,
    /// Elements of a chunk per dimension; none is 0.
    sizes: Vec<u64>,
    /// Chunks per dimension; a single 0 for an array without elements.
    sides: Vec<u64>,
    /// Bytes that the array occupies in the container.
    stored: u64,
}

impl Chunks {
    /// Divides `named` into chunks.
    ///
    /// # Errors
    /// The reason why Zarr cannot have the array.
    pub fn new(named: &NamedArray) -> Result<Self, String> {
        let NamedArray { array, type_name, tiles, stored, .. } = named;
        let Some(data_type) = DataType::of(&array.descr, type_name.as_deref()) else {
            let name = type_name.as_deref().unwrap_or(array.descr.trim_matches('\''));
            return Err(format!("Zarr has no data type for {name}"));
        };
        let rank = array.shape.len();
        if rank > RANK {
            return Err(format!("{rank} dimensions, and readers of Zarr have {RANK}"));
        }
        let sizes = chunk_shape(array, tiles);
        let sides: Vec<u64> = array.shape.iter().zip(&sizes).map(|(&len, &size)| len.div_ceil(size)).collect();
        let sides = if sides.contains(&0) { vec![0] } else { sides };
        let nodes = sides.iter().try_fold((1_u64, 0_u64), |(level, sum), &side| {
            let level = level.checked_mul(side)?;
            Some((level, sum.checked_add(level).filter(|&sum| sum <= NODES)?))
        });
        if nodes.is_none() || array.byte_len().is_none() {
            return Err("it has too many chunks".to_owned());
        }
        Ok(Self { array: array.clone(), data_type, sizes, sides, stored: *stored })
    }

    /// Chunks per dimension; empty for a scalar, which is one chunk, and a single 0 for an array without elements.
    pub fn sides(&self) -> &[u64] {
        &self.sides
    }

    /// Bytes of a chunk.
    pub fn byte_len(&self) -> u64 {
        self.shape().byte_len().unwrap_or(0)
    }

    /// Bytes of a chunk in the container, on average.
    pub fn stored(&self) -> u64 {
        self.sides.iter().fold(self.stored, |bytes, &side| bytes.checked_div(side).unwrap_or(0))
    }

    pub(super) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The name of the element type, if only some readers have it: see [`super::array`].
    pub fn uncommon(&self) -> Option<&Value> {
        Some(&self.data_type.name).filter(|_| !self.data_type.is_common)
    }

    pub(super) fn array(&self) -> &Array {
        &self.array
    }

    /// Elements of a chunk per dimension.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    fn shape(&self) -> Array {
        Array { shape: self.sizes.clone(), ..self.array.clone() }
    }

    /// The file of chunk `number`, counted in C order of the grid, of the array in `file`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is no such chunk.
    pub fn file(&self, number: u64, file: &File) -> Result<File> {
        let none = || Error::new(Kind::NotFound, "chunk");
        let mut start = vec![0; self.sides.len()];
        let mut left = number;
        for ((start, &side), &size) in start.iter_mut().zip(&self.sides).zip(&self.sizes).rev() {
            *start = left.checked_rem(side).and_then(|at| at.checked_mul(size)).ok_or_else(none)?;
            left = left.checked_div(side).ok_or_else(none)?;
        }
        if left > 0 {
            return Err(none());
        }
        let content = self.content(start, &file.content).ok_or_else(none)?;
        Ok(File::new(content).stored(self.stored()).typed(Some(self.shape())).read_whole())
    }

    /// The chunk with its first element at the index `start`.
    fn content(&self, start: Vec<u64>, content: &Content) -> Option<Content> {
        if let Some(grid) = Tiles::grid(content, &self.array) {
            let window = Some(Window { start, shape: self.sizes.clone() });
            return Some(Content::Grid(Arc::new(Grid { window, ..Grid::clone(grid) })));
        }
        // Of an array in C order, a chunk is one range: see `chunk_shape`.
        let (mut at, mut valid) = (0_u64, self.array.itemsize);
        for ((&start, &size), &len) in start.iter().zip(&self.sizes).zip(&self.array.shape) {
            at = at.checked_mul(len)?.checked_add(start)?;
            valid = valid.checked_mul(size.min(len.checked_sub(start)?))?;
        }
        let at = at.checked_mul(self.array.itemsize)?;
        let inside = content.clone().slice(at..at.checked_add(valid)?);
        Some(match self.byte_len().checked_sub(valid)? {
            0 => inside,
            rest => Content::Join([inside, Content::Zeros(rest)].into()),
        })
    }
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests {
    use super::*;
    use crate::bytes::to_u64;
    use crate::format::testing::{Memory, Plain};
    use crate::view::View;

    fn named(descr: &str, itemsize: u64, shape: &[u64]) -> NamedArray {
        let array = Array { descr: format!("'{descr}'"), itemsize, shape: shape.to_vec() };
        let (name, type_name, dimensions) = (b"data".to_vec(), None, None);
        NamedArray { name, array, type_name, tiles: Tiles::default(), stored: 1000, dimensions }
    }

    fn blob(bytes: &[u8], piece: u64) -> crate::format::BlobRef {
        Memory::new(bytes.to_vec(), piece).blob().0
    }

    /// All numbers of `bounds`, the last the fastest.
    fn indices(bounds: &[u64]) -> Vec<Vec<u64>> {
        bounds.iter().fold(vec![Vec::new()], |all, &bound| {
            all.iter().flat_map(|index| (0..bound).map(|at| [&index[..], &[at]].concat())).collect()
        })
    }

    /// Demands that each chunk of an array of `u2` has its elements, and zeros beyond the edges.
    fn demand(shape: &[u64], sizes: &[u64], content: impl Fn(&[u8]) -> Content) {
        let number = |index: &[u64]| index.iter().zip(shape).fold(0, |number, (at, len)| number * len + at);
        let element = |index: &[u64]| (number(index) as u16 + 1).to_le_bytes();
        let all: Vec<u8> = indices(shape).iter().flat_map(|index| element(index)).collect();
        let file = File::new(content(&all));
        let chunks = Chunks::new(&named("<u2", 2, shape)).unwrap();
        let sides: Vec<u64> = shape.iter().zip(sizes).map(|(&len, &size)| len.div_ceil(size)).collect();
        let chunks = Chunks { sizes: sizes.to_vec(), sides: sides.clone(), ..chunks };
        for (number, place) in indices(&sides).iter().enumerate() {
            let want: Vec<u8> = indices(sizes)
                .iter()
                .flat_map(|within| {
                    let index: Vec<u64> = (0..shape.len()).map(|d| place[d] * sizes[d] + within[d]).collect();
                    if index.iter().zip(shape).all(|(at, len)| at < len) { element(&index) } else { [0; 2] }
                })
                .collect();
            let chunk = chunks.file(to_u64(number), &file).unwrap();
            let view = View::new(&chunk.content, &Plain).unwrap();
            let mut got = vec![0xEE; want.len()];
            assert_eq!((view.len(), chunks.byte_len()), (to_u64(want.len()), to_u64(want.len())));
            view.read(0, &mut got, &Plain).unwrap();
            assert_eq!(got, want, "chunk {number} of {sizes:?} of {shape:?}");
        }
        let beyond = chunks.file(sides.iter().product(), &file).unwrap_err();
        assert!(matches!(beyond.kind(), Kind::NotFound), "{beyond}");
    }

    #[test]
    fn a_chunk_of_an_array_in_c_order_is_one_range_with_zeros_beyond_the_edge() {
        let plain = |bytes: &[u8]| Content::Blob(blob(bytes, 7));
        for (shape, sizes) in [
            (&[][..], &[][..]),
            (&[5], &[5]),
            (&[5], &[2]),
            (&[5, 4], &[2, 4]),
            (&[6, 4], &[3, 4]),
            (&[2, 3, 5], &[1, 1, 2]),
            (&[2, 3, 5], &[1, 2, 5]),
        ] {
            demand(shape, sizes, plain);
        }
    }

    #[test]
    fn a_chunk_of_an_array_in_blocks_is_a_window() {
        let shape = [5_u64, 4];
        let blocks = |bytes: &[u8]| {
            // In blocks of 2 x 3, complete at the edges.
            let element = |row: u64, column: u64| {
                let at = ((row * shape[1] + column) * 2) as usize;
                if row < shape[0] && column < shape[1] { [bytes[at], bytes[at + 1]] } else { [0xEE; 2] }
            };
            let within = |block: Vec<u64>| {
                indices(&[2, 3]).into_iter().flat_map(move |at| element(block[0] * 2 + at[0], block[1] * 3 + at[1]))
            };
            let stored: Vec<u8> = indices(&[3, 2]).into_iter().flat_map(within).collect();
            let (chunk, block) = (vec![2, 3], vec![2, 3]);
            let (blob, shape) = (blob(&stored, 12), shape.to_vec());
            Content::Grid(Arc::new(Grid { blob, itemsize: 2, shape, chunk, block, window: None }))
        };
        for sizes in [[2, 3], [5, 4], [3, 3], [1, 4]] {
            demand(&shape, &sizes, blocks);
        }
    }

    #[test]
    fn the_chunks_of_an_array_are_counted_along_each_dimension() {
        let of = |shape: &[u64]| {
            let chunks = Chunks::new(&named("<f4", 4, shape)).unwrap();
            (chunks.sizes().to_vec(), chunks.sides().to_vec(), chunks.byte_len(), chunks.stored())
        };
        assert_eq!(of(&[]), (vec![], vec![], 4, 1000));
        assert_eq!(of(&[3, 5]), (vec![3, 5], vec![1, 1], 60, 1000));
        assert_eq!(of(&[4 << 20]), (vec![1 << 19], vec![8], 2 << 20, 125));
        assert_eq!(of(&[100, 1 << 17]), (vec![4, 1 << 17], vec![25, 1], 2 << 20, 40));
        assert_eq!(of(&[3, 0]), (vec![3, 1], vec![0], 12, 0));
    }

    #[test]
    fn an_array_that_zarr_cannot_have_is_refused_with_the_reason() {
        let refused = |named: &NamedArray| Chunks::new(named).unwrap_err();
        assert_eq!(refused(&named("<f16", 16, &[2])), "Zarr has no data type for <f16");
        let typed = NamedArray { type_name: Some("f8_unknown".to_owned()), ..named("[('a', '>f4')]", 1, &[2]) };
        assert_eq!(refused(&typed), "Zarr has no data type for f8_unknown");
        assert!(Chunks::new(&named("<f4", 4, &[1; 32])).is_ok());
        assert_eq!(refused(&named("<f4", 4, &[1; 33])), "33 dimensions, and readers of Zarr have 32");
        assert_eq!(refused(&named("<f4", 4, &[1 << 32, 1 << 32])), "it has too many chunks");
        let common = |descr, itemsize, type_name: Option<&str>| {
            let named = NamedArray { type_name: type_name.map(str::to_owned), ..named(descr, itemsize, &[2]) };
            Chunks::new(&named).unwrap().uncommon().cloned()
        };
        assert_eq!(common("<f4", 4, None), None);
        assert_eq!(common("<V2", 2, Some("bf16")), Some("bfloat16".into()));
    }
}
