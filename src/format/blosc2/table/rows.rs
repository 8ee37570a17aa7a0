//! The rows of a leaf: the elements of its array along the first dimension.
//!
//! Limits: the pieces that a request decodes for its rows are counted.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::account::decode_budget;
use crate::bytes::{FileOffset, to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::nested::Decoded;
use crate::format::{Layout, Options};
use crate::source::Source;

use super::super::frames::OpenFrame;

/// A dimension of the array: its length, and that of a chunk and of a block in it.
#[derive(Debug, Clone, Copy)]
struct Dim {
    len: u64,
    chunk: u64,
    block: u64,
    /// Bytes from one chunk, block, and item to the next.
    strides: [u64; 3],
}

/// The rows of a leaf.
pub(super) struct Rows {
    pub(super) frame: Arc<OpenFrame>,
    /// The decoded chunks.
    source: Arc<Source>,
    layout: Layout,
    /// Slowest first; at least one. Faster ones that are never divided are part of the item.
    dims: Vec<Dim>,
    item_len: u64,
    /// Bytes of a row.
    pub(super) row_len: u64,
}

/// The piece that was read last, so that reading on in it is not counted again.
#[derive(Debug, Default)]
pub(super) struct Touched(Option<u64>);

/// The decoded bytes of all chunks of `frame`.
pub(super) fn decoded(frame: &OpenFrame, options: &Options) -> Result<Arc<Source>> {
    let source = &frame.frame.source;
    let decoded = Decoded::new(vec![Arc::clone(source)], frame.decoded.blob.clone(), options)?;
    Ok(Source::of(source.path(), decoded))
}

impl Rows {
    /// Prepares to read the array in `frame`.
    ///
    /// # Errors
    /// Fails if it has none, or one without dimensions.
    pub(super) fn open(frame: Arc<OpenFrame>, options: &Options) -> Result<Self> {
        let no_rows = || Error::corrupt("not an array with rows", "b2nd");
        let array = frame.frame.array.clone()?.ok_or_else(no_rows)?;
        let typesize = u64::from(frame.frame.header.typesize);
        let sides = array.shape.iter().zip(&array.chunk).zip(&array.block);
        let mut dims: Vec<_> = sides
            .map(|((&len, &chunk), &block)| Dim { len, chunk: chunk.into(), block: block.into(), strides: [0; 3] })
            .collect();
        let row_len = dims.iter().skip(1).try_fold(typesize, |n, dim| n.checked_mul(dim.len));
        let too_wide = || Error::corrupt("a row exceeds 64 bits", "shape");
        let row_len = row_len.ok_or_else(too_wide)?;
        let mut item_len = typesize;
        while let [_, .., last] = dims.as_slice()
            && last.len == last.chunk
            && last.len == last.block
        {
            item_len *= last.len;
            dims.pop();
        }
        if dims.is_empty() {
            return Err(no_rows());
        }
        let mut stride = item_len;
        for level in [2, 1, 0] {
            for dim in dims.iter_mut().rev() {
                dim.strides[level] = stride;
                let parts = match level {
                    2 => dim.block,
                    1 => dim.chunk.div_ceil(dim.block.max(1)),
                    _ => dim.len.div_ceil(dim.chunk.max(1)),
                };
                stride = stride.checked_mul(parts).ok_or_else(too_wide)?;
            }
        }
        let layout = decode_budget::once(|| frame.decoded.blob.layout())?;
        let source = decoded(&frame, options)?;
        Ok(Self { frame, source, layout, dims, item_len, row_len })
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> u64 {
        self.dims.first().map_or(0, |dim| dim.len)
    }

    /// Fills `dst` with the rows in `range`.
    ///
    /// # Errors
    /// Fails if there are fewer rows, or if they cannot be decoded.
    pub(super) fn read(&self, range: Range<u64>, dst: &mut [u8], touched: &mut Touched) -> Result<()> {
        if range.end > self.count() || range.start > range.end {
            let why = format!("row {} is needed, the array has {}", range.end, self.count());
            return Err(Error::corrupt(why, "shape"));
        }
        let (Some((last, outer)), mut rest) = (self.dims.split_last(), dst) else { return Ok(()) };
        if outer.is_empty() {
            return self.read_runs(last, range, 0, rest, touched).map(drop);
        }
        // Counts the indexes of all dimensions but the last, as an odometer does.
        let mut index = vec![0; outer.len()];
        index[0] = range.start;
        while index[0] < range.end && !rest.is_empty() {
            let base = outer.iter().zip(&index).map(|(dim, &i)| dim.offset(i)).sum();
            rest = self.read_runs(last, 0..last.len, base, rest, touched)?;
            for d in (0..outer.len()).rev() {
                index[d] += 1;
                if d == 0 || index[d] < outer[d].len {
                    break;
                }
                index[d] = 0;
            }
        }
        Ok(())
    }

    /// Fills the start of `dst` with items along the last dimension; returns the rest of it.
    fn read_runs<'a>(
        &self,
        dim: &Dim,
        range: Range<u64>,
        base: u64,
        dst: &'a mut [u8],
        touched: &mut Touched,
    ) -> Result<&'a mut [u8]> {
        let (mut i, mut rest) = (range.start, dst);
        while i < range.end {
            let in_chunk = i % dim.chunk.max(1);
            let run = (dim.block - in_chunk % dim.block).min(dim.chunk - in_chunk).min(range.end - i);
            let len = to_usize(run * self.item_len, "row")?;
            let Some((head, tail)) = rest.split_at_mut_checked(len) else {
                return Err(Error::corrupt("longer than a row", "row"));
            };
            let at = base + dim.offset(i);
            self.count_piece(at, to_u64(len), touched)?;
            self.source.read(FileOffset(at), head, "row")?;
            rest = tail;
            i += run;
        }
        Ok(rest)
    }

    /// Counts the decoding of a piece that was not read last.
    fn count_piece(&self, at: u64, len: u64, Touched(last): &mut Touched) -> Result<()> {
        let piece = self.layout.locate(at);
        if last.replace(piece) == Some(piece) {
            return Ok(());
        }
        let range = self.layout.range(piece);
        decode_budget::charge((range.end - range.start).max(len))
    }
}

impl Dim {
    /// Bytes before the item with this index.
    fn offset(&self, index: u64) -> u64 {
        let in_chunk = index % self.chunk.max(1);
        let parts = [index / self.chunk.max(1), in_chunk / self.block.max(1), in_chunk % self.block.max(1)];
        parts.iter().zip(self.strides).map(|(n, stride)| n * stride).sum()
    }
}
