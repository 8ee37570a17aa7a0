//! Makes checkpoints of a decoder as it passes.
//!
//! Cost: the headers of each block, the sequences of a block or two and one copy of the window for each checkpoint.
#![forbid(unsafe_code)]

use std::sync::{Arc, PoisonError, Weak};

use crate::bytes::{FileOffset, to_u64};
use crate::error::Result;
use crate::limits::Charge;
use crate::sync::Mutex;

use super::super::header::BlockKind;
use super::entropy::{Entropy, OffsetReader, RepeatOffsets, Section};
use super::{DecoderState, last};

/// Sections of so few sequences are always read, so that the repeat offsets stay known.
const FEW: usize = 64;
/// How far past its planned place a checkpoint may be: blocks of which the repeat offsets are not known are passed over.
const LATE: u64 = 1 << 20;
/// A checkpoint that was not kept is tried again after this part of the spacing.
const AGAIN: u64 = 8;

/// Memory for content before a checkpoint.
#[derive(Debug)]
struct CheckpointRoom {
    bytes: Vec<u8>,
    _charge: Charge,
}

/// Memory that a [`History`] leaves to the next one of the same plan: to map new memory takes longer than to fill it.
type Spare = Mutex<Option<CheckpointRoom>>;

/// The window before a checkpoint.
#[derive(Debug)]
pub(in super::super) struct History {
    /// `None` when it is dropped.
    room: Option<CheckpointRoom>,
    start: usize,
    spare: Weak<Spare>,
}

impl History {
    pub(in super::super) fn bytes(&self) -> &[u8] {
        self.room.as_ref().and_then(|room| room.bytes.get(self.start..)).unwrap_or_default()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.upgrade() {
            let mut spare = spare.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *spare, &mut self.room);
        }
    }
}

/// Keeps checkpoints.
pub(in super::super) trait Sink: Send + Sync {
    /// The place in the content, from `pos` on, of the next checkpoint that is wanted.
    fn next(&self, pos: u64) -> Option<u64>;

    /// A charge for `bytes` of memory; `None` if there is no room.
    fn charge(&self, bytes: u64) -> Option<Charge>;

    /// Whether `bytes` of memory may stay charged between two checkpoints.
    fn may_stay(&self, bytes: u64) -> bool;

    /// Keeps a checkpoint; returns whether it does.
    fn keep(self: Arc<Self>, state: DecoderState, history: History) -> bool;
}

/// Follows the blocks of a frame.
pub(in super::super) struct Recorder {
    entropy: Entropy,
    offsets: RepeatOffsets,
    reader: OffsetReader,
    /// Bytes of content so far.
    pos: u64,
    plan: Option<NextCheckpoint>,
}

/// The next checkpoint.
struct NextCheckpoint {
    sink: Arc<dyn Sink>,
    window: u64,
    spacing: u64,
    /// Where it is wanted.
    next: u64,
    /// Content up to `pos`, from a window before `next` on, unless the decoder has all of it.
    history: Option<CheckpointRoom>,
    spare: Arc<Spare>,
}

impl Recorder {
    pub(super) fn new(entropy: Entropy, offsets: RepeatOffsets, pos: u64) -> Self {
        Self { entropy, offsets, reader: OffsetReader::default(), pos, plan: None }
    }

    /// Follows a frame from its start.
    pub(in super::super) fn from_start() -> Self {
        Self::new(Entropy::default(), RepeatOffsets::INITIAL, 0)
    }

    /// From now on, makes checkpoints for `sink`, which are `spacing` bytes apart.
    pub(in super::super) fn record(&mut self, sink: Arc<dyn Sink>, window: u64, spacing: u64) {
        let Some(next) = sink.next(self.pos.saturating_add(window)) else { return };
        self.plan = Some(NextCheckpoint { sink, window, spacing, next, history: None, spare: Arc::default() });
    }

    /// Follows the content `bytes`, which the decoder has given out.
    pub(in super::super) fn content(&mut self, bytes: &[u8]) {
        self.pos = self.pos.saturating_add(to_u64(bytes.len()));
        if let Some(plan) = &mut self.plan {
            plan.content(self.pos, bytes);
        }
    }

    /// Follows content that stays in a buffer of all content, up to `pos`.
    pub(in super::super) fn content_in_place(&mut self, pos: u64) {
        self.pos = pos;
    }

