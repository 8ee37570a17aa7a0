//! Validates the indices of a sparse tensor against its shape and values.
//!
//! Reference: section 8.
//!
//! Limits: one window per component in memory; 8 bytes per value of a coordinate list of dialect 2, charged to the
//! account.
//! Invariant: linear in the decoded components; O(n log n) in the cells that must be sorted.
#![forbid(unsafe_code)]

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::{Content, Fetch};

use super::content::{ContentPieces, TensorFile, len};
use super::dtype::TensorElement;
use super::footer::Dialect;
use super::manifest::{Component, Tensor};
use super::quoted::quoted;
use super::sort::{RUN, sorted_words};

/// Bytes of a cell number.
const WORD: u64 = 8;

fn wrong(why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(why, "sparse tensor")
}

/// The component with role `role`: its content, element type and number of elements.
fn component(
    store: &TensorFile,
    index: usize,
    tensor: &Tensor<'_>,
    role: &'static str,
) -> Result<(Content, TensorElement, u64)> {
    let place = TensorFile::role(tensor, role).ok_or_else(|| wrong(format!("the component {role} is missing")))?;
    let element = tensor.components.get(place).and_then(Component::element);
    let element = element.ok_or_else(|| wrong(format!("the element type of {role} is unknown")))?;
    let content = store.content(index, place)?;
    let bytes = len(&content)?;
    if !bytes.is_multiple_of(element.width()) {
        return Err(wrong(format!(
            "{role} has {bytes} bytes, which is not a multiple of the size of {}",
            element.name
        )));
    }
    let count = bytes / element.width();
    Ok((content, element, count))
}

fn index_component(
    store: &TensorFile,
    index: usize,
    tensor: &Tensor<'_>,
    role: &'static str,
) -> Result<(Content, TensorElement, u64)> {
    let found = component(store, index, tensor, role)?;
    if found.1.is_integer() { Ok(found) } else { Err(wrong(format!("{role} does not contain integers"))) }
}

/// Appends the integers of `width` bytes in `bytes` to `block`; if `signed`, stops at the first negative one.
fn convert(bytes: &[u8], width: usize, signed: bool, block: &mut Vec<u64>) {
    fn all<const W: usize>(bytes: &[u8], number: impl Fn([u8; W]) -> u64, block: &mut Vec<u64>) {
        block.extend(bytes.as_chunks::<W>().0.iter().map(|bytes| number(*bytes)));
    }
    match width {
        1 => all(bytes, |b: [u8; 1]| u8::from_le_bytes(b).into(), block),
        2 => all(bytes, |b: [u8; 2]| u16::from_le_bytes(b).into(), block),
        4 => all(bytes, |b: [u8; 4]| u32::from_le_bytes(b).into(), block),
        _ => all(bytes, u64::from_le_bytes, block),
    }
    if signed {
        let sign = 1_u64.checked_shl(u32::try_from(width * 8 - 1).unwrap_or(63)).unwrap_or(0);
        let end = block.iter().position(|n| n & sign != 0).unwrap_or(block.len());
        block.truncate(end);
    }
}

/// Numbers converted at a time.
const BLOCK: usize = 4096;

/// The numbers of an index component in order, through a window.
struct Numbers<'a> {
    chunks: ContentPieces<'a>,
    width: usize,
    signed: bool,
    /// Bytes read but not all converted yet; a piece may end inside an element.
    bytes: Vec<u8>,
    /// How many of `bytes` were converted.
    used: usize,
    block: Vec<u64>,
    at: usize,
}

impl<'a> Numbers<'a> {
    fn new(content: &'a Content, element: TensorElement, fetch: &'a dyn Fetch) -> Result<Self> {
        let width = to_usize(element.width(), "element")?;
        let chunks = ContentPieces::new(content, fetch)?;
        let signed = element.is_signed();
        Ok(Self { chunks, width, signed, bytes: Vec::new(), used: 0, block: Vec::new(), at: 0 })
    }

    /// The next number; `None` at the end.
    #[inline]
    fn next(&mut self) -> Result<Option<u64>> {
        if self.at == self.block.len() && !self.fill()? {
            return Ok(None);
        }
        self.at += 1;
        Ok(self.block.get(self.at - 1).copied())
    }

    /// The next number, a coordinate in dimension `axis`, which must be less than `extent`.
    fn coordinate(&mut self, axis: usize, extent: u64) -> Result<u64> {
        match self.next()? {
            Some(coordinate) if coordinate < extent => Ok(coordinate),
            Some(coordinate) => {
                Err(wrong(format!("coordinate {coordinate} exceeds the extent {extent} of dimension {axis}")))
            }
            None => Err(wrong("there are fewer coordinates than values")),
        }
    }

    /// Converts the next block; returns false at the end.
    fn fill(&mut self) -> Result<bool> {
        while self.bytes.len() - self.used < self.width {
            let Some(more) = self.chunks.next()? else { return Ok(false) };
            self.bytes.drain(..self.used);
            self.used = 0;
            self.bytes.extend_from_slice(more);
        }
        let rest = self.bytes.get(self.used..).unwrap_or_default();
        let count = (rest.len() / self.width).min(BLOCK);
        let taken = rest.get(..count * self.width).unwrap_or_default();
        self.block.clear();
        self.at = 0;
        convert(taken, self.width, self.signed, &mut self.block);
        self.used += taken.len();
        if self.block.len() < count {
            return Err(wrong("an index is negative"));
        }
        Ok(true)
    }
}

