//! A growing list of chunks of 1 MiB, in memory or in temporary files.
//!
//! The first [`FREE`] bytes are kept even if the account is exhausted, so that a small `cache=` does not refuse an
//! ordinary container. The pages of chunks in files are released after some accesses, so that random access does not
//! make the whole list resident.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::bytes::to_u64;
use crate::error::{Kind, Result};
use crate::limits::zeroed;

use super::{Account, Buffer, FREE};

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 1 << 20;
/// Accesses to chunks in files before their pages are released; each maps at most 64 KiB.
const ACCESSES: u32 = 256;

/// A list of chunks of [`CHUNK`] bytes.
#[derive(Debug)]
pub(super) struct Chunks {
    account: Account,
    what: &'static str,
    chunks: Vec<Chunk>,
    /// Bytes of chunks that are not charged.
    free: u64,
    /// Accesses to chunks in files since pages were last released.
    accesses: AtomicU32,
}

#[derive(Debug)]
enum Chunk {
    Charged(Buffer),
    Free(Vec<u8>),
}

impl Chunks {
    /// Creates an empty list; `what` names it in errors.
    pub(super) fn new(account: &Account, what: &'static str) -> Self {
        Self { account: account.clone(), what, chunks: Vec::new(), free: 0, accesses: AtomicU32::new(0) }
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
        self.chunks.len()
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
        self.chunks.push(chunk);
        Ok(())
    }

    /// The bytes of chunk `index`.
    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        let chunk = self.chunks.get(index)?;
        self.count(chunk);
        Some(match chunk {
            Chunk::Charged(buffer) => buffer,
            Chunk::Free(bytes) => bytes,
        })
    }

    /// The bytes of chunk `index`, to be changed.
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        self.count(self.chunks.get(index)?);
        Some(match self.chunks.get_mut(index)? {
            Chunk::Charged(buffer) => buffer,
            Chunk::Free(bytes) => bytes,
        })
    }

    fn count(&self, chunk: &Chunk) {
        let Chunk::Charged(buffer) = chunk else { return };
        if buffer.is_spilled() && self.accesses.fetch_add(1, Ordering::Relaxed) >= ACCESSES {
            self.accesses.store(0, Ordering::Relaxed);
            for chunk in &self.chunks {
                if let Chunk::Charged(buffer) = chunk {
                    buffer.release(0..buffer.len());
                }
            }
        }
    }
}
