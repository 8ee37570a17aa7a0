//! Decoding a frame from start to end: for its checksum and its length, and for later reads.
//!
//! A frame of 40 MiB has a checksum, which `verify=auto` checks first: its first read waits for one pass over it, whose
//! 40 pieces are kept, so that all reads find them. A frame without a stated size is decoded in the same way when its
//! length is asked for.
#![forbid(unsafe_code)]

use std::sync::mpsc;

use xxhash_rust::xxh64::Xxh64;

use crate::account::decode_budget;
use crate::bytes::to_u64;
use crate::checksum::Verify;
use crate::error::{Error, Kind, Result};
use crate::paging::page_size;
use crate::parallel;

use super::super::decode::length_error;
use super::super::frame::{Frame, PIECE};
use super::super::header::Generation;
use super::super::reader::FrameReader;
use super::super::v07;
use super::long_frame::{Cursor, WholePass};
use super::readahead::AHEAD;
use super::{Frames, inside, lock};

/// Buffers that another thread prepares in advance.
const FED: usize = 2;

impl Frames {
    /// Decodes the whole frame `index` once and checks its length and checksums. The seek table's checksum is only
    /// checked for long frames; that of a small frame is verified when it is served.
    ///
    /// # Errors
    /// Fails if the frame is malformed.
    pub(super) fn pass(&self, index: usize) -> Result<WholePass> {
        let run = || {
            let is_asked = self.is_long(index) && !matches!(self.policy.verify, Verify::Off);
            let frame = self.frame(index)?;
            let sum = frame.served_checksum().filter(|_| is_asked);
            let (len, hash) = self.run(index, &frame, sum.is_some(), true)?;
            if self.known(index).is_none() {
                self.counted.set(index, &Ok(len))?;
            }
            let listed = sum.map_or(Ok(()), |sum| sum.check(hash));
            if listed.is_ok() && is_asked {
                self.note_verified(index, &frame);
            }
            Ok(WholePass { len, seek_checksum: listed.map_err(|e| e.within(format_args!("frame {index}"))) })
        };
        match self.state(index) {
            Some(state) => state.pass.get(run).cloned(),
            None => run(),
        }
    }

    /// Decodes the whole frame `index` and checks its length and all its checksums; returns its length.
    ///
    /// # Errors
    /// Fails if the frame is malformed.
    pub fn check(&self, index: usize) -> Result<u64> {
        let frame = self.frame(index)?;
        let sum = frame.checksum_to_verify();
        let (len, hash) = self.run(index, &frame, sum.is_some(), false)?;
        let listed = sum.map_or(Ok(()), |sum| sum.check(hash));
        listed.map(|()| len).map_err(|e| e.within(format_args!("frame {index}")))
    }

    /// Decodes the whole frame `index` and checks its length and its own checksum; returns its length and, if `wanted`,
    /// the XXH64 of its content. `keep` says whether the content is likely to be read next.
    fn run(&self, index: usize, frame: &Frame, wanted: bool, keep: bool) -> Result<(u64, u64)> {
        self.check_open()?;
        let run = match frame.header.generation {
            Generation::Modern if !frame.is_long() => self.run_small(frame, wanted),
            _ => self.run_long(index, frame, wanted, keep && frame.is_long()),
        };
        run.map_err(|e| inside(index, frame, e))
    }

