//! The decoded sizes of the blocks of a frame, which are not stored.
//!
//! Every known writer fills all blocks but the last. This is certain once the last block decodes to exactly the rest of
//! the total of the frame, because no block decodes to more than a full one. If it does not, all blocks are decoded
//! once.
//!
//! Limits: decoding all blocks ends where they exceed the frame, or after [`MIN_LIMIT`] bytes or more.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use crate::account::{Account, decode_budget};
use crate::bytes::to_u64;
use crate::error::{Error, Result};

use super::index::ZxcFrame;
use super::offset_list::OffsetList;

/// Limit on the bytes that are decoded to learn block sizes.
const MIN_LIMIT: u64 = 1 << 30;
/// The same for each stored byte, if that is more.
const PER_STORED: u64 = 256;

/// The decoded block ends of a frame.
#[derive(Debug)]
pub(super) enum BlockSizes {
    /// All blocks are full, except possibly the last.
    Full,
    /// The end of each block.
    Ends(OffsetList),
}

impl BlockSizes {
    /// Determines the sizes of the blocks of `frame`. `decode` decodes a block and returns its size.
    ///
    /// # Errors
    /// Fails if all blocks have to be decoded and one is corrupt, their sum is not the total, or there is too much to
    /// decode; and if a read fails.
    pub(super) fn learn(
        frame: &ZxcFrame,
        account: &Account,
        mut decode: impl FnMut(u64) -> Result<u64>,
    ) -> Result<Self> {
        let (count, total) = (frame.count(), frame.footer.total);
        let Some(last) = count.checked_sub(1) else { return Ok(Self::Full) };
        let before_last = last.saturating_mul(frame.header.block_size.into());
        if frame.has_full_count() {
            match decode(last) {
                Ok(n) if Some(n) == total.checked_sub(before_last) => return Ok(Self::Full),
                Ok(_) => (),
                // Assume full blocks, so that the blocks before a corrupt last one stay readable.
                Err(e) if e.is_lasting() => return Ok(Self::Full),
                Err(e) => return Err(e),
            }
        }
        let limit = MIN_LIMIT.max(frame.stored().saturating_mul(PER_STORED));
        let (mut ends, mut end) = (OffsetList::new(account, count)?, 0_u64);
        let all = || {
            for index in 0..count {
                let len = decode(index)?;
                decode_budget::charge(len)?;
                end = end.saturating_add(len);
                ends.push(end)?;
                if end > total {
                    break;
                }
            }
            Ok(())
        };
        decode_budget::build(account, limit, all).map_err(|e| e.at(frame.footer.total_at))?;
        let is_whole = ends.len() == count;
        let others = last.checked_sub(1).and_then(|before| ends.get(before)).unwrap_or(0);
        match end {
            _ if is_whole && end == total => Ok(Self::Ends(ends)),
            // Only the last block is corrupt.
            _ if is_whole && frame.has_full_count() && others == before_last => Ok(Self::Full),
            _ => {
                let why = format!("{} blocks decode to {end} bytes, the frame to {total}", ends.len());
                Err(Error::corrupt(why, "total").at(frame.footer.total_at))
            }
        }
    }

    /// The decoded range of block `index` of `frame`, relative to the frame.
    ///
    /// # Errors
    /// Fails if there are fewer blocks.
    pub(super) fn range(&self, frame: &ZxcFrame, index: u64) -> Result<Range<u64>> {
        let missing = || Error::corrupt("there are fewer blocks", "block");
        if index >= frame.count() {
            return Err(missing());
        }
        Ok(match self {
            Self::Full => {
                let (size, total) = (u64::from(frame.header.block_size), frame.footer.total);
                let start = index.saturating_mul(size).min(total);
                start..start.saturating_add(size).min(total)
            }
            Self::Ends(ends) => {
                let start = index.checked_sub(1).map_or(Some(0), |before| ends.get(before));
                start.ok_or_else(missing)?..ends.get(index).ok_or_else(missing)?
            }
        })
    }

    /// The block that contains decoded byte `offset` of `frame`.
    pub(super) fn locate(&self, frame: &ZxcFrame, offset: u64) -> u64 {
        match self {
            Self::Full => offset.checked_div(frame.header.block_size.into()).unwrap_or(0),
            Self::Ends(ends) => to_u64(ends.as_slice().partition_point(|&end| end <= offset)),
        }
    }
}
