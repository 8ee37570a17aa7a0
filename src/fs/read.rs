//! Reading: at once what is there, on a worker what has to be decoded, and never less than was asked for.
//!
//! An event loop only looks into the cache. For what is missing it leaves the request with the pieces: each
//! is decoded once, whoever asks, and the last one to come answers. No thread waits meanwhile.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{Errno, ReplyData};

use super::row::Row;
use super::watch::Watch;
use super::{room, stored};
use crate::cache::{Cache, Readahead};
use crate::error::{Error, Kind};
use crate::format::BlobRef;
use crate::view::View;

/// Failures that are logged; a container that is broken all over does not fill the disk.
const LOGGED: usize = 1000;

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    ino: u64,
    view: Arc<View>,
    ahead: Mutex<Readahead>,
}

/// What every read needs.
#[derive(Debug)]
pub(super) struct Reader {
    cache: Arc<Cache>,
    watch: Arc<Watch>,
    /// What was logged already.
    failures: Mutex<HashSet<(u64, String)>>,
    row: Mutex<Row>,
}

impl Reader {
    pub(super) fn new(cache: Arc<Cache>, watch: Arc<Watch>) -> Self {
        Self { cache, watch, failures: Mutex::default(), row: Mutex::default() }
    }

    /// An opened file of the bytes of `view`.
    pub(super) fn open(&self, ino: u64, view: Arc<View>) -> Open {
        let ahead = Readahead::new(self.cache.workers(), self.cache.budget());
        Open { ino, view, ahead: Mutex::new(ahead) }
    }

    /// Answers a read of `size` bytes at `offset`, now or later.
    pub(super) fn read(self: &Arc<Self>, file: &Arc<Open>, offset: u64, size: u32, reply: ReplyData) {
        if self.watch.has_changed() {
            return reply.error(Errno::EIO);
        }
        let len = file.view.len();
        let range = offset.min(len)..offset.saturating_add(size.into()).min(len);
        if let Some(reply) = self.read_now(&file.view, &range, reply) {
            self.read_later(file, range.clone(), reply);
        }
        self.read_ahead(file, &range);
        self.next_files(file, &range);
    }

    /// Answers from what is in memory; gives the reply back where that is not enough.
    fn read_now(&self, view: &View, range: &Range<u64>, reply: ReplyData) -> Option<ReplyData> {
        let peek = |blob: &BlobRef, piece| self.cache.peek(blob, piece);
        if view.is_piece(range) {
            let Some(bytes) = view.ready_piece(range, &peek) else { return Some(reply) };
            reply.data(&bytes);
            return None;
        }
        let mut reply = Some(reply);
        let len = range.end.saturating_sub(range.start);
        // Without memory for an answer a worker may have better luck.
        let _ = room::with(len, |room| {
            let there = match stored::lone(view, range.clone()) {
                Some((stored, at)) => stored::fill_now(stored, at, room),
                None => view.fill_ready(range.start, room, &peek),
            };
            if let Some(reply) = reply.take_if(|_| there) {
                reply.data(room);
            }
        });
        reply
    }

    /// Leaves the request with the pieces that are missing.
    fn read_later(self: &Arc<Self>, file: &Arc<Open>, range: Range<u64>, reply: ReplyData) {
        let mut missing: Vec<(BlobRef, u64)> = Vec::new();
        let collected = file.view.pieces(range.clone(), &mut |blob, piece, _| {
            let known = missing.iter().any(|(b, p)| b.id() == blob.id() && *p == piece);
            if !known && !self.cache.holds(blob, piece) {
                missing.push((blob.clone(), piece));
            }
            // What would not fit beside itself is had one by one by whoever answers.
            missing.len() < self.cache.workers().saturating_mul(2).max(4)
        });
        if let Err(e) = collected {
            return self.fail(file, &e, reply);
        }
        let (reader, file) = (self.clone(), file.clone());
        let answer = move || reader.answer(&file, &range, reply);
        if missing.is_empty() {
            return self.cache.submit(Box::new(answer));
        }
        let last = Arc::new(Last { left: AtomicUsize::new(missing.len()), answer: Mutex::new(Some(Box::new(answer))) });
        for (blob, piece) in missing {
            let last = last.clone();
            self.cache.want(&blob, piece, Box::new(move || last.one_less()));
        }
    }

