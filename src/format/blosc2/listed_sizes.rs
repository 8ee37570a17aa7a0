//! The sizes of chunks that differ in size, from the headers of all of them.
//!
//! Reference: section 3 (variable sizes).
//! Limits: charged to the account.
#![forbid(unsafe_code)]

use std::ops::Range;

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::limits::Charge;

/// Maximum decoded size of a chunk.
const MAX_CHUNK: u64 = i32::MAX as u64;
/// Memory of a chunk: its end, and its number in a list that grows by copying to twice its size.
const PER_CHUNK: usize = size_of::<u64>() + 3 * size_of::<u64>();

/// The sizes of chunks that differ in size.
#[derive(Debug, Default)]
pub(super) struct ListedSizes {
    /// The end of each chunk in the decoded bytes; a chunk of unknown size counts as empty.
    pub(super) ends: Vec<u64>,
    /// Numbers of the chunks of unknown size, ascending.
    pub(super) unknown: Vec<u64>,
    _charge: Option<Charge>,
}

impl ListedSizes {
    /// Reads the sizes of `count` chunks, which add up to `total`. `size` returns that in the header of a chunk, or
    /// `None` if the chunk is not stored.
    pub(super) fn read(
        count: u64,
        total: u64,
        account: &Account,
        size: impl Fn(u64) -> Result<Option<u32>>,
    ) -> Result<Self> {
        let bytes = count.saturating_mul(to_u64(PER_CHUNK));
        let charge = account.charge(bytes, "sizes of chunks")?;
        // Sizes, which become ends.
        let mut ends = Vec::with_capacity(to_usize(count, "number of chunks")?);
        let mut unknown = Vec::new();
        let mut special = 0_u64;
        let mut sum = 0_u64;
        for i in 0..count {
            let size = match size(i) {
                Ok(Some(size)) => size.into(),
                Err(e) if !e.is_lasting() => return Err(e.within(format_args!("chunk {i}"))),
                absent => {
                    special += u64::from(absent.is_ok());
                    unknown.push(i);
                    0
                }
            };
            sum = sum.saturating_add(size);
            if sum > total {
                return Err(Error::corrupt(format!("the chunks add up to more than {total} bytes"), "nbytes"));
            }
            ends.push(size);
        }
        match *unknown.as_slice() {
            // A special entry has no size, but if it is the only one, its size is the rest.
            [i] if special == 1 && total - sum <= MAX_CHUNK => {
                ends[i as usize] = total - sum;
                unknown.clear();
            }
            [] if sum != total => {
                return Err(Error::corrupt(
                    format!("the chunks add up to {sum} bytes, the frame has {total}"),
                    "nbytes",
                ));
            }
            _ => {}
        }
        let mut end = 0;
        for size in &mut ends {
            end += *size;
            *size = end;
        }
        Ok(Self { ends, unknown, _charge: Some(charge) })
    }

    /// The range of chunk `i` in the decoded bytes.
    pub(super) fn range(&self, i: u64) -> Option<Range<u64>> {
        let end = |i: u64| self.ends.get(usize::try_from(i).ok()?).copied();
        Some(i.checked_sub(1).map_or(Some(0), end)?..end(i)?)
    }
}
