//! Memory and disk space for decoding: large blocks that are kept whole, and the buffers of decoders.
//!
//! If only a part of a block is read and the block is larger than a piece, it is decoded once into a [`Buffer`], and
//! its pieces are copied from there. All chunks of a container share the kept blocks.
//!
//! Limits: [`KEPT`] blocks, and up to [`MOST`] while the account has memory for them; buffers of idle decoders while
//! the account has memory for them.
//!
//! Invariants: a decode acquires all its buffers at once, so that none waits while it holds some of them; decodes and
//! copies from a block wait for nothing, so that callers that need room can wait for them; only lasting errors are
//! kept, never a failed read or lack of memory.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use crate::account::{Account, Buffer, Reserved};
use crate::error::{Error, Kind, Result};
use crate::format::{IdleDecoders, Options};
use crate::once::Once;
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::Condition;

use super::decode_buffers::DecodeBuffers;

/// Number of large blocks that are kept at any size.
const KEPT: usize = 4;
/// Maximum number of large blocks that are kept.
const MOST: usize = 64;

/// Identifies a block: its chunk and its number in the chunk.
pub(super) type BlockKey = (ChunkKey, usize);

/// The chunk number that stands for the index chunk.
pub(super) const INDEX: u64 = u64::MAX;

/// Identifies a chunk: its index and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkKey {
    pub(super) index: u64,
    pub(super) chunk: u64,
}

/// The memory of one container.
pub(super) struct ContainerMemory {
    /// Maximum size of a block.
    pub(super) block_limit: u64,
    account: Account,
    next: AtomicU64,
    idle: Arc<IdleDecoders>,
    blocks: Mutex<KeptBlocks>,
    /// Signalled when a decode has released its buffers, or a copy its block.
    ended: Condition,
}

#[derive(Default)]
struct KeptBlocks {
    /// Least recently used first.
    slots: Vec<(BlockKey, Arc<BlockSlot>)>,
    /// Number of decodes that hold buffers and of copies from a block; then, the number of those that have ended.
    active: usize,
    ends: u64,
}

/// A kept block, or the lasting error that decoding it gave.
type BlockSlot = Once<Arc<Buffer>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ContainerMemory {
    pub(super) fn of(options: &Options) -> Arc<Self> {
        Self::new(options.account.clone(), options.limits.piece, options.idle.clone())
    }

    pub(super) fn new(account: Account, block_limit: u64, idle: Arc<IdleDecoders>) -> Arc<Self> {
        Arc::new(Self {
            block_limit,
            account,
            next: AtomicU64::new(0),
            idle,
            blocks: Mutex::default(),
            ended: Condition::new(),
        })
    }

    /// The account to charge.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// A new number for an index of chunks.
    pub(super) fn new_index(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `f` with the buffers of a decoder; they are reused if there is memory to keep them.
    pub(super) fn with_buffers<T>(&self, f: impl FnOnce(&mut DecodeBuffers) -> T) -> T {
        self.idle.with(|buffers: &mut DecodeBuffers| {
            let result = f(buffers);
            buffers.charge_idle(&self.account);
            result
        })
    }

    /// Returns the block `key`, calling `decode` if it is not kept. Concurrent callers wait for one decode. Drop the
    /// [`Active`] after the block has been copied, or at once before waiting for anything.
    pub(super) fn block<'a>(
        &'a self,
        key: BlockKey,
        decode: impl FnOnce() -> Result<(Active<'a>, Buffer)>,
    ) -> Result<(Active<'a>, Arc<Buffer>)> {
        // An evicted block is dropped after the lock is released: unmapping a file may be slow.
        let (slot, known, _evicted) = {
            let mut blocks = lock(&self.blocks);
            let found = blocks.slots.iter().position(|(other, _)| *other == key);
            let entry = match found {
                Some(i) => blocks.slots.remove(i),
                None => (key, Arc::default()),
            };
            let slot = Arc::clone(&entry.1);
            blocks.slots.push(entry);
            let evicted = (blocks.slots.len() > MOST).then(|| blocks.slots.remove(0));
            let known = slot.ready().and_then(Result::ok).map(|block| (blocks.activate(self), Arc::clone(block)));
            (slot, known, evicted)
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let mut active = None;
        let make = || {
            let (own, block) = decode()?;
            active = Some(own);
            Ok(Arc::new(block))
        };
        let block = Arc::clone(slot.get(make)?);
        Ok((active.unwrap_or_else(|| lock(&self.blocks).activate(self)), block))
    }

    /// Allocates buffers of `lens` bytes for one decode, which lasts until the returned [`Active`] is dropped. Drop it
    /// after the buffers.
    ///
    /// # Errors
    /// Fails with [`Kind::NoRoom`] if there is no room although no other decode or copy is active and no unused block
    /// is kept.
    pub(super) fn allocate<const N: usize>(&self, lens: [u64; N]) -> Result<(Active<'_>, [Buffer; N])> {
        let need = lens.iter().fold(0_u64, |sum, &len| sum.saturating_add(len));
        let mut blocks = lock(&self.blocks);
        // Evict older blocks rather than put new ones on disk.
        let left = |account: &Account| account.memory().total().saturating_sub(account.memory().used());
        while left(&self.account) < need
            && let Some(evicted) = blocks.evict(KEPT)
        {
            blocks = self.dropped(blocks, evicted);
        }
        loop {
            let error = match self.reserve(lens) {
                Ok(reserved) => {
                    let active = blocks.activate(self);
                    drop(blocks);
                    // Allocating may create a file. If that fails, dropping the guard wakes the waiters for room.
                    let buffers = reserved.into_iter().map(Reserved::allocate).collect::<Result<Vec<_>>>()?;
                    let buffers = buffers.try_into();
                    return Ok((active, buffers.map_err(|_| Error::corrupt("wrong number of buffers", "block"))?));
                }
                Err(error) => error,
            };
            if !matches!(error.kind(), Kind::NoRoom { .. }) {
                return Err(error);
            }
            if let Some(evicted) = blocks.evict(0) {
                blocks = self.dropped(blocks, evicted);
                continue;
            }
            if blocks.active == 0 {
                return Err(error);
            }
            let ends = blocks.ends;
            blocks = self.ended.wait_while(&self.blocks, blocks, |blocks| blocks.ends == ends)?;
        }
    }

    /// Drops `evicted` without the lock.
    fn dropped<'a>(
        &'a self,
        blocks: MutexGuard<'a, KeptBlocks>,
        evicted: Arc<BlockSlot>,
    ) -> MutexGuard<'a, KeptBlocks> {
        drop(blocks);
        drop(evicted);
        lock(&self.blocks)
    }

    /// Charges all buffers or none.
    fn reserve<const N: usize>(&self, lens: [u64; N]) -> Result<Vec<Reserved>> {
        lens.iter().map(|&len| self.account.reserve(len, "block")).collect()
    }
}