/// Validates a tensor of a sparse layout.
///
/// # Errors
/// Fails if it is not consistent.
pub(super) fn check(store: &TensorFile, index: usize, fetch: &dyn Fetch) -> Result<()> {
    let tensor = store.manifest.tensor(index)?;
    let checked = if tensor.is_csr() {
        check_rows(store, index, &tensor, fetch)
    } else if tensor.is_coo() {
        check_cells(store, index, &tensor, fetch)
    } else {
        Ok(())
    };
    checked.map_err(|e| e.at(tensor.described_at).within(quoted(&tensor.name)))
}

/// Checks compressed rows: reads pointers and column indices together, each through a window.
fn check_rows(store: &TensorFile, index: usize, tensor: &Tensor<'_>, fetch: &dyn Fetch) -> Result<()> {
    let &[rows, columns] = tensor.shape.as_slice() else { return Err(wrong("sparse rows must have rank 2")) };
    let (_, _, count) = component(store, index, tensor, "values")?;
    let (indices, element, stored) = index_component(store, index, tensor, "indices")?;
    let (pointers, pointer, ends) = index_component(store, index, tensor, "indptr")?;
    if stored != count {
        return Err(wrong(format!("{count} values and {stored} indices")));
    }
    if rows.checked_add(1) != Some(ends) {
        return Err(wrong(format!("{ends} row pointers for {rows} rows")));
    }
    let bounds = || wrong("row pointers do not go from 0 up to the number of values");
    let mut pointers = Numbers::new(&pointers, pointer, fetch)?;
    let mut indices = Numbers::new(&indices, element, fetch)?;
    let ascending = store.manifest.dialect == Dialect::V2;
    if pointers.next()? != Some(0) {
        return Err(bounds());
    }
    let mut at = 0_u64;
    for row in 0..rows {
        let end = pointers.next()?.filter(|end| (at..=count).contains(end)).ok_or_else(bounds)?;
        let mut last = None;
        while at < end {
            let column = indices.next()?.ok_or_else(|| wrong("there are fewer indices than values"))?;
            if column >= columns {
                return Err(wrong(format!("column {column} exceeds the {columns} columns of the shape")));
            }
            if ascending && last.is_some_and(|last| column <= last) {
                return Err(wrong(format!("the columns of row {row} are not ascending")));
            }
            last = Some(column);
            at += 1;
        }
    }
    if at == count { Ok(()) } else { Err(bounds()) }
}

/// Checks coordinates, dimension by dimension. Dialect 2 forbids repeated cells: cell numbers in C order are computed
/// in a buffer of the account and sorted.
fn check_cells(store: &TensorFile, index: usize, tensor: &Tensor<'_>, fetch: &dyn Fetch) -> Result<()> {
    let (_, _, count) = component(store, index, tensor, "values")?;
    let (coords, element, stored) = index_component(store, index, tensor, "coords")?;
    let rank = to_u64(tensor.shape.len());
    if rank.checked_mul(count) != Some(stored) {
        return Err(wrong(format!("{stored} coordinates for {count} values of rank {rank}")));
    }
    let unique = store.manifest.dialect == Dialect::V2;
    if let Some(cells) = tensor.count().filter(|&cells| unique && cells < count) {
        return Err(wrong(format!("{count} values in {cells} cells")));
    }
    let mut coords = Numbers::new(&coords, element, fetch)?;
    if !unique {
        return tensor
            .shape
            .iter()
            .enumerate()
            .try_for_each(|(axis, &extent)| (0..count).try_for_each(|_| coords.coordinate(axis, extent).map(drop)));
    }
    let mut cells = store.options.account.buffer(count.saturating_mul(WORD), "cells of a sparse tensor")?;
    let mut in_order = true;
    for (axis, &extent) in tensor.shape.iter().enumerate() {
        let mut last = None;
        let mut at = 0;
        in_order = true;
        while at < cells.len() {
            let range = at..cells.len().min(at + RUN);
            for word in cells.get_mut(range.clone()).unwrap_or_default().as_chunks_mut::<8>().0 {
                let coordinate = coords.coordinate(axis, extent)?;
                // Every coordinate is inside the shape, and the number of its cells fits.
                let cell = u64::from_le_bytes(*word).wrapping_mul(extent).wrapping_add(coordinate);
                *word = cell.to_le_bytes();
                in_order &= last.is_none_or(|last| last < cell);
                last = Some(cell);
            }
            cells.release(range.clone());
            at = range.end;
        }
    }
    if in_order {
        return Ok(());
    }
    let mut last = None;
    sorted_words(&mut cells, RUN, &mut |cell| {
        if last.replace(cell) == Some(cell) { Err(wrong("two values have the same coordinates")) } else { Ok(()) }
    })
}