    /// At the boundary before the block at `at`: makes a checkpoint, if one is wanted here. `whole` is all content before
    /// it, if the decoder has that.
    pub(in super::super) fn boundary(&mut self, at: FileOffset, whole: Option<&[u8]>) {
        let pos = self.pos;
        let Some(plan) = self.plan.as_mut().filter(|plan| pos >= plan.next) else { return };
        let Some(offsets) = self.offsets.known() else {
            if pos > plan.next.saturating_add(LATE) {
                plan.again(pos);
            }
            return;
        };
        let is_kept = plan.take(whole).is_some_and(|history| {
            let reaches = offsets.iter().all(|&offset| to_u64(history.bytes().len()) >= offset.into());
            let state = DecoderState { at, pos, entropy: self.entropy.clone(), offsets };
            reaches && plan.sink.clone().keep(state, history)
        });
        if is_kept {
            match plan.sink.next(pos) {
                Some(next) => plan.next = next,
                None => self.plan = None,
            }
        } else {
            plan.again(pos);
        }
    }

    /// Follows the block `src`, which the decoder is about to decode.
    ///
    /// # Errors
    /// Fails if it is malformed, or repeats a table that the decoder does not have.
    pub(in super::super) fn block(&mut self, kind: BlockKind, src: &[u8]) -> Result<()> {
        if kind != BlockKind::Compressed {
            return Ok(());
        }
        let is_due = self.plan.as_ref().is_some_and(|plan| self.pos.saturating_add(LATE / 4) >= plan.next);
        match self.entropy.block(src)? {
            Some(section) if is_due || section.len <= FEW => self.follow(section),
            Some(_) => self.offsets = RepeatOffsets::UNKNOWN,
            None => {}
        }
        Ok(())
    }

    /// Follows a block that our own decoder has executed, which left these tables and offsets.
    pub(in super::super) fn executed(&mut self, entropy: Option<Entropy>, offsets: RepeatOffsets) {
        if let Some(entropy) = entropy {
            self.entropy = entropy;
        }
        self.offsets = offsets;
    }

    fn follow(&mut self, section: Section<'_>) {
        // libzstd refuses what is malformed.
        if self.reader.follow(section, &self.entropy, &mut self.offsets).is_err() {
            self.offsets = RepeatOffsets::UNKNOWN;
        }
    }
}

impl NextCheckpoint {
    /// Keeps those of the bytes that end at `pos` that the window before the next checkpoint may include.
    fn content(&mut self, pos: u64, bytes: &[u8]) {
        let from = self.next.saturating_sub(self.window);
        if pos <= from {
            return;
        }
        if self.history.is_none() {
            self.history = self.room(self.window.saturating_add(2 * LATE));
        }
        let Some(CheckpointRoom { bytes: history, .. }) = &mut self.history else { return self.again(pos) };
        let wanted = usize::try_from(pos - from).unwrap_or(usize::MAX).min(bytes.len());
        let bytes = bytes.get(bytes.len() - wanted..).unwrap_or_default();
        if history.len().saturating_add(bytes.len()) > history.capacity() {
            let excess = history.len().saturating_sub(usize::try_from(self.window).unwrap_or(0));
            history.drain(..excess);
        }
        history.extend_from_slice(bytes);
    }

    /// Empty memory for `len` bytes, if there is any.
    fn room(&self, len: u64) -> Option<CheckpointRoom> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut room) = spare.filter(|room| to_u64(room.bytes.capacity()) >= len) {
            room.bytes.clear();
            return Some(room);
        }
        let (charge, mut bytes) = (self.sink.charge(len)?, Vec::new());
        bytes.try_reserve_exact(usize::try_from(len).ok()?).ok()?;
        Some(CheckpointRoom { bytes, _charge: charge })
    }

    /// The last window before the boundary.
    fn take(&mut self, whole: Option<&[u8]>) -> Option<History> {
        let room = match whole {
            None => self.history.take()?,
            Some(whole) => {
                let mut room = self.room(self.window)?;
                room.bytes.extend_from_slice(last(whole, self.window)?);
                room
            }
        };
        let start = room.bytes.len().checked_sub(usize::try_from(self.window).ok()?)?;
        let stays = self.sink.may_stay(to_u64(room.bytes.capacity()));
        let spare = if stays { Arc::downgrade(&self.spare) } else { Weak::new() };
        Some(History { room: Some(room), start, spare })
    }

    /// Tries again a little later than `pos`.
    fn again(&mut self, pos: u64) {
        self.history = None;
        let later = pos.saturating_add(self.window).saturating_add(self.spacing / AGAIN);
        self.next = self.sink.next(later).unwrap_or(u64::MAX);
    }
}
