//! The frames of a file as a source of decoded bytes: small ones whole, long ones piece by piece.
//!
//! A long frame can only be decoded from its start. A few decoders are kept where they stopped, so that
//! forward and nearby reads go on from there; what a decoder passes over is kept for whoever asks for it
//! next: a few pieces in memory, the rest in the scratch file.
//!
//! Checked: content size and checksum of a small frame with each decode; those of a long one in one pass
//! over the frame, before its first byte is served or as `verify=` says.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use xxhash_rust::xxh64::Xxh64;
use zstd::zstd_safe::DCtx;

use crate::bytes::wide;
use crate::checksum::{Gate, Verify};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::scratch::Scratch;
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
const CURSOR_MEMORY: u64 = 256 << 20;
/// Pieces that a decoder passed over, kept in memory per long frame.
const PASSED: usize = 6;

/// How frames are decoded.
#[derive(Debug, Clone)]
pub struct Policy {
    /// When the checksum of a long frame is held against its content.
    pub verify: Verify,
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
    scratch: Arc<Scratch>,
    /// By which the scratch file knows the first frame; the others follow.
    owner: u64,
    /// Long frames, and those whose content has to be counted.
    states: HashMap<usize, State>,
    contexts: Mutex<Vec<DCtx<'static>>>,
}

#[derive(Default)]
struct State {
    /// Bytes of content, once all was decoded and found right.
    pass: OnceLock<Result<u64>>,
    gate: OnceLock<Gate>,
    live: Mutex<Live>,
    returned: Condvar,
}

/// The decoders of one long frame.
#[derive(Default)]
struct Live {
    idle: Vec<Cursor>,
    /// Where the decoders that are out will come to rest.
    busy: Vec<u64>,
    passed: VecDeque<(u64, Vec<u8>)>,
}

