//! The frames of a file as a source of decoded bytes: small ones whole, long ones piece by piece.
//!
//! A long frame can only be decoded from its start. A few decoders are kept where they stopped, so that
//! forward and nearby reads go on from there; what a decoder passes over is kept for whoever asks for it
//! next: a few pieces in memory, the rest in a temporary file.
//!
//! Checked: content size and checksum of a small frame with each decode; those of a long one in one pass
//! over the frame, before its first byte is served or as `verify=` says. The checksum that a seek table has
//! of a frame without one of its own is held against it at the same times, and with `verify=off` never.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;

use xxhash_rust::xxh64::{Xxh64, xxh64};
use zstd::zstd_safe::DCtx;

use crate::account::Pieces;
use crate::bytes::wide;
use crate::checksum::{Gate, Helpers, Threads, Verify};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::once::Once;

use crate::source::Source;

use super::decode::{self, FrameDecoder, length_error};
use super::dictionary::{Dictionaries, Dictionary};
use super::header::Generation;
use super::v07;
use super::walk::Frame;

/// Bytes of a piece of a long frame, and the most that small frames share.
pub const PIECE: u64 = 1 << 20;
/// A frame that may decode to more is long.
const LONG: u64 = 4 << 20;
/// The largest window that zstd itself writes or reads; what memory is taken is another matter.
const MAX_WINDOW: u64 = 1 << 31;
/// Decoders kept per long frame, and the memory that their windows may take together.
const CURSORS: u64 = 4;
const CURSOR_MEMORY: u64 = 64 << 20;
/// Long frames that keep any.
const RECENT: usize = 4;
/// Pieces that a decoder passed over, kept in memory per long frame.
const PASSED: usize = 6;

/// How frames are decoded.
#[derive(Debug, Clone)]
pub struct Policy {
    /// When the checksum of a long frame is held against its content.
    pub verify: Verify,
    /// The threads that do it.
    pub threads: Threads,
    /// The most memory that one decoder's history may take.
    pub window: u64,
    /// The most bytes of content that a frame may have whose size has to be counted.
    pub content: u64,
}

/// The frames, and what is known of them beyond their headers.
pub struct Frames {
    /// The file that they lie in.
    pub source: Arc<Source>,
    /// Their headers.
    pub list: Vec<Frame>,
    dictionaries: Dictionaries,
    policy: Policy,
    pieces: Arc<Pieces>,
    /// By which the kept pieces know the first frame; the others follow.
    owner: u64,
    /// Long frames, and those whose content has to be counted.
    states: HashMap<usize, State>,
    contexts: Mutex<Vec<DCtx<'static>>>,
    /// Used decoders of 0.7 frames.
    decoders: Mutex<Vec<FrameDecoder>>,
    /// The long frames read last: they alone keep decoders and pieces.
    recent: Mutex<VecDeque<usize>>,
}

#[derive(Default)]
struct State {
    /// What came of decoding all of it once.
    pass: Once<Passed>,
    gate: OnceLock<Gate>,
    live: Mutex<Live>,
    returned: Condvar,
    /// Whether somebody reads here and there: what is decoded will be wanted again.
    jumped: AtomicBool,
}

/// A frame that was decoded once from end to end and found right.
#[derive(Debug, Clone)]
struct Passed {
    /// Bytes of content.
    len: u64,
    /// Whether the seek table says the same of them: it may be that which is wrong, and the length holds.
    listed: Result<()>,
}

/// The decoders of one long frame.
#[derive(Default)]
struct Live {
    idle: Vec<Cursor>,
    /// The pieces that the decoders which are out go through.
    busy: Vec<Range<u64>>,
    /// Pieces that a decoder passed over, the oldest first, for whoever asks for them next.
    passed: VecDeque<(u64, Vec<u8>)>,
}

