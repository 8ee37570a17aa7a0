//! An array in a file, readable by ranges and by boxes.
//!
//! A box is read as a window of the grid in which the elements are stored, so that each piece that it touches is
//! fetched once; without a grid, run by run. Elements at a stride are read as a box that is thinned out, unless that
//! would touch more pieces or much more memory.
//!
//! Limits: [`THINNED`] bytes besides the caller's buffer.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

#[cfg(feature = "serve")]
use super::Archive;
use super::{File, contained};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::format::{self, Content, Grid, Tiles, Window};
use crate::gpu::{DeviceBuffer, ForeignStream};
use crate::limits::zeroed;
use crate::text;
use crate::view::{GridReader, zarr};

/// Maximum number of dimensions of a box.
const RANK: usize = 64;
/// Maximum bytes of a box that is read to be thinned out.
const THINNED: u64 = 4 << 20;

/// Elements along one dimension: `count` of them, the first at `start`, each `step` after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The index of the first one.
    pub start: u64,
    /// Their number.
    pub count: u64,
    /// The distance from one to the next; at least 1.
    pub step: u64,
}

impl Steps {
    /// From the first to past the last one.
    fn span(&self) -> Option<u64> {
        self.count.checked_sub(1)?.checked_mul(self.step)?.checked_add(1)
    }

    /// The first `count` of them, and the rest.
    fn split(self, count: u64) -> (Self, Self) {
        let start = self.start.saturating_add(count.saturating_mul(self.step));
        (Self { count, ..self }, Self { start, count: self.count.saturating_sub(count), ..self })
    }
}

/// The array in a file: element type, shape, and the elements in C order.
#[derive(Debug, Clone)]
pub struct Array {
    file: File,
    described: format::Array,
    /// Offset of the first element in the file.
    start: u64,
    /// How its elements are stored, if by blocks or in one blob; found when first needed.
    grid: Arc<OnceLock<Option<Grid>>>,
}

impl Array {
    pub(super) fn new(file: File, described: format::Array, start: u64) -> Self {
        Self { file, described, start, grid: Arc::default() }
    }

    /// The element type as NumPy writes it in `descr`: `<f4`, or a list of fields for a structured type.
    pub fn dtype(&self) -> &str {
        self.described.descr.trim_matches('\'')
    }

    /// The name of the element type in the container, if the container names it: `bf16` for elements that NumPy has
    /// only as `<V2`.
    pub fn type_name(&self) -> Option<&str> {
        self.file.attribute("dtype")
    }

    /// The size of an element in bytes.
    pub fn itemsize(&self) -> u64 {
        self.described.itemsize
    }

    /// The number of elements per dimension, slowest first; empty for a scalar.
    pub fn shape(&self) -> &[u64] {
        &self.described.shape
    }

    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.described.shape.iter().fold(1, |len, &n| len.saturating_mul(n))
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that its file takes in the container; 0 if it shares all of them with others.
    pub fn stored(&self) -> u64 {
        self.file.stored()
    }

    /// The container's attributes of the array: metalayers of Blosc2, attributes of zTensor, the pipeline and the error
    /// bound of FZM. A JSON object.
    ///
    /// # Errors
    /// Fails if the container is broken there.
    pub fn attributes(&self) -> Result<Value> {
        contained("attributes", || self.file.described().attributes().map(Value::Object))
    }

    /// A good shape of the parts to read it in, slowest dimension first: 1 to 4 MiB that touch few of the pieces that
    /// are decoded at a time. The chunks of `data.zarr` have this shape.
    pub fn chunks(&self) -> Vec<u64> {
        zarr::chunk_shape(&self.described, &self.tiles())
    }

    fn tiles(&self) -> Tiles {
        let content = self.file.content();
        contained("array", || Ok(Tiles::of(content, &self.described))).unwrap_or_default()
    }

