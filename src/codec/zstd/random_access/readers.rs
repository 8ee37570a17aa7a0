//! The decoders of long frames: created as memory allows, dropped where it is needed more, reused.
#![forbid(unsafe_code)]

use crate::account::Buffer;
use crate::error::{Kind, Result};

use super::super::decode::{FrameDecoder, WindowMemory};
use super::super::dictionary::Dictionary;
use super::super::frame::{Frame, needed};
use super::super::header::Generation;
use super::super::reader::{Reader, Whole};
use super::{Frames, lock};

/// Memory of a decoder in addition to its window.
pub(super) const DECODER: u64 = 1 << 20;
/// Maximum long frames that keep decoders and pieces.
const RECENT: usize = 4;

impl Frames {
    /// Creates a reader before the first block of `frame`: with its own window if the account has room for it; else one
    /// that decodes in place; else one that exceeds the account when its turn comes.
    ///
    /// # Errors
    /// Fails if the window is too large, or a decoder cannot be created.
    pub(super) fn reader(&self, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<Reader> {
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
            return Ok(Reader::stream(decoder, None));
        }
        let with_window = needed.saturating_add(DECODER);
        let mut charge = account.charge_window(with_window, "window");
        while charge.is_err() && self.drop_idle(|reader| !reader.is_whole()) {
            // Reads that jump back are better served by all content than by one decoder after the other.
            charge = account.charge(with_window, "window");
        }
        if let Ok(charge) = charge {
            return Ok(Reader::stream(stream(Some(charge))?, None));
        }
        if frame.header.generation == Generation::Modern {
            loop {
                match self.whole_reader(frame, dictionary) {
                    Err(e) if !matches!(e.kind(), Kind::NoRoom { .. }) => return Err(e),
                    Err(_) if self.drop_idle(Reader::is_whole) => {}
                    Err(_) => break,
                    whole => return whole,
                }
            }
        }
        let turn = self.turns.wait(|| {
            self.drop_idle(|_| true);
        });
        Ok(Reader::stream(stream(None)?, Some(turn)))
    }

    /// Creates a reader that decodes in place; `frame` must be a modern one.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account has no room for the content.
    pub(super) fn whole_reader(&self, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<Reader> {
        let buffer = self.policy.account.buffer(frame.content.unwrap_or(frame.bound).min(frame.bound), "content")?;
        self.reader_in(buffer, frame, dictionary)
    }

    /// Creates a reader that decodes in place, in a temporary file; `None` if there is no room for it.
    ///
    /// # Errors
    /// Fails if the window is too large, or the decoder cannot be created.
    pub(super) fn reader_on_disk(&self, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<Option<Reader>> {
        let len = frame.content.unwrap_or(frame.bound).min(frame.bound);
        let buffer = self.policy.account.buffer_on_disk(len, "content");
        buffer.ok().map(|buffer| self.reader_in(buffer, frame, dictionary)).transpose()
    }

    fn reader_in(&self, buffer: Buffer, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<Reader> {
        let (limit, account) = (self.policy.window, &self.policy.account);
        let decoder = FrameDecoder::new(frame, dictionary, limit, WindowMemory::InPlace, account)?;
        Ok(Reader::Whole(Whole::new(buffer, decoder)))
    }

    /// Drops the idle readers for which `which` holds; returns whether there were any.
    pub(super) fn drop_idle(&self, which: impl Fn(&Reader) -> bool) -> bool {
        let recent: Vec<usize> = lock(&self.recent).iter().copied().collect();
        let mut gone = Vec::new();
        for state in recent.iter().filter_map(|&index| self.existing_state(index)) {
            let mut live = lock(&state.live);
            gone.extend(live.idle.extract_if(.., |cursor| which(&cursor.reader)));
        }
        !gone.is_empty()
    }

    /// Keeps the decoder of a finished reader for reuse, if it is small enough.
    pub(super) fn recycle(&self, reader: Reader) {
        let decoder = reader.into_decoder();
        if decoder.is_reusable() {
            lock(&self.decoders).push(decoder);
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
