//! The pieces of a long frame: kept from an earlier read, or decoded by the reader that comes closest before them, or from
//! the checkpoint that does.
//!
//! The last pieces that a decoder passes over are kept for later reads; all pieces that it passes over for the second
//! time are kept, in memory or a temporary file. Locks are held only for look-ups: bytes are read, copied and decoded
//! without them.
//!
//! A frame of 100 pieces without checkpoints. Piece 50 is read: a decoder passes over 0 to 49 and keeps the last six of
//! them. Piece 51: the same decoder goes on. Piece 48: it is among the six. Piece 10: a new decoder passes over 0 to 9,
//! for the second time, so that all of these are kept. Then each of 0 to 9 is there, and 11 is decoded by the decoder
//! that stopped after 10.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::account::decode_budget;
use crate::bytes::to_u64;
use crate::checksum::{ChecksumGate, Verified, Verify};
use crate::error::{Error, Kind, Result};

use super::super::decode::length_error;
use super::super::frame::{Frame, PIECE};
use super::super::header::Generation;
use super::super::v07;
use super::content_size::{Reached, past_end};
use super::long_frame::{Claim, Cursor, LongFrame, PASSED};
use super::resume::{LOADING, is_refused};
use super::whole_pass::touch;
use super::{Frames, inside, lock};

