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