    fn run_long(&self, index: usize, frame: &Frame, wanted: bool, keep: bool) -> Result<(u64, u64)> {
        let dictionary = self.dictionary(index, frame)?;
        // If memory has room for the whole content, later reads do not decode it again.
        let memory = self.policy.account.memory();
        let fits = frame.content.is_some_and(|len| len <= memory.total().saturating_sub(memory.used()) / 2);
        let is_modern = frame.header.generation == Generation::Modern;
        let in_memory = keep && !self.pieces.is_on() && fits && is_modern;
        let in_order = keep && self.pieces.reads_once();
        // Nor does a sequential reader of a frame too large to be kept in memory.
        let on_disk = in_order && is_modern && frame.content.is_some_and(|len| len > AHEAD);
        let keep = keep && !(in_order && self.ahead_len(index).is_none_or(|len| len > AHEAD));
        let whole = match (on_disk, in_memory) {
            (true, _) => self.reader_on_disk(frame, dictionary)?,
            (_, true) => Some(self.whole_reader(frame, dictionary)?),
            _ => None,
        };
        let mut reader = whole.map_or_else(|| self.reader(frame, dictionary), Ok)?;
        self.state(index).inspect(|state| self.record(frame, state, &mut reader));
        let fresh = || self.pieces.buffer(PIECE as usize);
        if reader.is_whole() || !(keep && self.pieces.is_on()) {
            let (len, hash, mut reader) =
                self.decode_all(index, frame, wanted, reader, fresh, |_, bytes| Some(bytes))?;
            match self.state(index).filter(|_| (keep || on_disk) && reader.is_whole()) {
                Some(state) => {
                    reader.seek(0);
                    lock(&state.live).idle.push(Cursor::new(reader, 0));
                    self.mark_recent(index);
                }
                None => self.recycle(reader),
            }
            return Ok((len, hash));
        }
        // Fresh memory is mapped page by page on first write: let another core do it, if one is available.
        let helper = self.helpers(u64::from(!in_order && !self.pieces.has_spare()));
        let (give, take) = mpsc::sync_channel(FED);
        let feed = move || {
            while let Ok(mut buffer) = fresh() {
                touch(&mut buffer);
                if let Err(unused) = give.send(buffer) {
                    return self.pieces.recycle(unused.0);
                }
            }
        };
        parallel::helped((helper.count() > 0).then_some(feed), || {
            let buffer = || take.recv().or_else(|_| fresh());
            let put = |piece, bytes| self.pieces.put(self.key(index), piece, bytes);
            let done = self.decode_all(index, frame, wanted, reader, buffer, put);
            for unused in take.try_iter().take(FED) {
                self.pieces.recycle(unused);
            }
            drop(take);
            let (len, hash, reader) = done?;
            self.recycle(reader);
            Ok((len, hash))
        })
    }

    /// Decodes all of frame `index` into buffers of [`PIECE`] bytes and passes each to `put`, which may return it for
    /// reuse. The last one is passed on after all checks. Returns the frame's length, its hash (only valid if
    /// `wanted`), and the reader.
    ///
    /// # Errors
    /// Fails if the frame is malformed, or the container is closed meanwhile.
    pub(super) fn decode_all(
        &self,
        index: usize,
        frame: &Frame,
        wanted: bool,
        mut reader: FrameReader,
        buffer: impl Fn() -> Result<Vec<u8>>,
        put: impl Fn(u64, Vec<u8>) -> Option<Vec<u8>>,
    ) -> Result<(u64, u64, FrameReader)> {
        let mut hash = Xxh64::new(0);
        let hashed = wanted || (frame.header.generation == Generation::V07 && frame.checksum.is_some());
        let (most, is_known) = self.expected(index, frame)?;
        let (mut len, mut spare) = (0_u64, None);
        for piece in 0.. {
            self.check_open()?;
            let mut bytes = spare.take().map_or_else(&buffer, Ok)?;
            bytes.resize(PIECE as usize, 0);
            decode_budget::charge_opening(PIECE)?;
            let n = reader.fill(&self.source, frame, &mut bytes)?;
            self.policy.account.count_beside(n as i64);
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
            let is_last = is_last || (is_known && len == most);
            if !is_last {
                spare = put(piece, bytes);
                continue;
            }
            // Without a buffer for content that must not follow.
            let excess = if n == PIECE as usize { reader.excess(&self.source, frame)? } else { 0 };
            let got = len.saturating_add(to_u64(excess));
            if is_known && got != most {
                return Err(length_error(got, most));
            }
            v07::check(frame, || hash.digest())?;
            if n > 0 {
                put(piece, bytes);
            }
            break;
        }
        Ok((len, hash.digest(), reader))
    }
}

/// Makes the system map fresh memory, page by page, by writing to it.
pub(super) fn touch(memory: &mut [u8]) {
    memory.iter_mut().step_by(page_size()).for_each(|byte| *byte = 0);
}