    /// Reads the elements `range`, counted in C order (last dimension fastest): `3..5` is the fourth and the fifth
    /// element.
    ///
    /// # Errors
    /// As [`Array::read_into`]; [`Kind::TooLarge`] if allocation fails.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let count = range.end.saturating_sub(range.start);
        self.offset(range.start, count)?;
        let mut bytes = zeroed(count.saturating_mul(self.itemsize()), "elements")?;
        self.read_into(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `buffer` with elements, starting at element `first` in C order.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the buffer's length is not a multiple of the element size or the array ends before the buffer
    /// is full; otherwise as [`File::read_at`].
    pub fn read_into(&self, first: u64, buffer: &mut [u8]) -> Result<()> {
        let size = self.itemsize().max(1);
        let count = to_u64(buffer.len()) / size;
        if count * size != to_u64(buffer.len()) {
            return Err(usage(format!("the buffer of {} bytes does not hold whole elements of {size}", buffer.len())));
        }
        self.file.read_exact_at(self.offset(first, count)?, buffer)
    }

    /// Decodes the elements `range`, counted as for [`Array::read`], on the GPU and leaves them there:
    /// [`File::decode_to_device`].
    ///
    /// # Errors
    /// [`Kind::Usage`] if the array ends before the range; otherwise as [`File::decode_to_device`].
    pub fn decode_to_device(&self, range: Range<u64>, stream: Option<ForeignStream>) -> Result<DeviceBuffer> {
        let count = range.end.saturating_sub(range.start);
        let start = self.offset(range.start, count)?;
        self.file.decode_to_device(start..start.saturating_add(count.saturating_mul(self.itemsize())), stream)
    }

    #[cfg(feature = "serve")]
    pub(super) fn described(&self) -> &format::Array {
        &self.described
    }

    #[cfg(feature = "serve")]
    pub(super) fn archive(&self) -> &Archive {
        self.file.archive()
    }

    /// The content of its file from the first element on.
    #[cfg(feature = "serve")]
    pub(super) fn elements(&self) -> Content {
        let content = self.file.content().clone();
        match self.start {
            0 => content,
            start => Content::Slice(Arc::new(content), start..self.file.len()),
        }
    }

    /// The file offset of element `first`; fails if fewer than `count` elements follow it.
    fn offset(&self, first: u64, count: u64) -> Result<u64> {
        let fits = first.checked_add(count).is_some_and(|end| end <= self.len());
        let at = first.checked_mul(self.itemsize()).and_then(|at| at.checked_add(self.start));
        at.filter(|_| fits).ok_or_else(|| {
            usage(format!("{count} elements from number {first} on, of an array of {} elements", self.len()))
        })
    }
}

/// Boxes.
impl Array {
    /// Fills `buffer` with the elements that `steps` choose, one [`Steps`] per dimension, in C order. Decodes only the
    /// pieces that contain some of them, or the parts of those pieces.
    ///
    /// ```
    /// # use fzmfs::{Archive, Options, Steps};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/blosc2/o271_nd_2d.b2nd");
    /// # let array = Archive::open(path, &Options::default())?.file("data.npy")?.array().unwrap();
    /// // As array[2:6, 10:20:5] in NumPy.
    /// let steps = [Steps { start: 2, count: 4, step: 1 }, Steps { start: 10, count: 2, step: 5 }];
    /// let mut buffer = vec![0; 4 * 2 * array.itemsize() as usize];
    /// array.read_steps(&steps, &mut buffer)?;
    /// # Ok::<(), fzmfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::Usage`] if there is not one for each dimension, if they leave the array, or if the buffer has another
    /// length than the elements; otherwise as [`File::read_at`].
    pub fn read_steps(&self, steps: &[Steps], buffer: &mut [u8]) -> Result<()> {
        let shape = self.shape();
        if steps.len() != shape.len() || steps.len() > RANK {
            return Err(usage(format!("{} dimensions are given, and the array has {}", steps.len(), shape.len())));
        }
        let fits = |(steps, &len): (&Steps, &u64)| {
            let end = steps.span().and_then(|span| steps.start.checked_add(span));
            steps.step > 0 && (steps.count == 0 || end.is_some_and(|end| end <= len))
        };
        if !steps.iter().zip(shape).all(fits) {
            return Err(usage(format!("{steps:?} leave an array of the shape {}", text::shape(shape))));
        }
        let bytes = steps.iter().try_fold(self.itemsize(), |n, steps| n.checked_mul(steps.count));
        if bytes != Some(to_u64(buffer.len())) {
            return Err(usage(format!("the buffer of {} bytes is not that of the elements", buffer.len())));
        }
        if buffer.is_empty() {
            return Ok(());
        }
        self.read_chosen(&mut steps.to_vec(), &self.tile(), buffer)
    }

    /// Elements per dimension that are decoded together.
    fn tile(&self) -> Vec<u64> {
        match self.tiles() {
            Tiles::Grid { block, .. } => block,
            tiles @ Tiles::Flat(_) => zarr::chunk_shape(&self.described, &tiles),
        }
    }

    /// Reads `steps`, which are not empty, into `buffer`, which has their length.
    fn read_chosen(&self, steps: &mut [Steps], tile: &[u64], buffer: &mut [u8]) -> Result<()> {
        for steps in steps.iter_mut().filter(|steps| steps.count == 1) {
            steps.step = 1;
        }
        if steps.iter().all(|steps| steps.step == 1) {
            return self.read_box(steps, buffer);
        }
        let spans: Option<Vec<u64>> = steps.iter().map(Steps::span).collect();
        let covered = spans.as_ref().and_then(|spans| spans.iter().try_fold(self.itemsize(), |n, &s| n.checked_mul(s)));
        let is_dense = steps.iter().zip(tile).all(|(steps, &tile)| steps.step <= tile);
        if let (Some(spans), Some(covered)) = (spans, covered.filter(|&n| is_dense && n <= THINNED)) {
            let boxed: Vec<Steps> = steps.iter().zip(&spans).map(|(s, &count)| Steps { count, ..*s }).collect();
            let mut bytes = zeroed(covered, "elements")?;
            self.read_box(&boxed, &mut bytes)?;
            return thin_out(&bytes, &spans, steps, to_usize(self.itemsize(), "element")?, buffer);
        }
        // The halves of the slowest dimension are the halves of the buffer.
        let Some(d) = steps.iter().position(|steps| steps.count > 1) else { return Ok(()) };
        let Some(whole) = steps.get(d).copied() else { return Ok(()) };
        let (first, second) = whole.split(whole.count / 2);
        let middle = to_u64(buffer.len()) / whole.count * first.count;
        let (head, tail) = buffer.split_at_mut(to_usize(middle, "elements")?);
        for (half, buffer) in [(first, head), (second, tail)] {
            let mut steps = steps.to_vec();
            if let Some(place) = steps.get_mut(d) {
                *place = half;
            }
            self.read_chosen(&mut steps, tile, buffer)?;
        }
        Ok(())
    }