/// A decoder that stopped in front of a piece.
struct Cursor {
    decoder: FrameDecoder,
    piece: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Frames {
    /// The frames `list` of `source`; nothing is decoded yet.
    pub fn new(
        source: Arc<Source>,
        list: Vec<Frame>,
        dictionaries: Dictionaries,
        policy: Policy,
        pieces: Arc<Pieces>,
    ) -> Arc<Self> {
        let needs = |f: &Frame| f.content.is_none() || is_long(f);
        let states = (0..).zip(&list).filter(|(_, f)| needs(f)).map(|(i, _)| (i, State::default())).collect();
        let owner = pieces.owners(wide(list.len()));
        Arc::new(Self {
            source,
            list,
            dictionaries,
            policy,
            pieces,
            owner,
            states,
            contexts: Mutex::default(),
            decoders: Mutex::default(),
            recent: Mutex::default(),
        })
    }

    fn key(&self, index: usize) -> u64 {
        self.owner.saturating_add(wide(index))
    }

    /// A gate before what `check` finds out by decoding whole frames.
    pub(super) fn whole(&self, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Gate {
        Gate::new(Verify::First, &self.policy.threads, check)
    }

    /// Threads that may decode beside the caller's.
    pub(super) fn helpers(&self, wanted: u64) -> Helpers {
        self.policy.threads.helpers(wanted)
    }

    /// Frame `index`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when there are fewer.
    pub fn frame(&self, index: usize) -> Result<&Frame> {
        self.list.get(index).ok_or_else(|| Error::new(Kind::NotFound, "frame"))
    }

    /// Whether frame `index` is decoded piece by piece.
    pub fn is_long(&self, index: usize) -> bool {
        self.list.get(index).is_some_and(is_long)
    }

    /// Bytes of content of frame `index`, where that was said or has been counted.
    pub fn known(&self, index: usize) -> Option<Result<u64>> {
        let frame = self.list.get(index)?;
        match frame.content {
            Some(len) if len > frame.bound => {
                let e = Error::corrupt(format!("{len} bytes, its blocks give at most {}", frame.bound), "content size");
                Some(Err(e.at(frame.at.plus(5)).within(format_args!("frame {index}"))))
            }
            Some(len) => Some(Ok(len)),
            None => Some(self.states.get(&index)?.pass.ready()?.map(|pass| pass.len)),
        }
    }

    /// Bytes of content of frame `index`; decodes it once where neither it nor its blocks say.
    ///
    /// # Errors
    /// When it is broken.
    pub fn size(&self, index: usize) -> Result<u64> {
        self.known(index).unwrap_or_else(|| self.pass(index).map(|pass| pass.len))
    }

    /// Decodes frame `index`, which is not long, into `dst`.
    ///
    /// # Errors
    /// When it is broken, or `dst` is not as long as its content.
    pub fn small(&self, index: usize, dst: &mut [u8]) -> Result<()> {
        let frame = self.frame(index)?;
        let listed = frame.vouched_by().filter(|_| !matches!(self.policy.verify, Verify::Off));
        let done = self.small_of(frame, dst).and_then(|()| listed.map_or(Ok(()), |sum| sum.check(xxh64(dst, 0))));
        done.map_err(|e| e.at(frame.at).within(format_args!("frame {index}")))
    }

    fn small_of(&self, frame: &Frame, dst: &mut [u8]) -> Result<()> {
        let dictionary = self.needs(frame)?;
        if frame.header.generation == Generation::Modern {
            let stored = self.source.get(frame.at, frame.stored, "frame")?;
            let mut ctx = match lock(&self.contexts).pop() {
                Some(ctx) => ctx,
                None => decode::context(dictionary)?,
            };
            decode::prepare(&mut ctx, dictionary)?;
            let done = decode::whole(&mut ctx, &stored, dst);
            lock(&self.contexts).push(ctx);
            return done;
        }
        let mut decoder = self.decoder(frame)?;
        let got = decoder.fill(&self.source, frame, dst)? + decoder.excess(&self.source, frame)?;
        self.done_with(decoder);
        if got != dst.len() {
            return Err(length_error(wide(got), wide(dst.len())));
        }
        check_old(frame, || xxh64(dst, 0))
    }

    /// Piece `piece` of frame `index`, which is long, where it is kept in memory and may be served. Answers at once.
    pub fn ready(&self, index: usize, piece: u64) -> Option<Arc<Vec<u8>>> {
        let open = self.states.get(&index)?.gate.get()?.is_open();
        if open { self.pieces.held(self.key(index), piece) } else { None }
    }

    /// What has to be decided before frame `index`, which is long, is served, if it is not yet.
    pub(super) fn shut(self: &Arc<Self>, index: usize) -> Option<Gate> {
        let (frame, state) = (self.list.get(index)?, self.states.get(&index)?);
        Gate::shut(Some(self.gate(index, state, frame)))
    }

    /// Decodes piece `piece` of frame `index`, which is long, into `dst`.
    ///
    /// # Errors
    /// When the frame is broken up to there, or one of its checks fails.
    pub fn part(self: &Arc<Self>, index: usize, piece: u64, dst: &mut [u8]) -> Result<()> {
        let (Some(frame), Some(state)) = (self.list.get(index), self.states.get(&index)) else {
            return Err(Error::new(Kind::NotFound, "frame"));
        };
        let inside = |e: Error| e.at(frame.at).within(format_args!("frame {index}"));
        self.gate(index, state, frame).pass()?;
        // Not while others wait for the decoder.
        touch(dst);
        let mut cursor = loop {
            let mut live = lock(&state.live);
            if let Some((_, bytes)) = live.passed.iter().find(|(p, bytes)| *p == piece && bytes.len() == dst.len()) {
                dst.copy_from_slice(bytes);
                return Ok(());
            }
            if self.pieces.get(self.key(index), piece, dst)? {
                return Ok(());
            }
            let idle = (0..live.idle.len()).filter(|&i| live.idle[i].piece <= piece);
            let idle = idle.max_by_key(|&i| live.idle[i].piece);
            let behind = idle.map_or(0, |i| live.idle[i].piece);
            // A decoder that is under way to here, or to just before here, is worth waiting for.
            let near = |out: &Range<u64>| out.contains(&piece) || (out.end <= piece && out.end > behind);
            if live.busy.iter().any(near) {
                drop(state.returned.wait(live).unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            let cursor = match idle {
                Some(i) => Ok(live.idle.swap_remove(i)),
                None => self.decoder(frame).map(|decoder| Cursor { decoder, piece: 0 }),
            };
            let cursor = cursor.map_err(inside)?;
            live.busy.push(cursor.piece..piece.saturating_add(1));
            break cursor;
        };
        let out = cursor.piece..piece.saturating_add(1);
        if piece - cursor.piece > wide(PASSED) {
            state.jumped.store(true, Ordering::Relaxed);
        }
        let done = self.advance(frame, state, index, &mut cursor, piece, dst).map_err(inside);
        let mut live = lock(&state.live);
        if let Some(i) = live.busy.iter().position(|b| *b == out) {
            live.busy.swap_remove(i);
        }
        let is_over = frame.content.or_else(|| state.pass.ready()?.ok().map(|pass| pass.len));
        let is_over = is_over.is_some_and(|len| cursor.piece.saturating_mul(PIECE) >= len);
        if done.is_ok() && is_over {
            self.done_with(cursor.decoder);
        } else if done.is_ok() {
            let most = (CURSOR_MEMORY / frame.header.window.min(frame.bound).max(1)).clamp(1, CURSORS);
            live.idle.push(cursor);
            if wide(live.idle.len()) > most {
                live.idle.remove(0);
            }
        }
        drop(live);
        state.returned.notify_all();
        self.read_last(index);
        done?;
        // Beside the next decode. Who reads in order has no need of it.
        if state.jumped.load(Ordering::Relaxed) && self.pieces.is_on() {
            let mut bytes = self.pieces.buffer(dst.len());
            bytes.copy_from_slice(dst);
            self.pieces.put(self.key(index), piece, bytes);
        }
        Ok(())
    }

    /// What has to be there before `frame` is decoded: a window that somebody could have meant, and
    /// the dictionary that it names.
    fn needs(&self, frame: &Frame) -> Result<Option<&Dictionary>> {
        // The content of a single segment is its own window: as long as it may be.
        if Some(frame.header.window) != frame.header.content_size {
            Limits::check(frame.header.window, MAX_WINDOW, "window size").map_err(|e| e.at(frame.at.plus(5)))?;
        }
        self.dictionaries.of(&frame.header)
    }

    /// A decoder before the first block of `frame`.
    fn decoder(&self, frame: &Frame) -> Result<FrameDecoder> {
        let dictionary = self.needs(frame)?;
        let used = if frame.header.generation == Generation::V07 { lock(&self.decoders).pop() } else { None };
        match used {
            Some(used) => used.renew(frame, dictionary, self.policy.window),
            None => FrameDecoder::new(frame, dictionary, self.policy.window),
        }
    }

    /// Takes back a decoder at the end of its frame.
    fn done_with(&self, decoder: FrameDecoder) {
        if decoder.is_handy() {
            lock(&self.decoders).push(decoder);
        }
    }

    /// Frame `index` was read last: decoders and pieces that are kept for a frame read long ago are given up.
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

    /// Takes `cursor` to `piece` and on through `dst`, which it fills, keeping the pieces that it passes over.
    fn advance(
        &self,
        frame: &Frame,
        state: &State,
        index: usize,
        cursor: &mut Cursor,
        piece: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        while cursor.piece < piece {
            let mut bytes = self.pieces.buffer(PIECE as usize);
            cursor.fill(&self.source, frame, &mut bytes)?;
            let passed = cursor.piece - 1;
            let keep = state.jumped.load(Ordering::Relaxed);
            let left = if keep { self.pieces.put(self.key(index), passed, bytes) } else { Some(bytes) };
            let Some(bytes) = left else { continue };
            let mut live = lock(&state.live);
            live.passed.push_back((passed, bytes));
            if live.passed.len() > PASSED {
                live.passed.pop_front();
            }
        }
        cursor.fill(&self.source, frame, dst)?;
        // The last piece: nothing may come behind it.
        match frame.content {
            Some(len) if len <= cursor.piece.saturating_mul(PIECE) => {
                let excess = cursor.decoder.excess(&self.source, frame)?;
                if excess == 0 { Ok(()) } else { Err(length_error(len.saturating_add(wide(excess)), len)) }
            }
            _ => Ok(()),
        }
    }

    fn gate<'a>(self: &Arc<Self>, index: usize, state: &'a State, frame: &Frame) -> &'a Gate {
        state.gate.get_or_init(|| {
            // Not held by what it holds.
            let frames = Arc::downgrade(self);
            // Without a checksum there is nothing to wait for: a wrong length shows where the content ends.
            let is_checked = frame.checksum.is_some() || frame.listed.is_some();
            let mode = if is_checked { self.policy.verify.clone() } else { Verify::Off };
            let gone = || Error::new(Kind::NotFound, "frame");
            Gate::new(mode, &self.policy.threads, move || frames.upgrade().ok_or_else(gone)?.pass(index)?.listed)
        })
    }

    /// Decodes all of frame `index` once, and checks its length and its checksums. That in the seek table only
    /// where somebody will ask: a small frame is held against it when it is served.
    ///
    /// # Errors
    /// When it is broken.
    fn pass(&self, index: usize) -> Result<Passed> {
        let run = || {
            let is_asked = self.is_long(index) && !matches!(self.policy.verify, Verify::Off);
            let sum = self.frame(index)?.vouched_by().filter(|_| is_asked);
            let (len, hash) = self.run(index, sum.is_some(), true)?;
            let listed = sum.map_or(Ok(()), |sum| sum.check(hash));
            Ok(Passed { len, listed: listed.map_err(|e| e.within(format_args!("frame {index}"))) })
        };
        match self.states.get(&index) {
            Some(state) => state.pass.get(run).cloned(),
            None => run(),
        }
    }

    /// Decodes all of frame `index`, and checks its length and all its checksums; gives its length.
    ///
    /// # Errors
    /// When it is broken.
    pub fn check(&self, index: usize) -> Result<u64> {
        let sum = self.frame(index)?.to_be_hashed();
        let (len, hash) = self.run(index, sum.is_some(), false)?;
        let listed = sum.map_or(Ok(()), |sum| sum.check(hash));
        listed.map(|()| len).map_err(|e| e.within(format_args!("frame {index}")))
    }

    /// Decodes all of frame `index`, and checks its length and its own checksum; gives its length and, if `wanted`,
    /// the XXH64 of its content. `keep` says whether somebody will want the content.
    fn run(&self, index: usize, wanted: bool, keep: bool) -> Result<(u64, u64)> {
        let frame = self.frame(index)?;
        let run = self.run_over(index, frame, wanted, keep && is_long(frame));
        run.map_err(|e| e.at(frame.at).within(format_args!("frame {index}")))
    }

    fn run_over(&self, index: usize, frame: &Frame, wanted: bool, keep: bool) -> Result<(u64, u64)> {
        if !(keep && self.pieces.is_on()) {
            return self.go_through(frame, wanted, || self.pieces.buffer(PIECE as usize), |_, bytes| Some(bytes));
        }
        // Fresh memory is mapped page by page as it is first written: on another core, where one is left.
        let helper = self.helpers(1);
        thread::scope(|scope| {
            let (give, take) = mpsc::sync_channel(2);
            let feed = move || loop {
                let mut buffer = self.pieces.buffer(PIECE as usize);
                touch(&mut buffer);
                if give.send(buffer).is_err() {
                    return;
                }
            };
            match helper.count() {
                0 => drop(feed),
                _ => drop(thread::Builder::new().spawn_scoped(scope, feed)),
            }
            let buffer = || take.recv().unwrap_or_else(|_| self.pieces.buffer(PIECE as usize));
            let done =
                self.go_through(frame, wanted, buffer, |piece, bytes| self.pieces.put(self.key(index), piece, bytes));
            drop(take);
            done
        })
    }

    /// Decodes all of `frame` into buffers of [`PIECE`] bytes, each of which goes to `put`, and may come back.
    fn go_through(
        &self,
        frame: &Frame,
        wanted: bool,
        buffer: impl Fn() -> Vec<u8>,
        put: impl Fn(u64, Vec<u8>) -> Option<Vec<u8>>,
    ) -> Result<(u64, u64)> {
        let mut decoder = self.decoder(frame)?;
        let mut hash = Xxh64::new(0);
        let hashed = wanted || (frame.header.generation == Generation::V07 && frame.checksum.is_some());
        let most = frame.content.unwrap_or(frame.bound.min(self.policy.content));
        let (mut len, mut spare) = (0_u64, None);
        for piece in 0.. {
            let mut bytes = spare.take().unwrap_or_else(&buffer);
            let n = decoder.fill(&self.source, frame, &mut bytes)?;
            let is_last = n < bytes.len();
            bytes.truncate(n);
            len = len.saturating_add(wide(n));
            if hashed {
                hash.update(&bytes);
            }
            if len > most {
                let kind = Kind::TooLarge { value: len, limit: most };
                return Err(frame
                    .content
                    .map_or_else(|| Error::new(kind, "content size"), |want| length_error(len, want)));
            }
            if n > 0 {
                spare = put(piece, bytes);
            }
            if is_last {
                break;
            }
        }
        if let Some(want) = frame.content.filter(|&want| want != len) {
            return Err(length_error(len, want));
        }
        self.done_with(decoder);
        check_old(frame, || hash.digest())?;
        Ok((len, hash.digest()))
    }
}

impl Cursor {
    /// Fills `dst` with the piece that comes next.
    fn fill(&mut self, source: &Source, frame: &Frame, dst: &mut [u8]) -> Result<()> {
        let n = self.decoder.fill(source, frame, dst)?;
        if n < dst.len() {
            let got = self.piece.saturating_mul(PIECE).saturating_add(wide(n));
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

/// Has the system map fresh memory, which it does page by page as each is first written.
fn touch(memory: &mut [u8]) {
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 0);
}

fn is_long(frame: &Frame) -> bool {
    frame.content.unwrap_or(frame.bound).min(frame.bound) > LONG
}

/// Holds the checksum of a 0.7 frame against its content's hash; libzstd checks modern ones itself.
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
