//! A growing list of chunks of 256 KiB, in memory or in temporary files, or in the allowance that all lists share.
//!
//! Of a list in files, [`RESIDENT`] chunks in use stay resident, since the kernel may map all pages of a file at one
//! access.
#![forbid(unsafe_code)]
#![warn(clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bytes::to_u64;
use crate::error::Result;
use crate::limits::zeroed;

use super::{Account, Buffer};

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 256 << 10;
/// Chunks in files that stay resident.
const RESIDENT: usize = 4;

/// A list of chunks of [`CHUNK`] bytes; the last may be shorter.
#[derive(Debug)]
pub(super) struct Chunks {
    account: Account,
    what: &'static str,
    buffers: Vec<Buffer>,
    /// Whether it is accessed at random, so that the disk is the last choice.
    is_random: bool,
    /// The resident chunks of a list in files, as 1 + number (0: none), at index number % [`RESIDENT`].
    resident: [AtomicUsize; RESIDENT],
}

impl Chunks {
    /// Creates an empty list; `what` names it in errors.
    pub(super) fn new(account: &Account, what: &'static str) -> Self {
        Self { account: account.clone(), what, buffers: Vec::new(), is_random: false, resident: Default::default() }
    }

    /// Creates an empty list that is accessed at random.
    pub(super) fn random(account: &Account, what: &'static str) -> Self {
        Self { is_random: true, ..Self::new(account, what) }
    }

    /// The account that is charged.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Name of the list in error messages.
    pub(super) fn what(&self) -> &'static str {
        self.what
    }

    /// The number of chunks.
    pub(super) fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Adds a chunk of `len` bytes, which `fill` sets; they are zero before.
    ///
    /// # Errors
    /// [`NoRoom`](crate::error::Kind::NoRoom) if neither memory nor disk space is left; [`Io`](crate::error::Kind::Io)
    /// if the allocation or the file fails.
    pub(super) fn push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut bytes = zeroed(to_u64(len), self.what)?;
        fill(&mut bytes);
        self.buffers.push(self.account.list_buffer_of(&bytes, self.is_random, self.what)?);
        Ok(())
    }

    /// The bytes `range` of chunk `index`.
    pub(super) fn get(&self, index: usize, range: Range<usize>) -> Option<&[u8]> {
        let buffer = self.buffers.get(index)?;
        self.touch(index, buffer);
        buffer.get(range)
    }

    /// The bytes `range` of chunk `index`, to be changed.
    pub(super) fn get_mut(&mut self, index: usize, range: Range<usize>) -> Option<&mut [u8]> {
        self.touch(index, self.buffers.get(index)?);
        self.buffers.get_mut(index)?.get_mut(range)
    }

    /// Makes chunk `index` resident, and releases the one that it replaces.
    fn touch(&self, index: usize, buffer: &Buffer) {
        let Some(resident) = self.resident.get(index % RESIDENT).filter(|_| buffer.is_spilled()) else { return };
        let one_plus = index.saturating_add(1);
        if resident.load(Ordering::Relaxed) == one_plus {
            return;
        }
        let Some(old) = resident.swap(one_plus, Ordering::Relaxed).checked_sub(1) else { return };
        if let Some(buffer) = self.buffers.get(old) {
            buffer.release(0..buffer.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_list_in_files_the_chunks_used_last_stay_resident() {
        let mut list = Chunks::new(&Account::new(0, 1 << 20), "list");
        (0..6).for_each(|i| list.push(4096, |bytes| bytes.fill(i)).unwrap());
        for i in [0, 1, 2, 3, 4, 1] {
            assert_eq!(list.get(i.into(), 0..1), Some(&[i][..]));
        }
        assert_eq!(list.resident.each_ref().map(|one_plus| one_plus.load(Ordering::Relaxed)), [5, 2, 3, 4]);
    }
}
