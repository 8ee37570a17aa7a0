//! Whether the components of a sparse tensor make one: what their elements have to be.
//!
//! Reference: section 8.
#![forbid(unsafe_code)]

use crate::bytes::wide;
use crate::error::{Error, Result};
use crate::format::{Content, Fetch};

use super::content::{Store, all, each, len};
use super::dtype::Element;
use super::footer::Dialect;
use super::manifest::{Part, Tensor};

/// The row pointers that are held in memory while columns are checked.
const MAX_POINTERS: u64 = 1 << 30;

fn wrong(why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(why, "sparse tensor")
}

/// The part for `role`: its content, its element type, how many elements it has.
fn component(store: &Store, index: usize, tensor: &Tensor<'_>, role: &'static str) -> Result<(Content, Element, u64)> {
    let place = Store::role(tensor, role).ok_or_else(|| wrong(format!("the component {role} is missing")))?;
    let element = tensor.parts.get(place).and_then(Part::element);
    let element = element.ok_or_else(|| wrong(format!("the type of {role} is not known")))?;
    let content = store.content(index, place)?;
    let bytes = len(&content)?;
    if !bytes.is_multiple_of(element.width()) {
        return Err(wrong(format!("{role} has {bytes} bytes, no whole number of {}", element.name)));
    }
    let count = bytes / element.width();
    Ok((content, element, count))
}

fn index_component(
    store: &Store,
    index: usize,
    tensor: &Tensor<'_>,
    role: &'static str,
) -> Result<(Content, Element, u64)> {
    let found = component(store, index, tensor, role)?;
    if found.1.is_integer() { Ok(found) } else { Err(wrong(format!("{role} does not hold integers"))) }
}

/// An unsigned number out of `bytes`, which are one element; `None` for a negative one.
fn number(bytes: &[u8], element: &Element) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let negative = element.is_signed() && bytes.last().is_some_and(|b| b & 0x80 != 0);
    (!negative).then(|| u64::from_le_bytes(wide))
}

/// Runs `run` over the numbers of an index component.
fn numbers(
    content: &Content,
    element: &Element,
    fetch: &dyn Fetch,
    run: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let width = element.width() as usize;
    // Pieces may end inside an element.
    let mut rest: Vec<u8> = Vec::new();
    each(content, fetch, &mut |chunk| {
        let mut one = |bytes: &[u8]| run(number(bytes, element).ok_or_else(|| wrong("a negative index"))?);
        let mut chunk = chunk;
        if !rest.is_empty() {
            let take = (width - rest.len()).min(chunk.len());
            let (head, tail) = chunk.split_at(take);
            rest.extend_from_slice(head);
            chunk = tail;
            if rest.len() == width {
                one(&rest)?;
                rest.clear();
            }
        }
        let whole = chunk.chunks_exact(width);
        rest.extend_from_slice(whole.remainder());
        whole.into_iter().try_for_each(one)
    })
}

/// Whether a tensor of a sparse layout is one.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(store: &Store, index: usize, fetch: &dyn Fetch) -> Result<()> {
    let tensor = store.manifest.tensor(index)?;
    let checked = if tensor.is_csr() {
        check_rows(store, index, &tensor, fetch)
    } else if tensor.is_coo() {
        check_cells(store, index, &tensor, fetch)
    } else {
        Ok(())
    };
    checked.map_err(|e| e.at(tensor.described_at).within(format_args!("{:?}", tensor.name)))
}

fn check_rows(store: &Store, index: usize, tensor: &Tensor<'_>, fetch: &dyn Fetch) -> Result<()> {
    let &[rows, columns] = tensor.shape.as_slice() else { return Err(wrong("sparse rows have rank 2")) };
    let (_, _, count) = component(store, index, tensor, "values")?;
    let (indices, element, stored) = index_component(store, index, tensor, "indices")?;
    let (pointers, pointer, ends) = index_component(store, index, tensor, "indptr")?;
    if stored != count {
        return Err(wrong(format!("{count} values and {stored} indices")));
    }
    if rows.checked_add(1) != Some(ends) {
        return Err(wrong(format!("{ends} row pointers for {rows} rows")));
    }
    let bytes = all(&pointers, fetch, MAX_POINTERS)?;
    let starts = bytes.chunks_exact(pointer.width() as usize).map(|b| number(b, &pointer));
    let starts: Vec<u64> = starts.collect::<Option<_>>().ok_or_else(|| wrong("a negative row pointer"))?;
    if starts.first() != Some(&0) || starts.last() != Some(&count) || !starts.is_sorted() {
        return Err(wrong("row pointers do not go from 0 up to the number of values"));
    }
    let ascending = store.manifest.dialect == Dialect::V2;
    let (mut at, mut row, mut last) = (0_u64, 1_usize, None);
    numbers(&indices, &element, fetch, &mut |column| {
        while starts.get(row).is_some_and(|&end| end <= at) {
            row += 1;
            last = None;
        }
        if column >= columns {
            return Err(wrong(format!("column {column} of {columns}")));
        }
        if ascending && last.is_some_and(|last| column <= last) {
            return Err(wrong(format!("the columns of row {} do not ascend", row - 1)));
        }
        last = Some(column);
        at += 1;
        Ok(())
    })
}

fn check_cells(store: &Store, index: usize, tensor: &Tensor<'_>, fetch: &dyn Fetch) -> Result<()> {
    let (_, _, count) = component(store, index, tensor, "values")?;
    let (coords, element, stored) = index_component(store, index, tensor, "coords")?;
    let rank = wide(tensor.shape.len());
    if rank.checked_mul(count) != Some(stored) {
        return Err(wrong(format!("{stored} coordinates for {count} values of rank {rank}")));
    }
    // In dialect 2 no cell may come twice: cells are counted out in C order and sorted.
    let unique = store.manifest.dialect == Dialect::V2 && count <= MAX_POINTERS / 8;
    let mut cells = if unique { vec![0_u64; count as usize] } else { Vec::new() };
    let mut at = 0_u64;
    numbers(&coords, &element, fetch, &mut |coordinate| {
        let (axis, cell) = (at / count.max(1), at % count.max(1));
        let extent = tensor.shape.get(axis as usize).copied().unwrap_or(0);
        if coordinate >= extent {
            return Err(wrong(format!("coordinate {coordinate} of {extent} in dimension {axis}")));
        }
        if let Some(cell) = cells.get_mut(cell as usize) {
            *cell = cell.wrapping_mul(extent).wrapping_add(coordinate);
        }
        at += 1;
        Ok(())
    })?;
    cells.sort_unstable();
    if cells.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
        return Err(wrong("two values name the same cell"));
    }
    Ok(())
}