/// A decoder that stopped in front of decoded byte `at`.
struct Cursor {
    decoder: FrameDecoder,
    at: u64,
    /// Content that is decoded already, from `at` on.
    ahead: Vec<u8>,
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
        scratch: Arc<Scratch>,
    ) -> Arc<Self> {
        let needs = |f: &Frame| f.content.is_none() || is_long(f);
        let states = (0..).zip(&list).filter(|(_, f)| needs(f)).map(|(i, _)| (i, State::default())).collect();
        let owner = scratch.owners(wide(list.len()));
        Arc::new(Self { source, list, dictionaries, policy, scratch, owner, states, contexts: Mutex::default() })
    }

    fn key(&self, index: usize) -> u64 {
        self.owner.saturating_add(wide(index))
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
            None => self.states.get(&index)?.pass.get().cloned(),
        }
    }

    /// Bytes of content of frame `index`; decodes it once where neither it nor its blocks say.
    ///
    /// # Errors
    /// When it is broken.
    pub fn size(&self, index: usize) -> Result<u64> {
        self.known(index).unwrap_or_else(|| self.pass(index))
    }

    /// Decodes frame `index`, which is not long, into `dst`.
    ///
    /// # Errors
    /// When it is broken, or `dst` is not as long as its content.
    pub fn small(&self, index: usize, dst: &mut [u8]) -> Result<()> {
        let frame = self.frame(index)?;
        self.small_of(frame, dst).map_err(|e| e.at(frame.at).within(format_args!("frame {index}")))
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
        let mut decoder = FrameDecoder::new(frame, dictionary, self.policy.window)?;
        let mut content = Vec::with_capacity(dst.len().min(LONG as usize));
        while decoder.block(&self.source, frame, &mut content)? {
            if content.len() > dst.len() {
                break;
            }
        }
        if content.len() != dst.len() {
            return Err(length_error(wide(content.len()), wide(dst.len())));
        }
        check_old(frame, || xxhash_rust::xxh64::xxh64(&content, 0))?;
        dst.copy_from_slice(&content);
        Ok(())
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
        let start = piece.saturating_mul(PIECE);
        let mut cursor = loop {
            let mut live = lock(&state.live);
            if let Some((_, bytes)) = live.passed.iter().find(|(p, bytes)| *p == piece && bytes.len() == dst.len()) {
                dst.copy_from_slice(bytes);
                return Ok(());
            }
            if self.scratch.get(self.key(index), piece, dst)? {
                return Ok(());
            }
            let idle = (0..live.idle.len()).filter(|&i| live.idle[i].at <= start).max_by_key(|&i| live.idle[i].at);
            let behind = idle.map_or(0, |i| live.idle[i].at);
            // A decoder that is under way to just before here is worth waiting for.
            if live.busy.iter().any(|&end| end <= start && end > behind) {
                drop(state.returned.wait(live).unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            let cursor = match idle {
                Some(i) => Ok(live.idle.swap_remove(i)),
                None => self.cursor(frame),
            };
            let cursor = cursor.map_err(inside)?;
            live.busy.push(start.saturating_add(wide(dst.len())));
            break cursor;
        };
        let mut passed = VecDeque::new();
        let done = self.advance(frame, &mut cursor, index, start, dst, &mut passed).map_err(inside);
        let mut live = lock(&state.live);
        let end = start.saturating_add(wide(dst.len()));
        if let Some(i) = live.busy.iter().position(|&b| b == end) {
            live.busy.swap_remove(i);
        }
        live.passed.extend(passed);
        let excess = live.passed.len().saturating_sub(PASSED);
        live.passed.drain(..excess);
        if done.is_ok() {
            let most = (CURSOR_MEMORY / frame.header.window.min(frame.bound).max(1)).clamp(1, CURSORS);
            live.idle.push(cursor);
            if wide(live.idle.len()) > most {
                live.idle.remove(0);
            }
        }
        drop(live);
        state.returned.notify_all();
        done
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

    fn cursor(&self, frame: &Frame) -> Result<Cursor> {
        let dictionary = self.needs(frame)?;
        let decoder = FrameDecoder::new(frame, dictionary, self.policy.window)?;
        Ok(Cursor { decoder, at: 0, ahead: Vec::new() })
    }

    /// Takes `cursor` to `start` and on through `dst`, keeping the whole pieces that it passes over.
    fn advance(
        &self,
        frame: &Frame,
        cursor: &mut Cursor,
        index: usize,
        start: u64,
        dst: &mut [u8],
        passed: &mut VecDeque<(u64, Vec<u8>)>,
    ) -> Result<()> {
        while cursor.at < start {
            let piece = cursor.at / PIECE;
            let n = (piece.saturating_add(1).saturating_mul(PIECE).min(start) - cursor.at) as usize;
            let bytes = cursor.take(&self.source, frame, n)?;
            if wide(bytes.len()) == PIECE {
                if !self.scratch.put(self.key(index), piece, &bytes) {
                    passed.push_back((piece, bytes));
                }
                if passed.len() > PASSED {
                    passed.pop_front();
                }
            }
        }
        let bytes = cursor.take(&self.source, frame, dst.len())?;
        dst.copy_from_slice(&bytes);
        // The last piece: nothing may come behind it.
        if let Some(len) = frame.content.filter(|&len| len == cursor.at) {
            while cursor.ahead.is_empty() && cursor.decoder.block(&self.source, frame, &mut cursor.ahead)? {}
            if !cursor.ahead.is_empty() {
                return Err(length_error(len.saturating_add(wide(cursor.ahead.len())), len));
            }
        }
        self.scratch.put(self.key(index), start / PIECE, dst);
        Ok(())
    }

    fn gate<'a>(self: &Arc<Self>, index: usize, state: &'a State, frame: &Frame) -> &'a Gate {
        state.gate.get_or_init(|| {
            let frames = Arc::clone(self);
            // Without a checksum there is nothing to wait for: a wrong length shows where the content ends.
            let mode = if frame.checksum.is_some() { self.policy.verify.clone() } else { Verify::Off };
            Gate::new(mode, move || frames.pass(index).map(drop))
        })
    }

    /// Decodes all of frame `index` once, and checks its length and its checksum; gives its length.
    ///
    /// # Errors
    /// When it is broken.
    fn pass(&self, index: usize) -> Result<u64> {
        let run = || self.hash(index, false).map(|(len, _)| len);
        match self.states.get(&index) {
            Some(state) => state.pass.get_or_init(run).clone(),
            None => run(),
        }
    }

    /// Decodes all of frame `index`, and checks its length and its checksum; gives its length and, if
    /// asked to, the XXH64 of its content.
    ///
    /// # Errors
    /// When it is broken.
    pub fn hash(&self, index: usize, wanted: bool) -> Result<(u64, u64)> {
        let frame = self.frame(index)?;
        self.run(index, frame, wanted).map_err(|e| e.at(frame.at).within(format_args!("frame {index}")))
    }

    fn run(&self, index: usize, frame: &Frame, wanted: bool) -> Result<(u64, u64)> {
        let dictionary = self.needs(frame)?;
        let mut decoder = FrameDecoder::new(frame, dictionary, self.policy.window)?;
        let mut hash = Xxh64::new(0);
        let (mut len, mut piece, mut pending) = (0_u64, 0_u64, Vec::new());
        let most = frame.content.unwrap_or(frame.bound.min(self.policy.content));
        let keep = is_long(frame) && self.scratch.is_on();
        while decoder.block(&self.source, frame, &mut pending)? {
            let fresh = pending.get((len - piece.saturating_mul(PIECE)) as usize..).unwrap_or_default();
            len = len.saturating_add(wide(fresh.len()));
            if wanted || (frame.header.generation == Generation::V07 && frame.checksum.is_some()) {
                hash.update(fresh);
            }
            if len > most {
                let kind = Kind::TooLarge { value: len, limit: most };
                return Err(frame
                    .content
                    .map_or_else(|| Error::new(kind, "content size"), |want| length_error(len, want)));
            }
            while pending.len() >= PIECE as usize {
                if keep {
                    self.scratch.put(self.key(index), piece, &pending[..PIECE as usize]);
                }
                pending.drain(..PIECE as usize);
                piece += 1;
            }
        }
        if keep && !pending.is_empty() {
            self.scratch.put(self.key(index), piece, &pending);
        }
        if let Some(want) = frame.content.filter(|&want| want != len) {
            return Err(length_error(len, want));
        }
        check_old(frame, || hash.digest())?;
        Ok((len, hash.digest()))
    }
}

impl Cursor {
    /// The next `n` bytes of content.
    fn take(&mut self, source: &Source, frame: &Frame, n: usize) -> Result<Vec<u8>> {
        while self.ahead.len() < n {
            if !self.decoder.block(source, frame, &mut self.ahead)? {
                let got = self.at.saturating_add(wide(self.ahead.len()));
                return Err(length_error(got, frame.content.unwrap_or(got)));
            }
        }
        let rest = self.ahead.split_off(n);
        self.at = self.at.saturating_add(wide(n));
        Ok(std::mem::replace(&mut self.ahead, rest))
    }
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frames({})", self.list.len())
    }
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
