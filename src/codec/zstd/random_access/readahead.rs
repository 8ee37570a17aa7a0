//! Long frames that are decoded before a reader reaches them, one on each thread, and freed behind it.
//!
//! A thread decodes a frame from its start, so several threads help a reader only if each decodes a frame of its own.
//! The pieces go to the store of kept pieces, from which they are served without being copied.
//!
//! Limits: the frames that a reader has read, is reading, and will find decoded take at most [`AHEAD`] bytes in total,
//! and fit in the memory of the store; a larger frame is decoded when it is read. At most as many frames as threads are
//! decoded ahead.
//!
//! Frames of 8 MiB, four threads: with its third piece in order (3 MiB) the reader's frame and the four after it are
//! admitted, 40 of 46 MiB, and those four are decoded, one on each thread. As the reader moves on, the pieces behind it
//! are freed, and every two pieces there is another attempt to admit a frame.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::bytes::to_usize;
use crate::checksum::Verify;
use crate::error::Result;

use super::super::frame::{Frame, PIECE};
use super::long_frame::{Claim, Filling, LongFrame};
use super::{Frames, inside, lock};

/// Maximum decoded bytes of the frames of sequential readers.
pub(super) const AHEAD: u64 = 46 << 20;
/// Pieces that are read in order before the next frames are decoded.
const PATIENCE: u64 = 3;
/// How far a read may be from the expected piece.
const SLACK: u64 = 3;
/// How far other reads of a reader may be ahead of its read that waits for the first piece.
const AGAIN: u64 = 8;
/// How long a frame that is not read to its end is kept for its reader if another one needs the room.
const FRESH: Duration = Duration::from_secs(2);

/// How long a reader waits for a frame that no thread has begun to decode ahead.
const QUEUED: Duration = Duration::from_millis(100);

/// Pieces between two attempts to decode further frames ahead, for which there may be room by then.
const STEP: u64 = 2;
/// Pieces before the last requested one that requests in progress may need. A reader of each byte in order has one.
const BEHIND: u64 = 4;

/// Number of freed frames with their end kept: a request may begin there and wait for the next frame.
const ENDS: usize = 2;

/// The frames of sequential readers.
#[derive(Default)]
pub(super) struct ReadaheadQueue {
    /// In the order in which they were admitted.
    frames: VecDeque<QueuedFrame>,
    /// The frames freed most recently, except for their ends.
    ends: VecDeque<QueuedFrame>,
}

/// A frame that is being read in order, or will be.
struct QueuedFrame {
    index: usize,
    len: u64,
    /// Pieces from the start that are freed already.
    freed: u64,
    since: Instant,
}

impl QueuedFrame {
    /// The pieces that are not freed yet and precede any request that reaches into the next frame.
    fn pieces_before_end(&self) -> Range<u64> {
        self.freed..before_end(self.len)
    }

    /// Bytes that are not freed.
    fn left(&self) -> u64 {
        self.len.saturating_sub(self.freed.saturating_mul(PIECE))
    }
}

/// A frame that is queued to be decoded ahead, or is being. Dropping it lets its readers continue on their own.
struct FillJob(Arc<LongFrame>);

impl Drop for FillJob {
    fn drop(&mut self) {
        lock(&self.0.live).filling = Filling::No;
        self.0.returned.notify_all();
    }
}