    /// Answers on a worker, decoding what is still missing.
    fn answer(&self, file: &Open, range: &Range<u64>, reply: ReplyData) {
        let mut reply = Some(reply);
        let mut send = |bytes: &[u8]| {
            // What was read while the container was changing may be half of each; the cache has looked after its pieces.
            stored::unchanged(&file.view, range.clone())?;
            if let Some(reply) = reply.take_if(|_| !self.watch.has_changed()) {
                reply.data(bytes);
            }
            Ok(())
        };
        let mut work = || {
            if file.view.is_piece(range) {
                return send(&file.view.get(range.clone(), &*self.cache)?);
            }
            let len = range.end.saturating_sub(range.start);
            room::with(len, |room| file.view.read(range.start, room, &*self.cache).and_then(|()| send(room)))?
        };
        let done = catch_unwind(AssertUnwindSafe(&mut work));
        let Some(reply) = reply else { return };
        match done {
            Ok(Err(e)) => self.fail(file, &e, reply),
            // Changed, or a panic that has logged itself.
            Ok(Ok(())) | Err(_) => reply.error(Errno::EIO),
        }
    }

    /// Decodes ahead of a reader that reads files in order which lie in one blob.
    fn next_files(&self, file: &Open, range: &Range<u64>) {
        if range.start > 0 {
            return;
        }
        let Some((blob, layout, own)) = file.view.lone_blob() else { return };
        let mut row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ahead) = row.begins(blob.id(), &own, self.cache.budget() / 4) else { return };
        let ahead = ahead.start.min(layout.len())..ahead.end.min(layout.len());
        if ahead.is_empty() {
            return;
        }
        let mut hints = self.cache.hints();
        for piece in layout.locate(ahead.start)..=layout.locate(ahead.end - 1) {
            let bounds = layout.range(piece);
            if !hints.add(blob, piece, bounds.end.saturating_sub(bounds.start)) {
                break;
            }
        }
        // What was not taken is decoded when it is read.
        hints.send();
    }

    /// Decodes ahead of a reader that reads in order.
    fn read_ahead(&self, file: &Open, range: &Range<u64>) {
        let mut state = file.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ahead) = state.next(range, file.view.piece_and_batch()) else { return };
        let ahead = ahead.start.min(file.view.len())..ahead.end.min(file.view.len());
        let mut hints = self.cache.hints();
        let walked = file.view.pieces(ahead, &mut |blob, piece, size| hints.add(blob, piece, size));
        if !hints.send() || walked.is_err() {
            state.refused();
        }
    }

    /// Answers with the error, and logs it once.
    fn fail(&self, file: &Open, error: &Error, reply: ReplyData) {
        if matches!(error.kind(), Kind::Changed) {
            self.watch.raise();
        } else {
            self.log(file.ino, error);
        }
        reply.error(Errno::from_i32(error.errno()));
    }

    /// Logs what went wrong with a file, once: readers and the kernel try again and again.
    pub(super) fn log(&self, ino: u64, error: &Error) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < LOGGED && failures.insert((ino, error.to_string())) {
            tracing::error!(ino, "{error}");
            if failures.len() == LOGGED {
                tracing::error!("{LOGGED} failures logged; those that follow are not");
            }
        }
    }
}

/// A request that waits for several pieces.
struct Last {
    left: AtomicUsize,
    answer: Mutex<Option<crate::cache::Job>>,
}

impl Last {
    /// A piece has come; the last one answers.
    fn one_less(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(answer) = answer {
                answer();
            }
        }
    }
}
