//! The sizes of chunks that differ in size, from the headers of all of them.
//!
//! Reference: section 3 (variable sizes).
//! Checked: that no chunk is named twice, before a header is read: an index of a few bytes can name one chunk tens of
//! millions of times, and each header may be a request to a server.
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
    /// Reads the sizes of `count` chunks, which add up to `total`. `entry` returns an entry of the index and how many
    /// from it on are the same; `size` the size in the header of a chunk, or `None` if the chunk is not stored.
    pub(super) fn read(
        count: u64,
        total: u64,
        account: &Account,
        entry: impl Fn(u64) -> Result<(i64, u64)>,
        size: impl Fn(u64) -> Result<Option<u32>>,
    ) -> Result<Self> {
        let bytes = count.saturating_mul(to_u64(PER_CHUNK));
        let charge = account.charge(bytes, "sizes of chunks")?;
        check_distinct(count, entry)?;
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

/// Fails if two of the `count` entries name the same stored chunk.
fn check_distinct(count: u64, entry: impl Fn(u64) -> Result<(i64, u64)>) -> Result<()> {
    let twice = |position| Error::corrupt(format!("the chunk at {position:#x} is named twice"), "chunk offset");
    let mut positions = Vec::with_capacity(to_usize(count, "number of chunks")?);
    let mut i = 0;
    while i < count {
        let (position, same) = entry(i)?;
        if position >= 0 {
            if same > 1 {
                return Err(twice(position));
            }
            positions.push(position);
        }
        i += same.max(1);
    }
    positions.sort_unstable();
    let next = positions.iter().skip(1);
    positions.iter().zip(next).find(|(a, b)| a == b).map_or(Ok(()), |(position, _)| Err(twice(*position)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_index_that_names_a_chunk_twice_is_refused_before_a_header_is_read() {
        let headers = Cell::new(0);
        let read = |entries: &[i64]| {
            let entry = |i: u64| {
                let rest = &entries[i as usize..];
                Ok((rest[0], to_u64(rest.iter().take_while(|&&e| e == rest[0]).count())))
            };
            let size = |_| {
                headers.set(headers.get() + 1);
                Ok(Some(10))
            };
            let count = to_u64(entries.len());
            ListedSizes::read(count, 10 * count, &Account::new(1 << 20, 0), entry, size).map(|list| list.ends)
        };
        assert_eq!(read(&[300, 100, 200]).unwrap(), [10, 20, 30]);
        assert_eq!(headers.replace(0), 3);
        for entries in [&[100; 1000][..], &[100, 200].repeat(500), &[100, 200, 300, -1, -1, 100]] {
            assert_eq!(read(entries).unwrap_err().what(), "chunk offset");
            assert_eq!(headers.get(), 0);
        }
    }
}
