//! The decoders of long frames: created as memory allows, dropped where it is needed more, reused.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::account::Buffer;
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};

use super::super::checkpoint::Resume;
use super::super::decode::{FrameDecoder, WindowMemory};
use super::super::dictionary::Dictionary;
use super::super::frame::{Frame, PIECE, needed};
use super::super::header::Generation;
use super::super::reader::{FrameReader, WholeContent};
use super::long_frame::{Claim, Cursor, LongFrame, PASSED};
use super::{Frames, lock};

/// Memory of a decoder in addition to its window.
pub(super) const DECODER: u64 = 1 << 20;
/// Maximum decoders kept per long frame, and maximum memory of their windows together.
const CURSORS: u64 = 4;
const CURSOR_MEMORY: u64 = 64 << 20;
/// Least stored bytes of a block, on average, to decode several blocks at once.
const BLOCK: u64 = 2 << 10;
/// Maximum long frames that keep decoders and pieces.
const RECENT: usize = 4;

impl Frames {
    /// Creates a reader before the first block of `frame`: with its own window if the account has room for it; else one
    /// that decodes in place; else one that exceeds the account when its turn comes.
    ///
    /// # Errors
    /// Fails if the window is too large, or a decoder cannot be created.
    pub(super) fn reader(&self, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<FrameReader> {
        let (limit, account) = (self.policy.window, &self.policy.account);
        let needed = needed(frame, limit)?;
        let stream = |charge| FrameDecoder::new(frame, dictionary, limit, WindowMemory::Own(charge), account);
        if frame.header.generation == Generation::V07 {
            // It charges its history itself.
            let used = lock(&self.decoders).pop();
            let decoder = match used {
                Some(used) => used.renew(frame, dictionary, limit, account)?,
                None => stream(None)?,
            };
            return Ok(FrameReader::stream(decoder, None));
        }
        if dictionary.is_none()
            && let Some(decoder) = self.on_threads(frame, None)?
        {
            return Ok(FrameReader::stream(decoder, None));
        }
        let with_window = needed.saturating_add(DECODER);
        let mut charge = account.charge_window(with_window, "window");
        while charge.is_err() && self.drop_idle(|reader| !reader.is_whole()) {
            // Reads that jump back are better served by all content than by one decoder after the other.
            charge = account.charge(with_window, "window");
        }
        if let Ok(charge) = charge {
            return Ok(FrameReader::stream(stream(Some(charge))?, None));
        }
        if frame.header.generation == Generation::Modern {
            loop {
                match self.whole_reader(frame, dictionary) {
                    Err(e) if !matches!(e.kind(), Kind::NoRoom { .. }) => return Err(e),
                    Err(_) if self.drop_idle(FrameReader::is_whole) => {}
                    Err(_) => break,
                    whole => return whole,
                }
            }
        }
        let turn = self.turns.wait(|| {
            self.drop_idle(|_| true);
        });
        Ok(FrameReader::stream(stream(None)?, Some(turn)))
    }

    /// Creates a decoder of `frame`, from its start or the checkpoint `resume`, that works on several threads, if that helps:
    /// a file on a server is slower than any decoder, and small blocks take less time than to pass them to a thread.
    ///
    /// # Errors
    /// Fails if the window is too large.
    pub(super) fn on_threads(&self, frame: &Frame, resume: Option<&Resume>) -> Result<Option<FrameDecoder>> {
        if !frame.is_long() || self.source.is_far() || frame.stored / frame.blocks.max(1) < BLOCK {
            return Ok(None);
        }
        let (limit, account) = (self.policy.window, &self.policy.account);
        FrameDecoder::on_threads(frame, resume, limit, account, &self.policy.threads)
    }

    /// Creates a reader that decodes in place; `frame` must be a modern one.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account has no room for the content.
    pub(super) fn whole_reader(&self, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<FrameReader> {
        let buffer = self.policy.account.buffer(frame.content.unwrap_or(frame.bound).min(frame.bound), "content")?;
        self.reader_in(buffer, frame, dictionary)
    }

    /// Creates a reader that decodes in place, in a temporary file; `None` if there is no room for it.
    ///
    /// # Errors
    /// Fails if the window is too large, or the decoder cannot be created.
    pub(super) fn reader_on_disk(&self, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<Option<FrameReader>> {
        let len = frame.content.unwrap_or(frame.bound).min(frame.bound);
        let buffer = self.policy.account.buffer_on_disk(len, "content");
        buffer.ok().map(|buffer| self.reader_in(buffer, frame, dictionary)).transpose()
    }

    fn reader_in(&self, buffer: Buffer, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<FrameReader> {
        let (limit, account) = (self.policy.window, &self.policy.account);
        let decoder = FrameDecoder::new(frame, dictionary, limit, WindowMemory::InPlace, account)?;
        Ok(FrameReader::Whole(WholeContent::new(buffer, decoder)))
    }

    /// Drops the idle readers for which `which` holds; returns whether there were any.
    pub(super) fn drop_idle(&self, which: impl Fn(&FrameReader) -> bool) -> bool {
        let recent: Vec<usize> = lock(&self.recent).iter().copied().collect();
        let mut gone = Vec::new();
        for state in recent.iter().filter_map(|&index| self.existing_state(index)) {
            let mut live = lock(&state.live);
            gone.extend(live.idle.extract_if(.., |cursor| which(&cursor.reader)));
        }
        !gone.is_empty()
    }

    /// Keeps the decoder of a finished reader for reuse, if it is small enough.
    pub(super) fn recycle(&self, reader: FrameReader) {
        let decoder = reader.into_decoder();
        if decoder.is_reusable() {
            lock(&self.decoders).push(decoder);
        }
    }

    /// Makes the reader of a read idle, or drops it at the end of the frame or after `error`, and wakes its waiters.
    #[expect(clippy::too_many_arguments, reason = "the state of one read")]
    pub(super) fn give_back(
        &self,
        index: usize,
        frame: &Frame,
        state: &LongFrame,
        piece: u64,
        cursor: Cursor,
        claim: Claim<'_>,
        error: Option<&Error>,
    ) {
        let is_over = self.content_of(index, frame).is_some_and(|len| cursor.piece.saturating_mul(PIECE) >= len);
        let has_turn = cursor.reader.has_turn();
        let mut old = None;
        let mut live = lock(&state.live);
        claim.end(&mut live);
        match error {
            None if is_over && !cursor.reader.is_whole() => old = Some(cursor),
            None => {
                let most = (CURSOR_MEMORY / frame.header.window.min(frame.bound).max(1)).clamp(1, CURSORS);
                live.idle.push(cursor);
                if to_u64(live.idle.len()) > most {
                    old = Some(live.idle.remove(0));
                }
            }
            Some(error) => {
                let first = cursor.piece.min(piece);
                if error.is_lasting() && live.broken.as_ref().is_none_or(|(other, _)| first < *other) {
                    live.broken = Some((first, error.clone()));
                }
            }
        }
        drop(live);
        state.returned.notify_all();
        if let Some(cursor) = old {
            self.recycle(cursor.reader);
        }
        self.mark_recent(index);
        if has_turn {
            self.turns.note_idle();
        }
    }

    /// Keeps piece `piece`, which a decoder passed over, for later reads.
    pub(super) fn keep_passed(&self, state: &LongFrame, piece: u64, bytes: Vec<u8>) {
        let len = to_u64(bytes.len());
        let Some(charge) = self.policy.account.charge_spare(len, "passed piece").filter(|_| len > 0) else { return };
        let mut live = lock(&state.live);
        live.passed.push_back((piece, Arc::new(bytes), charge));
        let old = if live.passed.len() > PASSED { live.passed.pop_front() } else { None };
        drop(live);
        if let Some(bytes) = old.and_then(|(_, bytes, _)| Arc::into_inner(bytes)) {
            self.pieces.recycle(bytes);
        }
    }

    /// Records that frame `index` was read; drops the decoders and pieces of the least recently read frame.
    pub(super) fn mark_recent(&self, index: usize) {
        let mut recent = lock(&self.recent);
        if recent.back() == Some(&index) {
            return;
        }
        recent.retain(|&other| other != index);
        recent.push_back(index);
        let old = if recent.len() > RECENT { recent.pop_front() } else { None };
        drop(recent);
        if let Some(state) = old.and_then(|old| self.existing_state(old)) {
            let mut live = lock(&state.live);
            let gone = (std::mem::take(&mut live.idle), std::mem::take(&mut live.passed));
            drop(live);
            drop(gone);
        }
    }
}
