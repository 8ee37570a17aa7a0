//! Random access to the decoded bytes of frames: small frames are decoded whole, long ones piece by piece.
//!
//! A long frame can only be decoded from its start. A few decoders are kept where they stopped, so that forward and
//! nearby reads continue from there; the pieces that a decoder passes over are kept for later reads: a few in memory,
//! the rest in a temporary file. See `reader` for frames whose window does not fit in memory.
//!
//! Checked: content size and checksum of a small frame with each decode; those of a long frame in one pass over it,
//! before its first byte is served or as `verify=` says. If a frame has no checksum but the seek table has one for it,
//! that is verified at the same times, and never with `verify=off`.
//!
//! Limits: decoders, their windows and the pieces kept are charged to the account.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;

use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::account::{Account, Pieces};
use crate::bytes::to_u64;
use crate::checksum::{ChecksumGate, Helpers, Threads, Verify};
use crate::error::{Error, Kind, Result};
use crate::limits::{Charge, Limits};
use crate::once::Once;
use crate::source::Source;

use super::decode::{self, FrameDecoder, Window, length_error};
use super::dictionary::{Dictionaries, Dictionary};
use super::frame::Frame;
use super::frame_scan::pay;
use super::header::Generation;
use super::measure::Measure;
use super::reader::{Reader, Turns, Whole};
use super::small::Small;
use super::v07;

/// Bytes of a piece of a long frame; maximum bytes of a piece of several small frames.
pub const PIECE: u64 = 1 << 20;
/// A frame that may decode to more is long.
pub(super) const LONG: u64 = 4 << 20;
/// Maximum window that zstd itself writes or reads; the memory allowed for windows is a separate limit.
const MAX_WINDOW: u64 = 1 << 31;
/// Maximum decoders kept per long frame, and maximum memory of their windows together.
const CURSORS: u64 = 4;
const CURSOR_MEMORY: u64 = 64 << 20;
/// Memory of a decoder in addition to its window.
const DECODER: u64 = 1 << 20;
/// Limit on decoding a frame of unknown size: the larger of this many bytes and this multiple of the stored size.
const COUNTED: (u64, u64) = (1 << 30, 1024);
/// Maximum errors kept of frames that could not be counted.
const ERRORS: usize = 1024;
/// The size of a frame that is not counted yet.
const UNKNOWN: u64 = u64::MAX;
/// Maximum long frames that keep decoders and pieces.
const RECENT: usize = 4;
/// Maximum passed pieces kept in memory per long frame.
const PASSED: usize = 6;

/// How frames are decoded.
#[derive(Debug, Clone)]
pub struct Policy {
    /// When the checksum of a long frame is verified.
    pub verify: Verify,
    /// The threads that verify it.
    pub threads: Threads,
    /// Maximum history of one decoder, in bytes.
    pub window: u64,
    /// Maximum content of a frame whose size must be counted.
    pub content: u64,
    /// Charged for decoders.
    pub account: Account,
}

/// The frames, and what is known about them beyond their headers.
pub struct Frames {
    /// The file that contains them.
    pub source: Arc<Source>,
    /// Their headers.
    pub list: Vec<Frame>,
    dictionaries: Dictionaries,
    policy: Policy,
    pieces: Arc<Pieces>,
    /// Cache key of the first frame's pieces; the other frames follow.
    owner: u64,
    /// State of the long frames.
    states: HashMap<usize, State>,
    /// Counted sizes by frame; empty if all frames state theirs.
    counted: Vec<AtomicU64>,
    /// Errors of frames that could not be counted.
    errors: Mutex<HashMap<usize, Error>>,
    measures: Mutex<Vec<Measure>>,
    smalls: Mutex<Vec<Small>>,
    /// Idle decoders of 0.7 frames.
    decoders: Mutex<Vec<FrameDecoder>>,
    /// The long frames read most recently: only these keep decoders and pieces.
    recent: Mutex<VecDeque<usize>>,
    turns: Turns,
    /// For the list, and for the state kept per frame.
    _charges: [Option<Charge>; 2],
}

#[derive(Default)]
struct State {
    /// The result of decoding the whole frame once.
    pass: Once<Passed>,
    /// The index of its dictionary among the candidates.
    dictionary: Once<usize>,
    gate: OnceLock<ChecksumGate>,
    live: Mutex<Live>,
    returned: Condvar,
    /// Whether reads are not sequential: decoded pieces are then likely to be read again.
    jumped: AtomicBool,
}

