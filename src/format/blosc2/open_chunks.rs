//! The opened chunks of an index that were used last.
//!
//! Limits: they take up to [`OPEN`] bytes in total, and no more than the account has memory for.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::account::Account;
use crate::limits::Charge;

use super::chunk::Chunk;

/// Maximum size of all opened chunks together.
const OPEN: u64 = 64 << 20;
/// Maximum number of opened chunks.
const OPENED: usize = 64;

/// The opened chunks and their total cost.
#[derive(Debug)]
pub(super) struct OpenChunks {
    chunks: LruCache<u64, (Arc<Chunk>, Charge)>,
    cost: u64,
}

impl Default for OpenChunks {
    fn default() -> Self {
        Self { chunks: LruCache::new(NonZeroUsize::new(OPENED).unwrap_or(NonZeroUsize::MIN)), cost: 0 }
    }
}

impl OpenChunks {
    /// Chunk `i`, if it is open.
    pub(super) fn get(&mut self, i: u64) -> Option<Arc<Chunk>> {
        self.chunks.get(&i).map(|(chunk, _)| Arc::clone(chunk))
    }

    /// Whether no chunk is open.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Caches `chunk` if `account` has memory for it, evicting the least recently used ones.
    pub(super) fn keep(&mut self, i: u64, chunk: Arc<Chunk>, account: &Account) {
        let cost = chunk.cost();
        let charge = loop {
            match account.charge(cost, "opened chunk") {
                Ok(charge) if self.cost.saturating_add(cost) <= OPEN || self.chunks.is_empty() => break charge,
                _ => {}
            }
            let Some((_, (old, _))) = self.chunks.pop_lru() else { return };
            self.cost -= old.cost();
        };
        self.cost += cost;
        if let Some((_, (old, _))) = self.chunks.push(i, (chunk, charge)) {
            self.cost -= old.cost();
        }
    }
}