/// How a read of a piece continues.
#[expect(clippy::large_enum_variant, reason = "moved once for each piece that is decoded")]
enum Next<'a> {
    /// The piece is kept in memory.
    Passed(Arc<Vec<u8>>),
    /// The piece is kept in `pieces`.
    Kept,
    /// Decode it with this reader, or a new one.
    Decode(Option<Cursor>, Claim<'a>),
    /// Decode it with a reader that begins at the checkpoint at this byte of the content.
    Resume(u64, Claim<'a>),
}

/// Which readers that began at a checkpoint, or would, may serve a piece.
#[derive(Debug, Clone, Copy)]
struct ResumeFrom {
    idle: bool,
    checkpoints: bool,
}

impl Frames {
    /// Piece `piece` of long frame `index`, if it is in memory and may be served. Does not block.
    pub fn ready(&self, index: usize, piece: u64) -> Option<Arc<Vec<u8>>> {
        let open = self.existing_state(index)?.gate.get()?.is_open();
        if open { self.pieces.in_memory(self.key(index), piece) } else { None }
    }

    /// State of the checksum of frame `index`.
    pub(in super::super) fn verified(&self, index: usize) -> Verified {
        let state = self.existing_state(index);
        if state.as_ref().is_some_and(|state| lock(&state.live).broken.is_some()) {
            return Verified::Failed;
        }
        match (state.as_ref().and_then(|state| state.gate.get()), self.list.get(index)) {
            (Some(gate), _) => gate.verified(),
            _ if lock(&self.failed).contains_key(&index) => Verified::Failed,
            _ if matches!(self.policy.verify, Verify::Off) => Verified::No,
            (None, Some(frame)) if !frame.has_checksum() => Verified::No,
            (None, Some(frame)) if frame.is_long() => Verified::Pending,
            // A small frame is verified with each decode.
            (None, _) => Verified::Yes,
        }
    }

    /// The gate of long frame `index`, unless it is open.
    pub(in super::super) fn shut(self: &Arc<Self>, index: usize) -> Option<ChecksumGate> {
        let state = self.state(index)?;
        let gate = match state.gate.get() {
            Some(gate) => gate,
            None => self.gate(index, &state, &self.list.get(index)?),
        };
        // The decode of the last piece verifies the checksum, so no gate has to withhold it.
        ChecksumGate::shut(Some(gate), false)
    }

    /// When the checksum of long frame `frame` is verified.
    pub(super) fn mode(&self, frame: &Frame) -> Verify {
        // Without a checksum there is nothing to verify: a wrong length is detected at the end of the content.
        if frame.has_checksum() {
            self.policy.verify.resolve(frame.content.unwrap_or(frame.bound).min(frame.bound))
        } else {
            Verify::Off
        }
    }

    pub(super) fn gate<'a>(self: &Arc<Self>, index: usize, state: &'a LongFrame, frame: &Frame) -> &'a ChecksumGate {
        state.gate.get_or_init(|| {
            let (mode, threads) = (self.mode(frame), &self.policy.threads);
            if let Verify::Background(_) = mode {
                // A decode of the last piece starts at the first one and verifies the checksum, unless that was done before.
                let gate = ChecksumGate::reported(&mode, threads);
                if let Some(error) = lock(&self.failed).get(&index) {
                    gate.report(&Err(error.clone()));
                }
                if let Some(passed) = state.pass.ready() {
                    gate.report(&passed.and_then(|passed| passed.seek_checksum.clone()));
                }
                return gate;
            }
            // A weak reference, because the frames own the gate.
            let frames = Arc::downgrade(self);
            let gone = || Error::new(Kind::NotFound, "frame");
            ChecksumGate::new(&mode, 0, threads, move || {
                let frames = frames.upgrade().ok_or_else(gone)?;
                frames.begin_pass(index);
                let passed = frames.pass(index);
                frames.end_pass(index);
                passed?.seek_checksum
            })
        })
    }

    /// Decodes piece `piece` of long frame `index` into `dst`.
    ///
    /// # Errors
    /// Fails if the frame is malformed up to that piece, or one of its checks fails.
    pub fn part(self: &Arc<Self>, index: usize, piece: u64, dst: &mut [u8]) -> Result<()> {
        let (Some(frame), Some(state)) = (self.list.get(index), self.state(index)) else {
            return Err(Error::new(Kind::NotFound, "frame"));
        };
        let inside = |e: Error| inside(index, &frame, e);
        self.gate(index, &state, &frame).wait()?;
        // Before a decoder is claimed, so that no reader waits for the page faults.
        touch(dst);
        self.checkpoints(&frame, &state);
        let mut resume = ResumeFrom { idle: self.may_resume(index, &frame, &state, piece), checkpoints: true };
        loop {
            let (cursor, claim) = match self.next(index, &frame, &state, piece, dst.len(), resume)? {
                Next::Passed(bytes) => {
                    dst.copy_from_slice(&bytes);
                    self.policy.account.count_beside(-(dst.len() as i64));
                    return Ok(());
                }
                Next::Kept if self.pieces.get(self.key(index), piece, dst)? => {
                    self.policy.account.count_beside(-(dst.len() as i64));
                    return Ok(());
                }
                // It is not kept any more.
                Next::Kept => continue,
                Next::Decode(cursor, claim) => (cursor, claim),
                Next::Resume(pos, claim) => match self.resumed(&frame, &state, pos) {
                    Ok(Some(cursor)) => (Some(cursor), claim),
                    Err(e) if matches!(e.kind(), Kind::NoRoom { .. }) => {
                        resume.checkpoints = false;
                        continue;
                    }
                    Err(e) if !e.is_lasting() => return Err(inside(e)),
                    Ok(None) | Err(_) => continue,
                },
            };
            let is_resumed = cursor.as_ref().is_some_and(|cursor| cursor.reader.is_resumed());
            match self.decode_piece(index, &frame, &state, (cursor, claim), piece, dst) {
                // Only the start of the frame can tell whether it is malformed.
                Err(e) if is_resumed && is_refused(&e) => self.give_up_checkpoints(&frame, &state),
                Ok(Reached::End(len)) => return Err(inside(past_end(piece, dst.len(), len))),
                done => return done.map(drop).map_err(inside),
            }
        }
    }

    /// Decodes piece `piece` into `dst` with the reader `cursor`, or one that begins at the start of the frame; or comes
    /// to an end that was not known.
    fn decode_piece(
        &self,
        index: usize,
        frame: &Frame,
        state: &LongFrame,
        (cursor, claim): (Option<Cursor>, Claim<'_>),
        piece: u64,
        dst: &mut [u8],
    ) -> Result<Reached> {
        let new = || {
            let dictionary = self.dictionary(index, frame)?;
            let mut reader = self.reader(frame, dictionary)?;
            self.record(frame, state, &mut reader);
            // The decoders of modern frames verify their checksums.
            let is_own = frame.header.generation == Generation::Modern && frame.checksum.is_some();
            if !is_own && matches!(self.mode(frame), Verify::Background(_)) {
                reader.start_hash();
            }
            Ok(Cursor::new(reader, 0))
        };
        let mut cursor = cursor.map_or_else(new, Ok)?;
        let (is_whole, is_resumed) = (cursor.reader.is_whole(), cursor.reader.is_resumed());
        // Keep pieces that are decoded for the second time. To keep them the first time would make a jump to the end several
        // times slower than reading there. From a checkpoint it is never far.
        let is_again = cursor.piece < state.furthest.fetch_max(piece, Ordering::Relaxed);
        if !is_whole && !is_resumed && is_again && piece - cursor.piece > to_u64(PASSED) {
            state.jumped.store(true, Ordering::Relaxed);
        }
        let done = self.advance(frame, state, index, &mut cursor, piece, dst);
        if is_resumed && done.as_ref().is_err_and(is_refused) {
            return done;
        }
        if let (Err(error), Some(gate)) = (&done, state.gate.get())
            && (cursor.reader.is_mismatch() || matches!(error.kind(), Kind::Checksum { .. }))
        {
            let error = inside(index, frame, error.clone());
            gate.report(&Err(error.clone()));
            lock(&self.failed).insert(index, error);
        }
        let error = done.as_ref().err().map(|e| inside(index, frame, e.clone()));
        self.give_back(index, frame, state, piece, cursor, claim, error.as_ref());
        let done = done?;
        if !matches!(done, Reached::Piece) {
            return Ok(done);
        }
        // Concurrent with the next decode. Sequential readers and whole buffers do not need the piece again.
        if !is_whole
            && state.jumped.load(Ordering::Relaxed)
            && self.pieces.is_on()
            && let Ok(mut bytes) = self.pieces.buffer(dst.len())
        {
            bytes.copy_from_slice(dst);
            self.pieces.put(self.key(index), piece, bytes);
        }
        Ok(done)
    }

    /// Finds piece `piece` of `len` bytes, or the reader to decode it with; waits for one that is on its way there.
    fn next<'a>(
        &self,
        index: usize,
        frame: &Frame,
        state: &'a LongFrame,
        piece: u64,
        len: usize,
        resume: ResumeFrom,
    ) -> Result<Next<'a>> {
        let mut live = lock(&state.live);
        loop {
            if let Some((_, error)) = live.broken.as_ref().filter(|(first, _)| *first <= piece) {
                return Err(error.clone());
            }
            let end = piece.saturating_mul(PIECE).saturating_add(to_u64(len.max(1)));
            if let Some(content) = self.content_of(index, frame).filter(|&content| content < end) {
                return Err(past_end(piece, len, content));
            }
            if let Some((_, bytes, _)) = live.passed.iter().find(|(p, bytes, _)| *p == piece && bytes.len() == len) {
                return Ok(Next::Passed(Arc::clone(bytes)));
            }
            if self.pieces.has(self.key(index), piece, len) {
                return Ok(Next::Kept);
            }
            // The piece that a reader continues from; one with random access can always continue at this piece.
            let place = |cursor: &Cursor| if cursor.reader.is_whole() { piece } else { cursor.piece };
            let is_usable = |cursor: &Cursor| place(cursor) <= piece && (resume.idle || !cursor.reader.is_resumed());
            let idle = (0..live.idle.len()).filter(|&i| is_usable(&live.idle[i]));
            let idle = idle.max_by_key(|&i| place(&live.idle[i]));
            let behind = idle.map_or(0, |i| place(&live.idle[i]));
            let is_asked = resume.idle && resume.checkpoints;
            let checkpoint = if is_asked { self.nearest(frame, state, piece, behind) } else { None };
            let begin = checkpoint.map_or(behind, |pos| pos.div_ceil(PIECE).saturating_sub(LOADING));
            // A decoder that will reach this piece, or stop closer before it than where another would begin, is worth
            // waiting for.
            let reaches = |out: &Range<u64>| out.contains(&piece) && (checkpoint.is_none() || out.start >= begin);
            let near = |out: &Range<u64>| reaches(out) || (out.end <= piece && out.end > begin);
            if live.busy.iter().any(near) {
                live = state.returned.wait(&state.live, live)?;
                continue;
            }
            if let Some(pos) = checkpoint {
                let out = pos.div_ceil(PIECE)..piece.saturating_add(1);
                live.busy.push(out.clone());
                return Ok(Next::Resume(pos, Claim::new(state, out)));
            }
            let cursor = idle.map(|i| live.idle.swap_remove(i));
            let out = match &cursor {
                Some(cursor) if cursor.reader.is_whole() => 0..u64::MAX,
                Some(cursor) => cursor.piece..piece.saturating_add(1),
                None => 0..piece.saturating_add(1),
            };
            live.busy.push(out.clone());
            return Ok(Next::Decode(cursor, Claim::new(state, out)));
        }
    }

    /// Advances `cursor` to `piece`, keeping the pieces passed over, and decodes `piece` into `dst`.
    fn advance(
        &self,
        frame: &Frame,
        state: &LongFrame,
        index: usize,
        cursor: &mut Cursor,
        piece: u64,
        dst: &mut [u8],
    ) -> Result<Reached> {
        if cursor.reader.is_whole() {
            cursor.seek(piece);
        }
        while cursor.piece < piece {
            self.check_open()?;
            decode_budget::charge_opening(PIECE)?;
            let mut bytes = self.pieces.buffer(PIECE as usize)?;
            let passed = cursor.piece;
            let reached = self.fill(index, frame, state, cursor, &mut bytes)?;
            bytes.truncate(reached.of(passed));
            self.policy.account.count_beside(bytes.len() as i64);
            let keep = state.jumped.load(Ordering::Relaxed);
            let left = if keep { self.pieces.put(self.key(index), passed, bytes) } else { Some(bytes) };
            if let Some(bytes) = left {
                self.keep_passed(state, passed, bytes);
            }
            if !matches!(reached, Reached::Piece) {
                return Ok(reached);
            }
        }
        let reached = self.fill(index, frame, state, cursor, dst)?;
        if !matches!(reached, Reached::Piece) {
            let got = dst.get(..reached.of(piece)).unwrap_or_default();
            let mut bytes = self.pieces.buffer(got.len())?;
            bytes.copy_from_slice(got);
            self.policy.account.count_beside(bytes.len() as i64);
            self.keep_passed(state, piece, bytes);
            return Ok(reached);
        }
        // The last piece: no content may follow.
        let Some(len) = self.content_of(index, frame).filter(|&len| len <= cursor.piece.saturating_mul(PIECE)) else {
            return Ok(Reached::Piece);
        };
        let excess = cursor.excess(&self.source, frame)?;
        if excess > 0 {
            return Err(length_error(len.saturating_add(to_u64(excess)), len));
        }
        self.check_passed(index, frame, state, cursor).map(|()| Reached::Piece)
    }

    /// Compares the checksums of a frame with those of a decoder that came to its end from its start.
    pub(super) fn check_passed(&self, index: usize, frame: &Frame, state: &LongFrame, cursor: &Cursor) -> Result<()> {
        if cursor.reader.is_resumed() {
            return Ok(());
        }
        if let Some(hash) = cursor.reader.digest() {
            v07::check(frame, || hash)?;
            frame.served_checksum().map_or(Ok(()), |sum| sum.check(hash))?;
        }
        if let Some(gate) = state.gate.get() {
            gate.report(&Ok(()));
        }
        if matches!(self.mode(frame), Verify::Background(_)) {
            self.note_verified(index, frame);
        }
        Ok(())
    }
}
