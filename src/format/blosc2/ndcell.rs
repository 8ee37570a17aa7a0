//! NDCELL and NDMEAN: filters that store the items of a block cell by cell.
//!
//! Reference: sections 7.7 and 7.8. A block is divided into cells of equal sides, clipped at its upper edges. The
//! cells are stored in C order of their grid, the items of a cell in C order of its shape.
//!
//! Limits: a block can be as many cells as it has bytes, so nothing is allocated for a cell.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{to_u64, to_usize};
use crate::codec::pace::{self, Pace, STRIDE};
use crate::error::{Error, Result};
use crate::text;

use super::item_spec::ItemSpec;

/// Maximum number of dimensions of these filters.
const DIMS: usize = 8;

/// How a block is divided into cells.
#[derive(Debug)]
pub(super) struct NdCells {
    /// Items of a block per dimension.
    block: Vec<u64>,
    /// Items of a cell per dimension.
    side: Vec<u64>,
    /// Bytes of an item.
    itemsize: u64,
    /// Bytes of a block.
    len: Option<u64>,
}

impl NdCells {
    /// The cells of filter `id` with the parameter `meta`.
    pub(super) fn new(id: u8, meta: u8, item: &ItemSpec) -> Result<Self> {
        let bad = |why: String| Error::corrupt(why, "filter meta");
        let blockshape = item.blockshape.as_ref().map_err(Clone::clone)?;
        let (Some(shape), Some(typesize)) = (blockshape, item.typesize) else {
            return Err(bad("requires the block shape of an array".into()));
        };
        let block: Vec<u64> = shape.iter().map(|&n| n.into()).collect();
        let side = u64::from(meta);
        let fits = side > 0 && (id == 32 || meta <= 127) && (1..=DIMS).contains(&block.len());
        let items = block.iter().try_fold(1_u64, |n, &d| n.checked_mul(d));
        let cell = block.iter().try_fold(1_u64, |n, _| n.checked_mul(side));
        if !fits || block.contains(&0) || (id == 32 && !matches!((cell, items), (Some(c), Some(n)) if c <= n)) {
            return Err(bad(format!("cells of side {meta} do not fit blocks of {}", text::shape(&block))));
        }
        let itemsize = u64::from(typesize);
        let len = items.and_then(|n| n.checked_mul(itemsize));
        Ok(Self { side: block.iter().map(|&n| side.min(n)).collect(), block, itemsize, len })
    }

    /// Copies the items of `src`, which are in cell order, to C order in `dst`; calls `pace` along the way.
    pub(super) fn undo(&self, src: &[u8], dst: &mut [u8], pace: Pace<'_>) -> Result<()> {
        if self.len != Some(to_u64(src.len())) {
            let why = format!("a block of {} bytes does not have the block size of the array", src.len());
            return Err(Error::corrupt(why, "ndcell block"));
        }
        if self.side.iter().all(|&side| side == 1) {
            // Cell order is C order.
            pace::copy(src, dst, pace);
            return Ok(());
        }
        let mut rest = src;
        let mut corner = [0; DIMS];
        let (corner, _) = corner.split_at_mut(self.block.len().min(DIMS));
        let mut paced = rest.len();
        loop {
            self.cell(corner, &mut rest, dst)?;
            if paced.saturating_sub(rest.len()) >= STRIDE {
                pace();
                paced = rest.len();
            }
            if !step(corner, &self.block, &self.side) {
                return Ok(());
            }
        }
    }

    /// Copies one cell, a run along the last dimension at a time.
    fn cell(&self, corner: &[u64], rest: &mut &[u8], dst: &mut [u8]) -> Result<()> {
        let mut clipped = [0; DIMS];
        for (((clipped, &c), &b), &s) in clipped.iter_mut().zip(corner).zip(&self.block).zip(&self.side) {
            *clipped = s.min(b.saturating_sub(c));
        }
        let (clipped, _) = clipped.split_at(corner.len());
        let Some((&run, outer)) = clipped.split_last() else {
            return Err(Error::corrupt("a block without dimensions", "ndcell block"));
        };
        let run = to_usize(run.saturating_mul(self.itemsize), "ndcell block")?;
        let mut at = [0; DIMS];
        let (at, _) = at.split_at_mut(outer.len());
        loop {
            // Index of the run's first item in C order.
            let inner = at.iter().chain(std::iter::once(&0)).zip(corner);
            let item = inner
                .zip(&self.block)
                .fold(0_u64, |n, ((&i, &c), &b)| n.saturating_mul(b).saturating_add(c.saturating_add(i)));
            let start = to_usize(item.saturating_mul(self.itemsize), "ndcell block")?;
            let to = dst.get_mut(start..).and_then(|d| d.get_mut(..run));
            let (Some(to), Some((from, left))) = (to, rest.split_at_checked(run)) else {
                return Err(Error::corrupt("cells do not fill the block", "ndcell block"));
            };
            to.copy_from_slice(from);
            *rest = left;
            if !step(at, outer, &[1; DIMS]) {
                return Ok(());
            }
        }
    }
}

/// Advances `at` in C order, in steps of `by` up to `end`; false after the last position.
fn step(at: &mut [u64], end: &[u64], by: &[u64]) -> bool {
    for ((i, &end), &by) in at.iter_mut().zip(end).zip(by).rev() {
        *i = i.saturating_add(by);
        if *i < end {
            return true;
        }
        *i = 0;
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing, reason = "a test")]
    use super::*;
    use crate::account::Account;
    use crate::format::blosc2::memory::ContainerMemory;

    fn memory() -> std::sync::Arc<ContainerMemory> {
        ContainerMemory::new(Account::new(0, 0), 0, std::sync::Arc::default())
    }

    fn decoded(shape: &[u32], side: u8, src: &[u8]) -> Result<Vec<u8>> {
        let item = ItemSpec { memory: memory(), typesize: Some(1), blockshape: Ok(Some(shape.to_vec())) };
        let mut dst = vec![0xAA; src.len()];
        NdCells::new(32, side, &item)?.undo(src, &mut dst, &mut || ()).map(|()| dst)
    }

    #[test]
    fn cells_are_clipped_at_the_edges() {
        let src: Vec<u8> = (0..15).collect();
        assert_eq!(decoded(&[15], 4, &src).unwrap(), src);
        assert_eq!(decoded(&[3, 5], 1, &src).unwrap(), src);
        // 3 x 5 in cells of 2 x 2.
        let want = [0, 1, 4, 5, 8, 2, 3, 6, 7, 9, 10, 11, 12, 13, 14];
        assert_eq!(decoded(&[3, 5], 2, &src).unwrap(), want);
    }

    #[test]
    fn parameters_and_sizes_are_checked() {
        assert!(decoded(&[3, 5], 0, &[0; 15]).is_err());
        assert!(decoded(&[3, 5], 4, &[0; 15]).is_err());
        assert!(decoded(&[3, 5], 2, &[0; 14]).is_err());
        assert!(decoded(&[3, 0], 1, &[]).is_err());
        assert!(decoded(&[], 1, &[0]).is_err());
        let bare = ItemSpec { memory: memory(), typesize: None, blockshape: Ok(None) };
        assert!(NdCells::new(32, 2, &bare).is_err());
        let beyond_u32 = ItemSpec { typesize: Some(4), blockshape: Ok(Some(vec![65536; 4])), ..bare };
        assert!(NdCells::new(32, 2, &beyond_u32).is_err());
    }
}
