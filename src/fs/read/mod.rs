//! The read path: replies at once from memory, otherwise after decoding; a read is never short except at the end of
//! file.
//!
//! Event loops only look into the cache. A miss waits for its checksum gate, or for its pieces, each decoded once for
//! all readers; the last completion replies. No thread blocks meanwhile.
#![forbid(unsafe_code)]

mod collected;
mod plan;
mod raw_read;
pub(super) mod reply;
pub(super) mod reply_buffer;
mod sequential_files;
mod waiting;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::faults::Faults;
use super::offload::Offload;
use super::source_watch::Watch;
use crate::cache::{Cache, Readahead};
use crate::error::{Error, Kind, Result};
use crate::format::{BlobRef, Fetch, Piece};
use crate::tree::{Ino, OpenFile};
use crate::view::View;
use crate::wanted::Then;

use collected::{Collected, Copied, HeldBytes};
use plan::{Needed, Plan, plan};
use reply::Reply;
use sequential_files::SequentialFiles;
use waiting::Waiting;

/// Maximum bytes that are prefetched of a file that will be read whole.
const WHOLE: u64 = 8 << 20;

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    ino: Ino,
    /// Shared with other opens of the same file.
    _file: Arc<OpenFile>,
    view: Arc<View>,
    /// The same bytes as a part of a larger content.
    part_of: Option<Arc<View>>,
    ahead: Mutex<Readahead>,
}

/// A read that was not answered at once.
#[derive(Debug, Clone)]
pub(super) struct Request {
    file: Arc<Open>,
    /// The view of the file, or that by its fragments.
    view: Arc<View>,
    range: Range<u64>,
}

/// State shared by all reads.
#[derive(Debug)]
pub(super) struct Reader {
    cache: Arc<Cache>,
    watch: Arc<Watch>,
    offload: Arc<Offload>,
    held: HeldBytes,
    faults: Faults,
    sequential: Mutex<SequentialFiles>,
}

impl Reader {
    pub(super) fn new(cache: Arc<Cache>, watch: Arc<Watch>, offload: Arc<Offload>, faults: Faults) -> Self {
        Self { cache, watch, offload, held: HeldBytes::default(), faults, sequential: Mutex::default() }
    }

    /// Opens `file`, which serves the bytes of `view`.
    pub(super) fn open(&self, ino: Ino, file: Arc<OpenFile>, view: Arc<View>) -> Open {
        let ahead = Readahead::new(self.cache.workers(), self.cache.budget());
        let ahead = if view.is_far() { ahead.far() } else { ahead };
        let part_of = file.file.part_of.as_ref().and_then(|content| View::new(content, &*self.cache).ok());
        Open { ino, _file: file, view, part_of: part_of.map(Arc::new), ahead: Mutex::new(ahead) }
    }

    /// Replies to a read of `size` bytes at `offset`, now or later.
    pub(super) fn read(self: &Arc<Self>, file: &Arc<Open>, offset: u64, size: u32, reply: impl Reply) {
        if self.watch.has_changed() {
            return reply.error(libc::EIO);
        }
        let len = file.view.len();
        let range = offset.min(len)..offset.saturating_add(size.into()).min(len);
        let view = self.view(file, &range);
        if let Some(reply) = self.read_now(view, &range, reply) {
            self.read_missing(file, view, &range, reply);
        }
        self.read_ahead(file, &range);
        self.next_files(file, &range);
    }

