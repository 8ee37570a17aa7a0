//! A growing list of chunks of 1 MiB, in memory or in temporary files.
//!
//! The first [`FREE`] bytes are kept even if the account is exhausted, so that a small `cache=` does not refuse an
//! ordinary container. Of a list in files, the [`WINDOWS`] parts of 64 KiB in use stay resident.
#![forbid(unsafe_code)]
#![warn(clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bytes::to_u64;
use crate::error::{Kind, Result};
use crate::limits::zeroed;

use super::{Account, Buffer, FREE};

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 1 << 20;
/// Parts of chunks in files that stay resident; a part is what an access maps.
const WINDOWS: usize = 32;
/// Bytes of such a part.
const WINDOW: usize = 64 << 10;

/// A list of chunks of [`CHUNK`] bytes.
#[derive(Debug)]
pub(super) struct Chunks {
    account: Account,
    what: &'static str,
    list: Vec<Chunk>,
    /// Bytes of chunks that are not charged.
    free: u64,
    /// One plus the numbers of the windows that are resident, each in the place of its remainder.
    resident: [AtomicUsize; WINDOWS],
}

#[derive(Debug)]
enum Chunk {
    Charged(Buffer),
    Free(Vec<u8>),
}

impl Chunks {
    /// Creates an empty list; `what` names it in errors.
    pub(super) fn new(account: &Account, what: &'static str) -> Self {
        Self { account: account.clone(), what, list: Vec::new(), free: 0, resident: Default::default() }
    }

    /// The account that is charged.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// What the list is, for errors.
    pub(super) fn what(&self) -> &'static str {
        self.what
    }

    /// The number of chunks.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds a chunk of which `fill` sets the bytes; they are zero before.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if neither memory nor disk space is left; [`Kind::Io`] if the allocation or the file fails.
    pub(super) fn push(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        let len = to_u64(CHUNK);
        let mut bytes = zeroed(len, self.what)?;
        fill(&mut bytes);
        let chunk = match self.account.buffer_of(&bytes, self.what) {
            Ok(buffer) => Chunk::Charged(buffer),
            Err(e) if !matches!(e.kind(), Kind::NoRoom { .. }) || self.free.saturating_add(len) > FREE => {
                return Err(e);
            }
            Err(_) => {
                self.free = self.free.saturating_add(len);
                Chunk::Free(bytes)
            }
        };
        self.list.push(chunk);
        Ok(())
    }

    /// The bytes `range` of chunk `index`.
    pub(super) fn get(&self, index: usize, range: Range<usize>) -> Option<&[u8]> {
        let chunk = self.list.get(index)?;
        self.touch(index, chunk, range.start);
        match chunk {
            Chunk::Charged(buffer) => buffer.get(range),
            Chunk::Free(bytes) => bytes.get(range),
        }
    }

    /// The bytes `range` of chunk `index`, to be changed.
    pub(super) fn get_mut(&mut self, index: usize, range: Range<usize>) -> Option<&mut [u8]> {
        self.touch(index, self.list.get(index)?, range.start);
        match self.list.get_mut(index)? {
            Chunk::Charged(buffer) => buffer.get_mut(range),
            Chunk::Free(bytes) => bytes.get_mut(range),
        }
    }

    /// Releases the window that the one with byte `at` of chunk `index` replaces.
    fn touch(&self, index: usize, chunk: &Chunk, at: usize) {
        let Chunk::Charged(buffer) = chunk else { return };
        if !buffer.is_spilled() {
            return;
        }
        let (per_chunk, window) = (CHUNK / WINDOW, at / WINDOW);
        let number = index.saturating_mul(per_chunk).saturating_add(window);
        let Some(resident) = self.resident.get(number % WINDOWS) else { return };
        let one_plus = number.saturating_add(1);
        if resident.load(Ordering::Relaxed) == one_plus {
            return;
        }
        let Some(old) = resident.swap(one_plus, Ordering::Relaxed).checked_sub(1) else { return };
        if let Some(Chunk::Charged(buffer)) = self.list.get(old / per_chunk) {
            // An access maps the pages around it, which may reach into the next windows.
            let start = (old % per_chunk).saturating_mul(WINDOW);
            let end = start.saturating_add(2 * WINDOW).min(buffer.len());
            buffer.release(start.saturating_sub(WINDOW)..end);
        }
    }
}