impl KeptBlocks {
    /// Counts a decode or copy until the result is dropped.
    fn activate<'a>(&mut self, memory: &'a ContainerMemory) -> Active<'a> {
        self.active += 1;
        Active(memory)
    }

    /// Evicts and returns the least recently used block that is not in use, if more than `keep` are kept.
    fn evict(&mut self, keep: usize) -> Option<Arc<BlockSlot>> {
        if self.slots.len() <= keep {
            return None;
        }
        let idle = |(_, slot): &(BlockKey, Arc<BlockSlot>)| {
            let is_unused = |block: &Arc<Buffer>| Arc::strong_count(block) == 1;
            Arc::strong_count(slot) == 1 && slot.ready().is_some_and(|state| state.is_ok_and(is_unused))
        };
        let i = self.slots.iter().position(idle)?;
        Some(self.slots.remove(i).1)
    }
}

/// A decode that holds buffers, or a copy from a block.
pub(super) struct Active<'a>(&'a ContainerMemory);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        let mut blocks = lock(&self.0.blocks);
        blocks.active -= 1;
        blocks.ends += 1;
        drop(blocks);
        self.0.ended.notify_all();
    }
}

impl fmt::Debug for ContainerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerMemory").field("account", &self.account).finish_non_exhaustive()
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../../tests/models/memory.rs"]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const KEY: BlockKey = (ChunkKey { index: 0, chunk: 0 }, 0);

    #[test]
    fn who_needs_room_waits_for_a_copy_from_a_kept_block() {
        let memory = ContainerMemory::new(Account::new(100, 0), 1 << 30, Arc::default());
        let decode = || memory.allocate([80]).map(|(active, [block])| (active, block));
        drop(memory.block(KEY, decode).unwrap());
        // Found, as by a later reader.
        let (copying, block) = memory.block(KEY, || panic!("it is kept")).unwrap();
        std::thread::scope(|scope| {
            let (ask, asked) = mpsc::channel();
            let need = scope.spawn({
                let memory = &memory;
                move || {
                    ask.send(()).unwrap();
                    memory.allocate([80]).map(drop)
                }
            });
            asked.recv().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!need.is_finished());
            drop(block);
            drop(copying);
            need.join().unwrap().unwrap();
        });
        assert_eq!(memory.account().memory().used(), 0);
    }

    #[test]
    fn who_needs_room_does_not_wait_for_a_block_that_is_only_referred_to() {
        let memory = ContainerMemory::new(Account::new(100, 0), 1 << 30, Arc::default());
        let decode = || memory.allocate([80]).map(|(active, [block])| (active, block));
        let (_, reference) = memory.block(KEY, decode).unwrap();
        assert!(matches!(memory.allocate([80]).map(drop).unwrap_err().kind(), Kind::NoRoom { .. }));
        drop(reference);
        assert!(memory.allocate([80]).is_ok());
    }
}