    /// Reads `steps`, which are not empty, as if each were 1.
    fn read_box(&self, steps: &[Steps], buffer: &mut [u8]) -> Result<()> {
        // Complete dimensions at the end make runs of elements that follow each other.
        let (mut run, mut outer) = (1, steps.len());
        for (steps, &len) in steps.iter().zip(self.shape()).rev() {
            outer -= 1;
            run *= steps.count;
            if steps.count != len {
                break;
            }
        }
        let first = self.shape().iter().zip(steps).fold(0, |at, (&len, steps)| at * len + steps.start);
        if steps.iter().take(outer).all(|steps| steps.count == 1) {
            return self.read_into(first, buffer);
        }
        if let Some(grid) = self.grid.get_or_init(|| self.find_grid()) {
            let start = steps.iter().map(|steps| steps.start).collect();
            let shape = steps.iter().map(|steps| steps.count).collect();
            let grid = Grid { window: Some(Window { start, shape }), ..grid.clone() };
            return self.file.read_content(&Content::Grid(Arc::new(grid)), buffer);
        }
        let bytes = to_usize(run * self.itemsize(), "elements")?;
        let mut index = vec![0; outer];
        for run in buffer.chunks_exact_mut(bytes) {
            let at = (0..steps.len())
                .fold(0, |at, d| at * self.described.shape[d] + steps[d].start + index.get(d).copied().unwrap_or(0));
            self.read_into(at, run)?;
            for d in (0..outer).rev() {
                index[d] += 1;
                if index[d] < steps[d].count {
                    break;
                }
                index[d] = 0;
            }
        }
        Ok(())
    }

    /// The blob and the blocks that hold the elements.
    fn find_grid(&self) -> Option<Grid> {
        let found = contained("array", || Ok(self.grid_of(self.file.content(), self.start))).ok()??;
        // A reader of it exists: the blob has all elements, and not too many dimensions.
        GridReader::new(&found).is_ok().then_some(found)
    }

    /// The same, in `content`, with its first element at `start`.
    fn grid_of(&self, content: &Content, start: u64) -> Option<Grid> {
        let array = &self.described;
        if start > 0 {
            // After the header of a .npy file.
            let Content::Join(parts) = content else { return None };
            return match &**parts {
                [Content::Bytes(header), content] if to_u64(header.len()) == start => self.grid_of(content, 0),
                _ => None,
            };
        }
        if let Some(grid) = Tiles::grid(content, array) {
            return Some(Grid::clone(grid)).filter(|grid| grid.window.is_none());
        }
        match content {
            Content::Blob(blob) => {
                let shape = array.shape.clone();
                let (chunk, block) = (shape.clone(), shape.clone());
                Some(Grid { blob: blob.clone(), itemsize: array.itemsize, shape, chunk, block, window: None })
            }
            Content::Slice(content, range) if range.start == 0 => self.grid_of(content, 0),
            Content::Deferred { make, .. } => self.grid_of(&make().ok()?, 0),
            _ => None,
        }
    }
}

/// Copies to `buffer` the elements `steps` of a box that begins with the first of them and spans `spans`.
fn thin_out(bytes: &[u8], spans: &[u64], steps: &[Steps], itemsize: usize, buffer: &mut [u8]) -> Result<()> {
    let (Some((last, outer)), Some(&row)) = (steps.split_last(), spans.last()) else { return Ok(()) };
    let (count, step) = (to_usize(last.count, "elements")?, to_usize(last.step, "elements")? * itemsize);
    let row = to_usize(row, "elements")? * itemsize;
    let mut index = vec![0_u64; outer.len()];
    for to in buffer.chunks_exact_mut(count * itemsize) {
        let at = outer.iter().zip(spans).zip(&index).fold(0, |at, ((steps, &span), &i)| at * span + i * steps.step);
        let at = to_usize(at, "elements")? * row;
        let from = bytes.get(at..at + row).unwrap_or_default();
        for (to, from) in to.chunks_exact_mut(itemsize).zip(from.chunks(step)) {
            to.copy_from_slice(from.get(..itemsize).unwrap_or_default());
        }
        for (index, steps) in index.iter_mut().zip(outer).rev() {
            *index += 1;
            if *index < steps.count {
                break;
            }
            *index = 0;
        }
    }
    Ok(())
}

fn usage(why: String) -> Error {
    Error::new(Kind::Usage(why.into()), "elements")
}