/// The result of decoding a frame from start to end without error.
#[derive(Debug, Clone)]
struct Passed {
    /// Bytes of content.
    len: u64,
    /// Result of the seek table's checksum. If it differs, the table may be wrong, and the length is still valid.
    seek_checksum: Result<()>,
}

/// The decoders of one long frame.
#[derive(Default)]
struct Live {
    idle: Vec<Cursor>,
    /// The pieces that decoders in use are passing through.
    busy: Vec<Range<u64>>,
    /// Pieces that a decoder passed over, oldest first, for later reads.
    passed: VecDeque<(u64, Vec<u8>, Charge)>,
    /// The first piece that cannot be decoded, and why.
    broken: Option<(u64, Error)>,
}

/// A reader that stopped at the start of a piece.
struct Cursor {
    reader: Reader,
    piece: u64,
}

/// The pieces that a reader is under way to; given up when it ends, also by a panic, so that nobody waits for it.
struct Claim<'a> {
    state: &'a State,
    out: Option<Range<u64>>,
}

impl Claim<'_> {
    /// Gives the pieces up under the lock under which the reader becomes idle: a waiter finds one or the other.
    fn end(mut self, live: &mut Live) {
        if let Some(out) = self.out.take() {
            live.no_longer(&out);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(out) = self.out.take() {
            lock(&self.state.live).no_longer(&out);
            self.state.returned.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Frames {
    /// The frames `list` of `source`; `scanned` is the charge for the list. Decodes nothing.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account has no room for the state of so many frames.
    pub fn new(
        source: Arc<Source>,
        list: Vec<Frame>,
        scanned: Option<Charge>,
        dictionaries: Dictionaries,
        policy: Policy,
        pieces: Arc<Pieces>,
    ) -> Result<Arc<Self>> {
        let is_unknown = list.iter().any(|f| f.content.is_none());
        let count = if is_unknown { to_u64(list.len()) } else { 0 };
        let long = to_u64(list.iter().filter(|f| is_long(f)).count());
        let charge = pay(&policy.account, count * 8 + 2 * long * to_u64(size_of::<State>()), "list of frames")?;
        let states = (0..).zip(&list).filter(|(_, f)| is_long(f)).map(|(i, _)| (i, State::default())).collect();
        let owner = pieces.owners(to_u64(list.len()));
        Ok(Arc::new(Self {
            counted: (0..count).map(|_| AtomicU64::new(UNKNOWN)).collect(),
            errors: Mutex::default(),
            measures: Mutex::default(),
            smalls: Mutex::default(),
            turns: Turns::default(),
            _charges: [scanned, charge],
            source,
            list,
            dictionaries,
            policy,
            pieces,
            owner,
            states,
            decoders: Mutex::default(),
            recent: Mutex::default(),
        }))
    }

    /// The account that decoders are charged to.
    pub(super) fn account(&self) -> &Account {
        &self.policy.account
    }

    fn key(&self, index: usize) -> u64 {
        self.owner.saturating_add(to_u64(index))
    }

    /// A gate for a check that decodes whole frames.
    pub(super) fn whole(&self, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> ChecksumGate {
        ChecksumGate::new(Verify::First, &self.policy.threads, check)
    }

    /// Threads that may decode in addition to the caller's.
    pub(super) fn helpers(&self, wanted: u64) -> Helpers {
        self.policy.threads.helpers(wanted)
    }

    /// Frame `index`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if `index` is out of range.
    pub fn frame(&self, index: usize) -> Result<&Frame> {
        self.list.get(index).ok_or_else(|| Error::new(Kind::NotFound, "frame"))
    }

    /// Whether frame `index` is long, that is, decoded piece by piece.
    pub fn is_long(&self, index: usize) -> bool {
        self.list.get(index).is_some_and(is_long)
    }

    /// Bytes of content of frame `index`, if stated or already counted.
    pub fn known(&self, index: usize) -> Option<Result<u64>> {
        let frame = self.list.get(index)?;
        match frame.content {
            Some(len) if len > frame.bound => {
                let e = Error::corrupt(format!("{len} bytes, its blocks give at most {}", frame.bound), "content size");
                Some(Err(e.at(frame.at.plus(5)).within(format_args!("frame {index}"))))
            }
            Some(len) => Some(Ok(len)),
            None => match self.counted.get(index)?.load(Ordering::Relaxed) {
                UNKNOWN => lock(&self.errors).get(&index).cloned().map(Err),
                len => Some(Ok(len)),
            },
        }
    }

    /// Bytes of content of frame `index`; counted once if neither the frame nor its blocks state it.
    ///
    /// # Errors
    /// Fails if the frame is malformed.
    pub fn size(&self, index: usize) -> Result<u64> {
        if let Some(known) = self.known(index) {
            return known;
        }
        let counted = self.count(index);
        match &counted {
            Ok(len) => {
                if let Some(place) = self.counted.get(index) {
                    place.store(*len, Ordering::Relaxed);
                }
            }
            Err(error) if error.is_lasting() => {
                let mut errors = lock(&self.errors);
                if errors.len() < ERRORS {
                    errors.insert(index, error.clone());
                }
            }
            Err(_) => {}
        }
        counted
    }

    /// Counts the content of frame `index`: from the lengths of its sequences, or by decoding it.
    fn count(&self, index: usize) -> Result<u64> {
        let frame = self.frame(index)?;
        let inside = |e: Error| inside(index, frame, e);
        match self.measure(frame).map_err(inside)? {
            Some(len) => Limits::check(len, self.policy.content, "content size").map_err(inside),
            None if is_long(frame) => self.wait(index).map(|pass| pass.len),
            None => self.check(index),
        }
    }

    /// Counts the content of `frame` without decoding, if possible.
    fn measure(&self, frame: &Frame) -> Result<Option<u64>> {
        let mut measure = lock(&self.measures).pop().unwrap_or_default();
        let counted = measure.frame(&self.source, frame);
        lock(&self.measures).push(measure);
        counted
    }

    /// The content size of `frame` and true, if stated or counted; otherwise an upper limit, which depends on the
    /// stored size, and false.
    fn expected(&self, index: usize, frame: &Frame) -> Result<(u64, bool)> {
        let known = match (frame.content, self.counted.get(index).map(|n| n.load(Ordering::Relaxed))) {
            (Some(content), _) => Some(content),
            (None, Some(counted)) if counted != UNKNOWN => Some(counted),
            _ => self.measure(frame)?,
        };
        let limit = COUNTED.0.max(frame.stored.saturating_mul(COUNTED.1)).min(self.policy.content);
        Ok(known.map_or((frame.bound.min(limit), false), |len| (len, true)))
    }

    /// Decodes frame `index`, which must not be long, into `dst`.
    ///
    /// # Errors
    /// Fails if the frame is malformed, or `dst` does not have the length of its content.
    pub fn small(&self, index: usize, dst: &mut [u8]) -> Result<()> {
        let frame = self.frame(index)?;
        let listed = frame.served_checksum().filter(|_| !matches!(self.policy.verify, Verify::Off));
        let done = self.small_of(frame, dst).and_then(|()| listed.map_or(Ok(()), |sum| sum.check(xxh64(dst, 0))));
        done.map_err(|e| inside(index, frame, e))
    }

    fn small_of(&self, frame: &Frame, dst: &mut [u8]) -> Result<()> {
        let dictionary = self.choose(frame, |dictionary| {
            self.small_with(frame, dictionary, dst)?;
            Ok(xxh64(dst, 0))
        })?;
        self.small_with(frame, dictionary, dst)
    }

    /// Decodes `frame` with `dictionary`.
    fn small_with(&self, frame: &Frame, dictionary: Option<&Dictionary>, dst: &mut [u8]) -> Result<()> {
        if frame.header.generation == Generation::Modern {
            return self.with_small(|small| small.fill(&self.source, frame, dictionary, dst));
        }
        let mut reader = self.reader(frame, dictionary)?;
        let got = reader.fill(&self.source, frame, dst)? + reader.excess(&self.source, frame)?;
        self.done_with(reader);
        if got != dst.len() {
            return Err(length_error(to_u64(got), to_u64(dst.len())));
        }
        check_old(frame, || xxh64(dst, 0))
    }

    /// Runs `decode` with a decoder for small frames, which is kept for reuse if the account has room.
    fn with_small<T>(&self, decode: impl FnOnce(&mut Small) -> Result<T>) -> Result<T> {
        let idle = lock(&self.smalls).pop();
        let mut small = idle.map_or_else(Small::new, Ok)?;
        let done = decode(&mut small);
        if small.settle(&self.policy.account) {
            lock(&self.smalls).push(small);
        }
        done
    }

    /// Selects the dictionary of `frame`. With several candidates, `attempt` decodes with each and returns the hash of
    /// the content: the frame's checksum decides; without one, the content must not depend on the choice.
    ///
    /// # Errors
    /// Fails if no candidate fits, or candidates give different contents.
    fn choose(
        &self,
        frame: &Frame,
        mut attempt: impl FnMut(Option<&Dictionary>) -> Result<u64>,
    ) -> Result<Option<&Dictionary>> {
        let all = self.needs(frame)?;
        if let [only] = *all {
            return Ok(only);
        }
        let (mut found, mut wrong): (Option<(Option<&Dictionary>, u64)>, _) = (None, None);
        for dictionary in all {
            match (attempt(dictionary), found) {
                (Ok(_), _) if frame.checksum.is_some() => return Ok(dictionary),
                (Ok(hash), None) => found = Some((dictionary, hash)),
                (Ok(hash), Some((_, other))) if hash != other => {
                    let why = "a frame that several of the dictionaries given fit; give only its own";
                    return Err(Error::unsupported(why, "dictionary"));
                }
                (Ok(_), Some(_)) => {}
                (Err(e), _) if !e.is_lasting() => return Err(e),
                (Err(e), _) => wrong = wrong.or(Some(e)),
            }
        }
        let none = || Error::corrupt("none fits", "dictionary");
        found.map(|(dictionary, _)| dictionary).ok_or_else(|| wrong.unwrap_or_else(none))
    }

    /// The dictionary of long frame `index`.
    fn dictionary(&self, index: usize, frame: &Frame) -> Result<Option<&Dictionary>> {
        let choose = || {
            let chosen = self.choose(frame, |dictionary| {
                let reader = self.reader(frame, dictionary)?;
                let buffer = || self.pieces.buffer(PIECE as usize);
                let (_, hash, reader) = self.go_through(index, frame, true, reader, buffer, |_, bytes| Some(bytes))?;
                self.done_with(reader);
                Ok(hash)
            })?;
            let all = self.needs(frame)?;
            let same = |other: Option<&Dictionary>| other.map(std::ptr::from_ref) == chosen.map(std::ptr::from_ref);
            all.into_iter().position(same).ok_or_else(|| Error::new(Kind::NotFound, "dictionary"))
        };
        let all = self.needs(frame)?;
        if let [only] = *all {
            return Ok(only);
        }
        let place = self.states.get(&index).map_or_else(choose, |state| state.dictionary.get(choose).copied())?;
        all.get(place).copied().ok_or_else(|| Error::new(Kind::NotFound, "dictionary"))
    }

    /// Piece `piece` of long frame `index`, if it is in memory and may be served. Does not block.
    pub fn ready(&self, index: usize, piece: u64) -> Option<Arc<Vec<u8>>> {
        let open = self.states.get(&index)?.gate.get()?.is_open();
        if open { self.pieces.held(self.key(index), piece) } else { None }
    }

    /// The gate of long frame `index`, unless it is open.
    pub(super) fn shut(self: &Arc<Self>, index: usize) -> Option<ChecksumGate> {
        let (frame, state) = (self.list.get(index)?, self.states.get(&index)?);
        ChecksumGate::shut(Some(self.gate(index, state, frame)))
    }

    /// Decodes piece `piece` of long frame `index` into `dst`.
    ///
    /// # Errors
    /// Fails if the frame is malformed up to that piece, or one of its checks fails.
    pub fn part(self: &Arc<Self>, index: usize, piece: u64, dst: &mut [u8]) -> Result<()> {
        let (Some(frame), Some(state)) = (self.list.get(index), self.states.get(&index)) else {
            return Err(Error::new(Kind::NotFound, "frame"));
        };
        let inside = |e: Error| inside(index, frame, e);
        self.gate(index, state, frame).wait()?;
        // Before a decoder is claimed, so that no reader waits for the page faults.
        touch(dst);
        let (mut cursor, claim) = loop {
            let mut live = lock(&state.live);
            if let Some((_, error)) = live.broken.as_ref().filter(|(first, _)| *first <= piece) {
                return Err(error.clone());
            }
            if let Some((_, bytes, _)) =
                live.passed.iter().find(|(p, bytes, _)| *p == piece && bytes.len() == dst.len())
            {
                dst.copy_from_slice(bytes);
                return Ok(());
            }
            if self.pieces.get(self.key(index), piece, dst)? {
                return Ok(());
            }
            // The piece that a reader continues from; one with random access can always continue at this piece.
            let place = |cursor: &Cursor| if cursor.reader.is_whole() { piece } else { cursor.piece };
            let idle = (0..live.idle.len()).filter(|&i| place(&live.idle[i]) <= piece);
            let idle = idle.max_by_key(|&i| place(&live.idle[i]));
            let behind = idle.map_or(0, |i| place(&live.idle[i]));
            // A decoder that will reach this piece, or stop closer before it than an idle one, is worth waiting for.
            let near = |out: &Range<u64>| out.contains(&piece) || (out.end <= piece && out.end > behind);
            if live.busy.iter().any(near) {
                drop(state.returned.wait(live).unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            let cursor = idle.map(|i| live.idle.swap_remove(i));
            let out = match &cursor {
                Some(cursor) if cursor.reader.is_whole() => 0..u64::MAX,
                Some(cursor) => cursor.piece..piece.saturating_add(1),
                None => 0..piece.saturating_add(1),
            };
            live.busy.push(out.clone());
            drop(live);
            let claim = Claim { state, out: Some(out) };
            let made = || {
                let dictionary = self.dictionary(index, frame)?;
                Ok(Cursor { reader: self.reader(frame, dictionary)?, piece: 0 })
            };
            match cursor.map_or_else(made, Ok) {
                Ok(cursor) => break (cursor, claim),
                Err(error) => return Err(inside(error)),
            }
        };
        let is_whole = cursor.reader.is_whole();
        if !is_whole && piece - cursor.piece > to_u64(PASSED) {
            state.jumped.store(true, Ordering::Relaxed);
        }
        let done = self.advance(frame, state, index, &mut cursor, piece, dst).map_err(inside);
        let mut live = lock(&state.live);
        claim.end(&mut live);
        let is_over = frame.content.or_else(|| self.known(index)?.ok());
        let is_over = is_over.is_some_and(|len| cursor.piece.saturating_mul(PIECE) >= len);
        let mut old = None;
        match &done {
            Ok(()) if is_over && !is_whole => old = Some(cursor),
            Ok(()) => {
                let most = (CURSOR_MEMORY / frame.header.window.min(frame.bound).max(1)).clamp(1, CURSORS);
                live.idle.push(cursor);
                if to_u64(live.idle.len()) > most {
                    live.idle.remove(0);
                }
            }
            Err(error) if error.is_lasting() => {
                let first = cursor.piece.min(piece);
                if live.broken.as_ref().is_none_or(|(other, _)| first < *other) {
                    live.broken = Some((first, error.clone()));
                }
            }
            Err(_) => {}
        }
        drop(live);
        state.returned.notify_all();
        if let Some(cursor) = old {
            self.done_with(cursor.reader);
        }
        self.read_last(index);
        done?;
        // Concurrent with the next decode. Sequential readers and whole buffers do not need the piece again.
        if !is_whole && state.jumped.load(Ordering::Relaxed) && self.pieces.is_on() {
            let mut bytes = self.pieces.buffer(dst.len());
            bytes.copy_from_slice(dst);
            self.pieces.put(self.key(index), piece, bytes);
        }
        Ok(())
    }

    /// Checks the preconditions for decoding `frame`: a window that zstd supports, and the dictionary that it names.
    /// Returns the candidate dictionaries.
    fn needs(&self, frame: &Frame) -> Result<Vec<Option<&Dictionary>>> {
        // The content of a single segment is its own window and may be larger.
        if Some(frame.header.window) != frame.header.content_size {
            Limits::check(frame.header.window, MAX_WINDOW, "window size").map_err(|e| e.at(frame.at.plus(5)))?;
        }
        self.dictionaries.of(&frame.header)
    }

    /// Creates a reader before the first block of `frame`: with its own window if the account has room; else one that
    /// decodes in place; else one that exceeds the account when its turn comes.
    fn reader(&self, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<Reader> {
        let (limit, account) = (self.policy.window, &self.policy.account);
        let needed = decode::needed(frame, limit)?;
        let stream = |charge| FrameDecoder::new(frame, dictionary, limit, Window::Own(charge), account);
        if frame.header.generation == Generation::V07 {
            // It charges its history itself.
            let used = lock(&self.decoders).pop();
            let decoder = match used {
                Some(used) => used.renew(frame, dictionary, limit, account)?,
                None => stream(None)?,
            };
            return Ok(Reader::Stream { decoder, _turn: None });
        }
        loop {
            match account.charge(needed.saturating_add(DECODER), "window") {
                Ok(charge) => return Ok(Reader::Stream { decoder: stream(Some(charge))?, _turn: None }),
                Err(_) if self.give_up(|reader| !reader.is_whole()) => {}
                Err(_) => break,
            }
        }
        if frame.header.generation == Generation::Modern {
            loop {
                match self.whole_reader(frame, dictionary) {
                    Err(e) if !matches!(e.kind(), Kind::NoRoom { .. }) => return Err(e),
                    Err(_) if self.give_up(Reader::is_whole) => {}
                    Err(_) => break,
                    whole => return whole,
                }
            }
        }
        let turn = self.turns.wait(|| {
            self.give_up(|_| true);
        });
        Ok(Reader::Stream { decoder: stream(None)?, _turn: Some(turn) })
    }

    /// Creates a reader that decodes in place; `frame` must be a modern one.
    fn whole_reader(&self, frame: &Frame, dictionary: Option<&Dictionary>) -> Result<Reader> {
        let (limit, account) = (self.policy.window, &self.policy.account);
        let buffer = account.buffer(frame.content.unwrap_or(frame.bound).min(frame.bound), "content")?;
        let decoder = FrameDecoder::new(frame, dictionary, limit, Window::InPlace, account)?;
        Ok(Reader::Whole(Whole::new(buffer, decoder)))
    }

    /// Drops the idle readers for which `which` holds; returns whether there were any.
    fn give_up(&self, which: impl Fn(&Reader) -> bool) -> bool {
        let recent: Vec<usize> = lock(&self.recent).iter().copied().collect();
        let mut gone = Vec::new();
        for state in recent.iter().filter_map(|index| self.states.get(index)) {
            let mut live = lock(&state.live);
            gone.extend(live.idle.extract_if(.., |cursor| which(&cursor.reader)));
        }
        !gone.is_empty()
    }

    /// Keeps the decoder of a finished reader for reuse, if it is small enough.
    fn done_with(&self, reader: Reader) {
        let decoder = reader.into_decoder();
        if decoder.is_handy() {
            lock(&self.decoders).push(decoder);
        }
    }

    /// Records that frame `index` was read; drops the decoders and pieces of the least recently read frame.
    fn read_last(&self, index: usize) {
        let mut recent = lock(&self.recent);
        if recent.back() == Some(&index) {
            return;
        }
        recent.retain(|&other| other != index);
        recent.push_back(index);
        let old = if recent.len() > RECENT { recent.pop_front() } else { None };
        drop(recent);
        if let Some(state) = old.and_then(|old| self.states.get(&old)) {
            let mut live = lock(&state.live);
            let gone = (std::mem::take(&mut live.idle), std::mem::take(&mut live.passed));
            drop(live);
            drop(gone);
        }
    }

    /// Advances `cursor` to `piece`, keeping the pieces passed over, and decodes `piece` into `dst`.
    fn advance(
        &self,
        frame: &Frame,
        state: &State,
        index: usize,
        cursor: &mut Cursor,
        piece: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        if cursor.reader.is_whole() {
            cursor.reader.seek(piece.saturating_mul(PIECE));
            cursor.piece = piece;
        }
        while cursor.piece < piece {
            let mut bytes = self.pieces.buffer(PIECE as usize);
            cursor.fill(&self.source, frame, &mut bytes)?;
            let passed = cursor.piece - 1;
            let keep = state.jumped.load(Ordering::Relaxed);
            let left = if keep { self.pieces.put(self.key(index), passed, bytes) } else { Some(bytes) };
            let Some(bytes) = left else { continue };
            let Ok(charge) = self.policy.account.charge(PIECE, "passed piece") else { continue };
            let mut live = lock(&state.live);
            live.passed.push_back((passed, bytes, charge));
            if live.passed.len() > PASSED {
                live.passed.pop_front();
            }
        }
        cursor.fill(&self.source, frame, dst)?;
        // The last piece: no content may follow.
        match frame.content {
            Some(len) if len <= cursor.piece.saturating_mul(PIECE) => {
                let excess = cursor.reader.excess(&self.source, frame)?;
                if excess == 0 { Ok(()) } else { Err(length_error(len.saturating_add(to_u64(excess)), len)) }
            }
            _ => Ok(()),
        }
    }

    fn gate<'a>(self: &Arc<Self>, index: usize, state: &'a State, frame: &Frame) -> &'a ChecksumGate {
        state.gate.get_or_init(|| {
            // A weak reference, because the frames own the gate.
            let frames = Arc::downgrade(self);
            // Without a checksum there is nothing to verify: a wrong length is detected at the end of the content.
            let is_checked = frame.checksum.is_some() || frame.seek_checksum.is_some();
            let mode = if is_checked { self.policy.verify.clone() } else { Verify::Off };
            let gone = || Error::new(Kind::NotFound, "frame");
            ChecksumGate::new(mode, &self.policy.threads, move || {
                frames.upgrade().ok_or_else(gone)?.wait(index)?.seek_checksum
            })
        })
    }

    /// Decodes the whole frame `index` once and checks its length and checksums. The seek table's checksum is only
    /// checked for long frames; that of a small frame is verified when it is served.
    ///
    /// # Errors
    /// Fails if the frame is malformed.
    fn wait(&self, index: usize) -> Result<Passed> {
        let run = || {
            let is_asked = self.is_long(index) && !matches!(self.policy.verify, Verify::Off);
            let sum = self.frame(index)?.served_checksum().filter(|_| is_asked);
            let (len, hash) = self.run(index, sum.is_some(), true)?;
            let listed = sum.map_or(Ok(()), |sum| sum.check(hash));
            Ok(Passed { len, seek_checksum: listed.map_err(|e| e.within(format_args!("frame {index}"))) })
        };
        match self.states.get(&index) {
            Some(state) => state.pass.get(run).cloned(),
            None => run(),
        }
    }

    /// Decodes the whole frame `index` and checks its length and all its checksums; returns its length.
    ///
    /// # Errors
    /// Fails if the frame is malformed.
    pub fn check(&self, index: usize) -> Result<u64> {
        let sum = self.frame(index)?.to_be_hashed();
        let (len, hash) = self.run(index, sum.is_some(), false)?;
        let listed = sum.map_or(Ok(()), |sum| sum.check(hash));
        listed.map(|()| len).map_err(|e| e.within(format_args!("frame {index}")))
    }

    /// Decodes the whole frame `index` and checks its length and its own checksum; returns its length and, if `wanted`,
    /// the XXH64 of its content. `keep` says whether the content is likely to be read next.
    fn run(&self, index: usize, wanted: bool, keep: bool) -> Result<(u64, u64)> {
        let frame = self.frame(index)?;
        let run = match frame.header.generation {
            Generation::Modern if !is_long(frame) => self.run_small(frame, wanted),
            _ => self.run_over(index, frame, wanted, keep && is_long(frame)),
        };
        run.map_err(|e| inside(index, frame, e))
    }

    fn run_small(&self, frame: &Frame, wanted: bool) -> Result<(u64, u64)> {
        let most = frame.content.unwrap_or(frame.bound).min(frame.bound) as usize;
        let run = |dictionary: Option<&Dictionary>, wanted: bool| {
            self.with_small(|small| {
                let content = small.content(&self.source, frame, dictionary, most)?;
                match frame.content.filter(|&want| want != to_u64(content.len())) {
                    Some(want) => Err(length_error(to_u64(content.len()), want)),
                    None => Ok((to_u64(content.len()), if wanted { xxh64(content, 0) } else { 0 })),
                }
            })
        };
        let dictionary = self.choose(frame, |dictionary| run(dictionary, true).map(|(_, hash)| hash))?;
        run(dictionary, wanted)
    }

    fn run_over(&self, index: usize, frame: &Frame, wanted: bool, keep: bool) -> Result<(u64, u64)> {
        let dictionary = self.dictionary(index, frame)?;
        // If memory has room for the whole content, later reads do not decode it again.
        let memory = self.policy.account.memory();
        let fits = frame.content.is_some_and(|len| len <= memory.total().saturating_sub(memory.used()) / 2);
        let in_memory = keep && !self.pieces.is_on() && fits && frame.header.generation == Generation::Modern;
        let reader = if in_memory { self.whole_reader(frame, dictionary)? } else { self.reader(frame, dictionary)? };
        let fresh = || self.pieces.buffer(PIECE as usize);
        if reader.is_whole() || !(keep && self.pieces.is_on()) {
            let (len, hash, mut reader) =
                self.go_through(index, frame, wanted, reader, fresh, |_, bytes| Some(bytes))?;
            match self.states.get(&index).filter(|_| keep && reader.is_whole()) {
                Some(state) => {
                    reader.seek(0);
                    lock(&state.live).idle.push(Cursor { reader, piece: 0 });
                    self.read_last(index);
                }
                None => self.done_with(reader),
            }
            return Ok((len, hash));
        }
        // Fresh memory is mapped page by page on first write: let another core do it, if one is available.
        let helper = self.helpers(1);
        thread::scope(|scope| {
            let (give, take) = mpsc::sync_channel(2);
            let feed = move || loop {
                let mut buffer = fresh();
                touch(&mut buffer);
                if give.send(buffer).is_err() {
                    return;
                }
            };
            match helper.count() {
                0 => drop(feed),
                _ => drop(thread::Builder::new().spawn_scoped(scope, feed)),
            }
            let buffer = || take.recv().unwrap_or_else(|_| fresh());
            let put = |piece, bytes| self.pieces.put(self.key(index), piece, bytes);
            let done = self.go_through(index, frame, wanted, reader, buffer, put);
            drop(take);
            let (len, hash, reader) = done?;
            self.done_with(reader);
            Ok((len, hash))
        })
    }

    /// Decodes all of frame `index` into buffers of [`PIECE`] bytes and passes each to `put`, which may return it for
    /// reuse. Returns the frame's length, its hash (only valid if `wanted`), and the reader.
    fn go_through(
        &self,
        index: usize,
        frame: &Frame,
        wanted: bool,
        mut reader: Reader,
        buffer: impl Fn() -> Vec<u8>,
        put: impl Fn(u64, Vec<u8>) -> Option<Vec<u8>>,
    ) -> Result<(u64, u64, Reader)> {
        let mut hash = Xxh64::new(0);
        let hashed = wanted || (frame.header.generation == Generation::V07 && frame.checksum.is_some());
        let (most, is_known) = self.expected(index, frame)?;
        let (mut len, mut spare) = (0_u64, None);
        for piece in 0.. {
            let mut bytes = spare.take().unwrap_or_else(&buffer);
            bytes.resize(PIECE as usize, 0);
            let n = reader.fill(&self.source, frame, &mut bytes)?;
            let is_last = n < bytes.len();
            bytes.truncate(n);
            len = len.saturating_add(to_u64(n));
            if hashed {
                hash.update(&bytes);
            }
            if len > most {
                let kind = Kind::TooLarge { value: len, limit: most };
                return Err(if is_known { length_error(len, most) } else { Error::new(kind, "content size") });
            }
            if n > 0 {
                spare = put(piece, bytes);
            }
            if is_last {
                break;
            }
        }
        if is_known && len != most {
            return Err(length_error(len, most));
        }
        check_old(frame, || hash.digest())?;
        Ok((len, hash.digest(), reader))
    }
}

impl Live {
    /// Removes `out` from the ranges of decoders in use.
    fn no_longer(&mut self, out: &Range<u64>) {
        if let Some(i) = self.busy.iter().position(|other| other == out) {
            self.busy.swap_remove(i);
        }
    }
}

impl Cursor {
    /// Reads the next piece into `dst`.
    fn fill(&mut self, source: &Source, frame: &Frame, dst: &mut [u8]) -> Result<()> {
        let n = self.reader.fill(source, frame, dst)?;
        if n < dst.len() {
            let got = self.piece.saturating_mul(PIECE).saturating_add(to_u64(n));
            return Err(length_error(got, frame.content.unwrap_or(got)));
        }
        self.piece = self.piece.saturating_add(1);
        Ok(())
    }
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frames({})", self.list.len())
    }
}

/// Adds the context of frame `index` to `error`.
fn inside(index: usize, frame: &Frame, error: Error) -> Error {
    let error = match error.kind() {
        // A frame made with a dictionary cannot be distinguished from a malformed one.
        Kind::Corrupt(why) if frame.header.dictionary == 0 && why.ends_with("Data corruption detected") => {
            let why = format!("{why}; a dictionary may be missing: give its file with -o dict=FILE");
            let told = Error::corrupt(why, error.what().to_owned());
            error.offset().map_or(told.clone(), |at| told.at(at))
        }
        _ => error,
    };
    error.at(frame.at).within(format_args!("frame {index}"))
}

/// Makes the system map fresh memory, which happens page by page on first write.
fn touch(memory: &mut [u8]) {
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 0);
}

fn is_long(frame: &Frame) -> bool {
    frame.content.unwrap_or(frame.bound).min(frame.bound) > LONG || frame.stored > 2 * LONG
}

/// Verifies the checksum of a 0.7 frame against the hash of its content; libzstd verifies modern frames itself.
fn check_old(frame: &Frame, hash: impl FnOnce() -> u64) -> Result<()> {
    match frame.checksum {
        Some(stored) if frame.header.generation == Generation::V07 => {
            let computed = v07::checksum(hash());
            if stored == computed {
                return Ok(());
            }
            let kind = Kind::Checksum { stored: stored.into(), computed: computed.into() };
            Err(Error::new(kind, "content checksum").at(frame.at.plus(frame.stored.saturating_sub(3))))
        }
        _ => Ok(()),
    }
}