    /// The view to read `range` by: that of a larger content if its pieces are in memory or are being decoded.
    fn view<'a>(&self, file: &'a Open, range: &Range<u64>) -> &'a Arc<View> {
        file.part_of.as_ref().filter(|part_of| self.is_known(part_of, range)).unwrap_or(&file.view)
    }

    /// Whether the pieces of `range` of `view` are in memory or are being decoded.
    pub(super) fn is_known(&self, view: &View, range: &Range<u64>) -> bool {
        let mut all = true;
        let walked = view.pieces(range.clone(), &mut |blob, piece, _| {
            all = self.cache.is_known(blob, piece);
            all
        });
        walked.is_ok() && all
    }

    /// Replies from memory; returns the reply if that is not possible.
    fn read_now<R: Reply>(&self, view: &View, range: &Range<u64>, reply: R) -> Option<R> {
        let peek = |blob: &BlobRef, piece| self.cache.peek(blob, piece);
        if view.is_piece(range) {
            let Some(bytes) = view.ready_piece(range, &peek) else { return Some(reply) };
            reply.data(&bytes);
            return None;
        }
        let mut reply = Some(reply);
        let len = range.end.saturating_sub(range.start);
        // If allocation fails here, a worker tries again.
        let _ = reply_buffer::with(len, |buffer| {
            let there = match raw_read::lone(view, range.clone()) {
                Some((stored, at)) => raw_read::fill_now(stored, at, buffer),
                None => view.fill_ready(range.start, buffer, &peek),
            };
            if let Some(reply) = reply.take_if(|_| there) {
                reply.data(buffer);
            }
        });
        reply
    }

    /// Replies from fragments to a reader that jumps, if that is less work than the pieces.
    fn read_missing(self: &Arc<Self>, file: &Arc<Open>, view: &Arc<View>, range: &Range<u64>, reply: impl Reply) {
        let is_random = file.ahead.lock().unwrap_or_else(PoisonError::into_inner).is_random(range);
        let fragments = if is_random { self.fragments(view, range) } else { None };
        let (view, reply) = match fragments {
            None => (view, Some(reply)),
            Some(view) => (view, self.read_now(view, range, reply)),
        };
        let Some(reply) = reply else { return };
        self.read_later(Request { file: file.clone(), view: view.clone(), range: range.clone() }, reply);
    }

    /// The view by fragments, if they are less work for `range` than its pieces.
    fn fragments<'a>(&self, view: &'a View, range: &Range<u64>) -> Option<&'a Arc<View>> {
        view.by_fragments(range, &|blob, piece| self.cache.is_known(blob, piece))
    }

    /// Queues the request behind the gate or the pieces that it needs.
    fn read_later(self: &Arc<Self>, request: Request, reply: impl Reply) {
        let most = self.cache.workers().saturating_mul(2).max(4);
        let (view, range) = (request.view.clone(), request.range.clone());
        let Needed { have, missing, on } = match plan(&view, range.clone(), &self.cache, most) {
            Ok(Plan::Pieces(needed)) => needed,
            Ok(Plan::Shut(gate)) => {
                let me = self.clone();
                return gate.when_open(move |verdict| match verdict {
                    Ok(()) => me.read_later(request, reply),
                    Err(e) => me.fail(&request.file, &e, reply),
                });
            }
            Err(e) => return self.fail(&request.file, &e, reply),
        };
        let waits = !missing.is_empty() || on.is_some();
        let mut collected = Collected::default();
        for (key, piece) in have {
            // Without a wait, nothing is held.
            let held = waits.then_some(&self.held);
            if let Err(e) = collected.add(key, piece, &view, &range, held) {
                collected.release(&self.held);
                return self.fail(&request.file, &e, reply);
            }
        }
        let waiting = Waiting::new(self, request, missing.len(), collected, on, reply);
        if missing.is_empty() {
            return waiting.finish(on);
        }
        let then = move |key| -> Then<Piece> {
            let waiting = waiting.clone();
            Box::new(move |result| waiting.comes(key, result))
        };
        self.cache.fetch_all(missing, then);
    }

    /// Replies from `collected` and the cache; decodes what is missing.
    fn answer(self: &Arc<Self>, request: &Request, collected: &mut Collected, reply: impl Reply) {
        let Request { view, range, .. } = request;
        let copied = collected.copied.take();
        let fetch = Delivered { collected, cache: &self.cache };
        let mut reply = Some(reply);
        let mut send = |bytes: &[u8]| {
            // Bytes read during a change may mix old and new content; the cache checks its own pieces.
            raw_read::unchanged(view, range.clone())?;
            if let Some(reply) = reply.take_if(|_| !self.watch.has_changed()) {
                reply.data(bytes);
            }
            Ok(())
        };
        let work = || {
            if let Some(Copied { mut bytes, pieces }) = copied {
                let done = |blob: &BlobRef, piece| pieces.contains(&(blob.id(), piece));
                return view.read_rest(range.start, &mut bytes, &done, &fetch).and_then(|()| send(&bytes));
            }
            if view.is_piece(range) {
                return send(&view.get(range.clone(), &fetch)?);
            }
            let len = range.end.saturating_sub(range.start);
            reply_buffer::with(len, |buffer| view.read(range.start, buffer, &fetch).and_then(|()| send(buffer)))?
        };
        let done = catch_unwind(AssertUnwindSafe(work));
        let Some(reply) = reply else { return };
        match done {
            Ok(Err(e)) => self.failed(request, &e, reply),
            // Changed, or a panic, which is logged already.
            Ok(Ok(())) | Err(_) => reply.error(libc::EIO),
        }
    }

    /// Retries with less if a piece failed that holds more than the request needs: by fragments, or from the content of
    /// the file alone. So the outcome of a read does not depend on the order of reads. Otherwise replies with the
    /// error.
    fn failed(self: &Arc<Self>, request: &Request, error: &Error, reply: impl Reply) {
        let Request { file, view, range } = request;
        let is_part = file.part_of.as_ref().is_some_and(|part| Arc::ptr_eq(part, view));
        let less = if is_part { Some(&file.view) } else { file.view.by_fragments(range, &|_, _| false) };
        let is_new = |less: &&Arc<View>| error.is_lasting() && !Arc::ptr_eq(less, view);
        match less.filter(is_new) {
            Some(view) => self.read_later(Request { view: view.clone(), ..request.clone() }, reply),
            None => self.fail(file, error, reply),
        }
    }

    /// Prefetches for a reader that opens consecutive files of one blob.
    fn next_files(&self, file: &Open, range: &Range<u64>) {
        if range.start > 0 {
            return;
        }
        let view = file.part_of.as_ref().unwrap_or(&file.view);
        let Some((blob, layout, own)) = view.single_blob() else { return };
        let mut sequential = self.sequential.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ahead) = sequential.begins(blob.id(), &own, self.cache.budget() / 4) else { return };
        let ahead = ahead.start.min(layout.len())..ahead.end.min(layout.len());
        if ahead.is_empty() {
            return;
        }
        let mut hints = self.cache.prefetch_batch();
        for piece in layout.locate(ahead.start)..=layout.locate(ahead.end - 1) {
            let bounds = layout.range(piece);
            if !hints.add(blob, piece, bounds.end.saturating_sub(bounds.start)) {
                break;
            }
        }
        // Pieces that are not accepted are decoded when read.
        hints.send();
    }

    /// Prefetches `file`, which will be read whole, while its reader makes room for it.
    pub(super) fn prefetch(&self, file: &Open) {
        let mut pieces = Vec::new();
        // Pieces that are not accepted are decoded when read.
        let _ = file.view.pieces(0..file.view.len().min(WHOLE), &mut |blob, piece, size| {
            pieces.push((blob.clone(), piece, size));
            true
        });
        let Some((first, _, _)) = pieces.first() else { return };
        let own = || pieces.iter().filter(|(blob, ..)| blob.id() == first.id()).map(|(_, piece, _)| *piece);
        let range = own().min().unwrap_or(0)..=own().max().unwrap_or(0);
        let mut hints = self.cache.prefetch_whole(first, &range);
        let _ = pieces.iter().all(|(blob, piece, size)| hints.add(blob, *piece, *size));
        hints.send();
    }

    /// Prefetches for a sequential reader of one file.
    fn read_ahead(&self, file: &Open, range: &Range<u64>) {
        let mut state = file.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ahead) = state.next(range, file.view.piece_and_batch()) else { return };
        let ahead = ahead.start.min(file.view.len())..ahead.end.min(file.view.len());
        let mut hints = self.cache.prefetch_batch();
        let walked = file.view.pieces(ahead, &mut |blob, piece, size| hints.add(blob, piece, size));
        if !hints.send() || walked.is_err() {
            state.refused();
        }
    }

    /// Replies with the error, and logs the fault.
    fn fail(&self, file: &Open, error: &Error, reply: impl Reply) {
        if matches!(error.kind(), Kind::Changed) {
            self.watch.mark_changed();
        } else {
            self.log(file.ino, error);
        }
        reply.error(error.errno_of_existing());
    }

    /// Logs a fault of a file.
    pub(super) fn log(&self, ino: Ino, error: &Error) {
        self.faults.in_file(ino, error);
    }
}

/// Returns the delivered pieces, and decodes others.
struct Delivered<'a> {
    collected: &'a Collected,
    cache: &'a Cache,
}

impl Fetch for Delivered<'_> {
    fn piece(&self, blob: &BlobRef, piece: u64) -> Result<Piece> {
        match self.collected.pieces.get(&(blob.id(), piece)) {
            Some(piece) => Ok(piece.clone()),
            None => self.cache.get(blob, piece),
        }
    }
}

#[cfg(test)]
mod tests;
