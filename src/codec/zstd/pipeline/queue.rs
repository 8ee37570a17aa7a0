//! Blocks between the two stages of the pipeline, in the order of the frame.
//!
//! Threads take the blocks that no other has begun, in order; the one that executes them takes the first when it is
//! decoded.
//!
//! Invariants: a block that was begun is always ended, also by a panic; the first one wakes its waiter.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::wanted::Condition;

/// The queue of one frame: `B` is a block, `W` what a thread needs to decode one.
#[derive(Debug, Default)]
pub(super) struct BlockQueue<B, W> {
    state: Mutex<QueueState<B, W>>,
    /// Signaled when the first block is decoded.
    decoded: Condition,
}

#[derive(Debug)]
struct QueueState<B, W> {
    slots: VecDeque<QueueSlot<B>>,
    /// The number of the first block in `slots`, and of the first that no thread has begun.
    first: u64,
    next: u64,
    workspaces: Vec<W>,
    /// Threads that help.
    helpers: usize,
}

impl<B, W> Default for QueueState<B, W> {
    fn default() -> Self {
        let (slots, workspaces) = (VecDeque::new(), Vec::new());
        Self { slots, first: 0, next: 0, workspaces, helpers: 0 }
    }
}

#[derive(Debug)]
enum QueueSlot<B> {
    Waiting(B),
    Begun,
    Ended(Result<B>),
}

/// A block that this thread has begun. Dropping it ends it as failed.
struct Begun<'a, B, W> {
    queue: &'a BlockQueue<B, W>,
    number: u64,
    result: Option<Result<B>>,
}

impl<B, W> Drop for Begun<'_, B, W> {
    fn drop(&mut self) {
        let lost = || Err(Error::corrupt("its decoder has panicked", "block"));
        let ended = QueueSlot::Ended(self.result.take().unwrap_or_else(lost));
        let mut state = self.queue.lock();
        let Some(place) = self.number.checked_sub(state.first) else { return };
        if let Some(slot) = state.slots.get_mut(place as usize) {
            *slot = ended;
        }
        drop(state);
        if place == 0 {
            self.queue.decoded.notify_all();
        }
    }
}

/// A thread that helps. Dropping it ends its admission, also after a panic.
struct Admitted<'a, B, W: Default>(&'a BlockQueue<B, W>);

impl<B, W: Default> Drop for Admitted<'_, B, W> {
    fn drop(&mut self) {
        self.0.dismiss();
    }
}

impl<B, W> BlockQueue<B, W> {
    fn lock(&self) -> MutexGuard<'_, QueueState<B, W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B, W: Default> BlockQueue<B, W> {
    /// Adds blocks at the end; an error takes the place of a block.
    pub(super) fn put(&self, blocks: impl IntoIterator<Item = Result<B>>) {
        let mut state = self.lock();
        for block in blocks {
            state.slots.push_back(match block {
                Ok(block) => QueueSlot::Waiting(block),
                error => QueueSlot::Ended(error),
            });
        }
    }

    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.lock().slots.len()
    }

    /// Admits one more thread to [`BlockQueue::help`], of at most `most`, if there is a block for it.
    pub(super) fn admit(&self, most: usize) -> bool {
        let mut state = self.lock();
        let waiting = (state.first + state.slots.len() as u64).saturating_sub(state.next.max(state.first));
        let is_admitted = state.helpers < most && waiting > state.helpers as u64 + 1;
        state.helpers += usize::from(is_admitted);
        is_admitted
    }

    /// Ends the admission of a thread that does not come.
    pub(super) fn dismiss(&self) {
        self.lock().helpers -= 1;
    }

    /// Drops the blocks that no thread has begun.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        let gone = std::mem::take(&mut state.slots);
        drop(state);
        drop(gone);
    }

    /// Decodes blocks as long as there are any that no thread has begun.
    pub(super) fn help(&self, decode: impl Fn(&mut W, &mut B) -> Result<()>) {
        let _admitted = Admitted(self);
        let mut workspace = self.lock().workspaces.pop().unwrap_or_default();
        loop {
            let Some((begun, block)) = self.begin(&mut self.lock()) else { break };
            Self::end(begun, block, &mut workspace, &decode);
        }
        self.lock().workspaces.push(workspace);
    }

    /// Takes the first block, decoded; meanwhile decodes others. `None` if there is none.
    ///
    /// # Errors
    /// That of the block; `EINTR` if the work is not wanted any more.
    pub(super) fn take(&self, decode: impl Fn(&mut W, &mut B) -> Result<()>) -> Result<Option<B>> {
        let mut state = self.lock();
        loop {
            match state.slots.front() {
                None => return Ok(None),
                Some(QueueSlot::Ended(_)) => {
                    let Some(QueueSlot::Ended(block)) = state.slots.pop_front() else { return Ok(None) };
                    state.first += 1;
                    return block.map(Some);
                }
                Some(QueueSlot::Waiting(_) | QueueSlot::Begun) => {}
            }
            let Some((begun, block)) = self.begin(&mut state) else {
                state = self.decoded.wait(&self.state, state)?;
                continue;
            };
            let mut workspace = state.workspaces.pop().unwrap_or_default();
            drop(state);
            Self::end(begun, block, &mut workspace, &decode);
            state = self.lock();
            state.workspaces.push(workspace);
        }
    }

    /// Begins the first block that no thread has begun.
    fn begin(&self, state: &mut QueueState<B, W>) -> Option<(Begun<'_, B, W>, B)> {
        state.next = state.next.max(state.first);
        loop {
            let number = state.next;
            let slot = state.slots.get_mut((number - state.first) as usize)?;
            state.next += 1;
            if let QueueSlot::Waiting(_) = slot
                && let QueueSlot::Waiting(block) = std::mem::replace(slot, QueueSlot::Begun)
            {
                return Some((Begun { queue: self, number, result: None }, block));
            }
        }
    }

    fn end(mut begun: Begun<'_, B, W>, mut block: B, workspace: &mut W, decode: impl Fn(&mut W, &mut B) -> Result<()>) {
        begun.result = Some(decode(workspace, &mut block).map(|()| block));
    }
}

#[cfg(all(test, shuttle))]
#[path = "../../../../tests/models/block_queue.rs"]
mod models;