impl Frames {
    /// Records that a reader has requested piece `piece` of frame `index`, if that is long. If the pieces are read in
    /// order, has the next frames decoded.
    pub fn note_read(self: &Arc<Self>, index: usize, piece: u64) {
        if !self.pieces.is_on() {
            return;
        }
        let Some(state) = self.state(index) else { return };
        let after = piece.saturating_add(1);
        // The first piece again, by a request other than the one that has waited for it: another reader begins.
        let begins_again = |next: u64| piece == 0 && (next > AGAIN || self.is_read(index, next));
        let follows = |next: u64| (next..next.saturating_add(SLACK)).contains(&piece) || begins_again(next);
        let moved =
            state.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| follows(next).then_some(after));
        let Ok(next) = moved else { return };
        let is_again = begins_again(next);
        let patience = if self.pieces.reads_once() { 1 } else { PATIENCE };
        let is_step = next / STEP < after / STEP && self.is_admitted(index);
        if is_again || (next < patience && patience <= after) || is_step {
            self.decode_ahead(index);
        }
    }

    /// Whether frame `index` was admitted for its reader.
    fn is_admitted(&self, index: usize) -> bool {
        lock(&self.readahead).frames.iter().any(|frame| frame.index == index)
    }

    /// Whether frame `index` has no more than `pieces` pieces.
    fn is_read(&self, index: usize, pieces: u64) -> bool {
        let len = self.ahead_len(index);
        len.is_some_and(|len| len <= pieces.saturating_mul(PIECE))
    }

    /// Bytes of content of frame `index`, if they are stated or counted.
    pub(super) fn ahead_len(&self, index: usize) -> Option<u64> {
        let bound = self.list.get(index)?.bound;
        self.known(index)?.ok().filter(|&len| len <= bound)
    }

    /// Prepares to decode all of frame `index` for its reader: the frames after it are decoded at the same time if it
    /// is known that they will be read.
    pub(super) fn begin_pass(self: &Arc<Self>, index: usize) {
        let Some(state) = self.state(index) else { return };
        let is_ahead = state.is_decoded.swap(true, Ordering::Relaxed);
        if !is_ahead && self.pieces.reads_once() {
            self.decode_ahead(index);
        }
    }

    /// Records that all of frame `index` was decoded for its reader. A thread that has yet to begin would decode it
    /// again, and keep pieces that the reader has passed.
    pub(super) fn end_pass(&self, index: usize) {
        let Some(state) = self.existing_state(index) else { return };
        let mut live = lock(&state.live);
        if live.filling == Filling::Queued {
            live.filling = Filling::No;
        }
    }

    /// Has the frames after frame `index` decoded, as many as fit.
    pub(super) fn decode_ahead(self: &Arc<Self>, index: usize) {
        let Some(len) = self.ahead_len(index) else { return };
        if !self.admit(index, len, len) {
            return;
        }
        let behind = self.pieces_behind(index, len);
        let mut sum = len.saturating_sub(behind.saturating_mul(PIECE));
        self.free(index, behind);
        if self.pieces.reads_once() {
            self.start(index);
        }
        let last = index.saturating_add(self.policy.threads.most());
        for next in index.saturating_add(1)..=last {
            let Some(len) = self.ahead_len(next) else { return };
            sum = sum.saturating_add(len);
            if !self.admit(next, len, sum) || !self.start(next) {
                return;
            }
        }
    }

    /// Has frame `index` decoded, unless it is or was. Returns whether frames after it may be, too.
    fn start(self: &Arc<Self>, index: usize) -> bool {
        let Some(frame) = self.list.get(index) else { return false };
        let Some(state) = self.state(index).filter(|_| !matches!(self.mode(&frame), Verify::Background(_))) else {
            return false;
        };
        if state.is_decoded.swap(true, Ordering::Relaxed) {
            return true;
        }
        let mut live = lock(&state.live);
        if !live.busy.is_empty() || !live.idle.is_empty() || live.broken.is_some() {
            // A reader decodes it.
            return true;
        }
        live.filling = Filling::Queued;
        drop(live);
        let (job, frames) = (FillJob(state), Arc::downgrade(self));
        self.policy.threads.run(Box::new(move || {
            if let Some(frames) = frames.upgrade() {
                // The reader of the frame meets the same error.
                let _ = frames.fill_ahead(index, &frame, &job.0);
            }
            drop(job);
        }));
        true
    }

    /// Whether piece `piece` of frame `index` is in memory or is being decoded ahead.
    pub fn is_coming(&self, index: usize, piece: u64) -> bool {
        let Some(state) = self.existing_state(index) else { return false };
        lock(&state.live).filling != Filling::No || self.pieces.in_memory(self.key(index), piece).is_some()
    }

    /// As [`Frames::ready`], but waits for a piece that is being decoded ahead. If no thread begins to within
    /// [`QUEUED`], because all are busy with long checks, leaves the frame to its reader.
    pub fn ready_soon(&self, index: usize, piece: u64) -> Option<Arc<Vec<u8>>> {
        let state = self.existing_state(index)?;
        let since = Instant::now();
        loop {
            if let Some(bytes) = self.ready(index, piece) {
                return Some(bytes);
            }
            let mut live = lock(&state.live);
            if live.filling == Filling::No || !state.gate.get()?.is_open() {
                return None;
            }
            // The next piece may have come since; each one wakes its readers under the lock.
            if self.pieces.in_memory(self.key(index), piece).is_some() {
                continue;
            }
            let left = (live.filling == Filling::Queued).then(|| QUEUED.saturating_sub(since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                live.filling = Filling::No;
                return None;
            }
            // A reader that gives up meets that next.
            drop(state.returned.wait_for(&state.live, live, left).ok()?);
        }
    }

    /// Makes room for frame `index`, of `len` bytes, with which its reader has `sum` bytes. Frees frames that were
    /// read; returns whether there is room.
    fn admit(&self, index: usize, len: u64, sum: u64) -> bool {
        let memory = self.pieces.memory();
        let most = AHEAD.min(memory.total());
        if sum > most {
            return false;
        }
        let mut queue = lock(&self.readahead);
        if queue.frames.iter().any(|frame| frame.index == index) {
            return true;
        }
        let mut gone = Vec::new();
        let mut held = queue.frames.iter().fold(len, |sum, frame| sum.saturating_add(frame.left()));
        while held > most
            && let Some(oldest) = queue.frames.front_mut()
        {
            held -= oldest.left();
            if !self.is_over(oldest) {
                let behind = oldest.freed..self.pieces_behind(oldest.index, oldest.len).max(oldest.freed);
                oldest.freed = behind.end;
                held += oldest.left();
                gone.push((oldest.index, behind));
                break;
            }
            let Some(oldest) = queue.frames.pop_front() else { break };
            gone.push((oldest.index, oldest.pieces_before_end()));
            if let Some(state) = self.existing_state(oldest.index) {
                state.is_decoded.store(false, Ordering::Relaxed);
            }
            queue.ends.push_back(oldest);
        }
        let old = queue.ends.len().saturating_sub(ENDS);
        for old in queue.ends.drain(..old).collect::<Vec<_>>() {
            if queue.frames.iter().all(|frame| frame.index != old.index) {
                gone.push((old.index, old.pieces_before_end().end..old.len.div_ceil(PIECE)));
            }
        }
        let (is_first, keep) = (sum == len, to_usize(most / PIECE, "pieces").unwrap_or(0));
        let fits = held <= most && (is_first || len <= memory.total().saturating_sub(memory.used()));
        if fits {
            queue.frames.push_back(QueuedFrame { index, len, freed: 0, since: Instant::now() });
        }
        drop(queue);
        for (index, pieces) in gone {
            self.pieces.forget(self.key(index), pieces, keep);
        }
        fits
    }

    /// Frees the first `behind` pieces of frame `index`. The next frames are decoded into their buffers, which have
    /// mapped memory.
    fn free(&self, index: usize, behind: u64) {
        let mut queue = lock(&self.readahead);
        let Some(frame) = queue.frames.iter_mut().find(|frame| frame.index == index) else { return };
        let gone = frame.freed..behind.max(frame.freed);
        frame.freed = gone.end;
        drop(queue);
        let keep = to_usize(AHEAD / PIECE, "pieces").unwrap_or(0);
        self.pieces.forget(self.key(index), gone, keep);
    }

    /// Whether a frame may be freed: it was read to its end, or given up, and no thread decodes it.
    fn is_over(&self, frame: &QueuedFrame) -> bool {
        let Some(state) = self.existing_state(frame.index) else { return true };
        let is_read = state.next.load(Ordering::Relaxed).saturating_mul(PIECE) >= frame.len;
        (is_read || frame.since.elapsed() > FRESH) && lock(&state.live).filling == Filling::No
    }

    /// The pieces at the start of frame `index`, of `len` bytes, that its reader has passed.
    fn pieces_behind(&self, index: usize, len: u64) -> u64 {
        let behind = if self.pieces.reads_once() { 1 } else { BEHIND };
        let next = self.existing_state(index).map_or(0, |state| state.next.load(Ordering::Relaxed));
        next.saturating_sub(behind).min(before_end(len))
    }

    /// Decodes all of frame `index` into the store, unless a reader has begun to decode it.
    fn fill_ahead(self: &Arc<Self>, index: usize, frame: &Frame, state: &LongFrame) -> Result<()> {
        let gate = self.gate(index, state, frame);
        if gate.is_withheld() {
            return gate.check();
        }
        let mut live = lock(&state.live);
        if live.filling != Filling::Queued || !live.busy.is_empty() || !live.idle.is_empty() || live.broken.is_some() {
            // A reader was faster.
            return Ok(());
        }
        live.filling = Filling::Running;
        live.busy.push(0..u64::MAX);
        drop(live);
        let claim = Claim::new(state, 0..u64::MAX);
        let dictionary = self.dictionary(index, frame)?;
        let mut reader = self.reader(frame, dictionary)?;
        self.record(frame, state, &mut reader);
        let fresh = || self.pieces.buffer(to_usize(PIECE, "piece")?);
        let put = |piece, bytes| {
            let left = self.pieces.put(self.key(index), piece, bytes);
            // Under the lock, so that a reader that has just looked for the piece is woken.
            drop(lock(&state.live));
            state.returned.notify_all();
            left
        };
        let done = self.decode_all(index, frame, false, reader, fresh, put).map_err(|e| inside(index, frame, e));
        drop(claim);
        self.recycle(done?.2);
        Ok(())
    }
}

/// The pieces of a frame of `len` bytes that precede any request that reaches into the next frame: a request is no
/// longer than a piece.
fn before_end(len: u64) -> u64 {
    len.saturating_sub(PIECE) / PIECE
}
