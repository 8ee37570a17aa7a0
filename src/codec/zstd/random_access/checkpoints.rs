//! The checkpoints of long frames: made by decoders that pass, kept for later reads and, in the index, for later mounts.
//!
//! They are compressed and written by a thread of their own, of low priority. A checkpoint that would have to wait too
//! long for it is not kept.
//!
//! Limits: without an index, [`SHARE`] of the account's memory, and then its disk space; [`QUEUED`] bytes of windows that
//! wait to be compressed; as much as [`SHARE`] stays with a decoder from one checkpoint to the next.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::account::{Account, Buffer};
use crate::bytes::{FileOffset, to_u64};
use crate::index::Records;
use crate::limits::Charge;
use crate::pool::Pool;
use crate::sync::{Condvar, Mutex};

use super::super::checkpoint::{DecoderState, History, Packer, Resume, Sink, unpack};
use super::super::frame::Frame;
use super::lock;

/// The kinds of records of the index.
const CHECKPOINT: &str = "zstd-checkpoint-";
const VERIFIED: &str = "zstd-verified-";
/// The part of the account's memory that checkpoints of a container may take.
const SHARE: u64 = 8;
/// Maximum bytes of windows that wait, besides one.
const QUEUED: u64 = 32 << 20;
/// Maximum bytes of a checkpoint besides its window.
const STATE: u64 = 64 << 10;
/// Maximum bytes of a window after which the memory to compress it is kept for the next one.
const SMALL: usize = 8 << 20;
/// How long a container that is closed waits for its checkpoints to be written.
const CLOSING: Duration = Duration::from_secs(5);
/// The nice value of the thread that compresses: readers come first. It gets a tenth of the share of one of them; with 19,
/// a sixtieth, and on a busy machine it might not end within [`CLOSING`].
const NICE: i32 = 10;

/// The account, the index and the thread that the checkpoints of all frames of a container share.
pub(super) struct Keeper {
    account: Account,
    /// Where they are kept for later mounts.
    records: Option<Arc<Records>>,
    /// Bytes of checkpoints in memory.
    memory: AtomicU64,
    pool: Pool,
    /// The memory in which the thread packs, if windows are small.
    packer: Mutex<Option<Packer>>,
    waiting: Mutex<u64>,
    done: Condvar,
}

impl Keeper {
    pub(super) fn new(account: Account, records: Option<Arc<Records>>) -> Arc<Self> {
        let (memory, pool) = (AtomicU64::new(0), Pool::new(1, "checkpoint"));
        let (packer, waiting, done) = (Mutex::default(), Mutex::default(), Condvar::new());
        Arc::new(Self { account, records, memory, pool, packer, waiting, done })
    }

    /// Whether they are kept for later mounts.
    pub(super) fn is_lasting(&self) -> bool {
        self.records().is_some_and(Records::is_usable)
    }

    /// The records of the container, if there is an index.
    pub(super) fn records(&self) -> Option<&Records> {
        self.records.as_deref()
    }

    /// Waits until what is to be written is written; not for ever.
    pub(super) fn finish(&self) {
        if self.records.is_some() {
            drop(self.done.wait_timeout_while(lock(&self.waiting), CLOSING, |waiting| *waiting > 0));
        }
    }

    /// Keeps `packed` for this mount only.
    fn in_account(&self, packed: &[u8]) -> Option<Buffer> {
        let len = to_u64(packed.len());
        let most = self.account.memory().total() / SHARE;
        if self.memory.fetch_add(len, Ordering::Relaxed).saturating_add(len) <= most {
            return self.account.buffer_of(packed, "checkpoint").ok();
        }
        self.memory.fetch_sub(len, Ordering::Relaxed);
        let mut buffer = self.account.buffer_on_disk(len, "checkpoint").ok()?;
        buffer.copy_from_slice(packed);
        Some(buffer)
    }
}

/// The checkpoints of one frame.
pub(super) struct Checkpoints {
    keeper: Arc<Keeper>,
    frame: Frame,
    /// Content between two of them.
    pub(super) spacing: u64,
    /// By their positions in the content.
    known: Mutex<BTreeMap<u64, Kept>>,
    /// Whether one has led to an error: all are given up.
    is_off: AtomicBool,
}

/// Where a checkpoint is.
#[derive(Clone)]
enum Kept {
    /// It waits to be compressed.
    Waiting(Arc<(DecoderState, History)>),
    Here(Arc<Buffer>),
    InIndex,
}

impl Checkpoints {
    /// The checkpoints of `frame`: those in the index.
    pub(super) fn new(keeper: Arc<Keeper>, frame: &Frame, spacing: u64) -> Arc<Self> {
        let kind = format!("{CHECKPOINT}{:x}-", frame.at.0);
        let names = keeper.records().map_or_else(Vec::new, |records| records.names(&kind));
        let place = |name: &String| u64::from_str_radix(name.strip_prefix(&kind)?, 16).ok();
        let known = names.iter().filter_map(place).map(|pos| (pos, Kept::InIndex)).collect();
        let (frame, is_off) = (frame.clone(), AtomicBool::new(false));
        Arc::new(Self { keeper, frame, spacing, known: Mutex::new(known), is_off })
    }

    fn name(&self, pos: u64) -> String {
        format!("{CHECKPOINT}{:x}-{pos:x}", self.frame.at.0)
    }

    /// The last checkpoint at or before byte `pos` of the content.
    pub(super) fn before(&self, pos: u64) -> Option<u64> {
        if self.is_off.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.known).range(..=pos).next_back().map(|(pos, _)| *pos)
    }

    /// The checkpoint at `pos`; if it is lost, it is forgotten. The caller has charged a window.
    pub(super) fn load(&self, pos: u64) -> Option<Resume> {
        let kept = lock(&self.known).get(&pos)?.clone();
        let most = self.frame.header.window.saturating_add(self.frame.header.window / 8).saturating_add(STATE);
        let found = match kept {
            Kept::Waiting(waiting) => Resume::at(&waiting.0, waiting.1.bytes(), &self.frame),
            Kept::Here(buffer) => unpack(&buffer, &self.frame).ok(),
            Kept::InIndex => {
                let packed = self.keeper.records().and_then(|records| records.get(&self.name(pos), most));
                packed.and_then(|packed| unpack(&packed, &self.frame).ok())
            }
        };
        let found = found.filter(|resume| resume.state.pos == pos);
        if found.is_none() {
            lock(&self.known).remove(&pos);
        }
        found
    }

    /// Gives all of them up: decoding from one has failed, so that only the start of the frame can tell why.
    pub(super) fn give_up(&self) {
        self.is_off.store(true, Ordering::Relaxed);
        let known = std::mem::take(&mut *lock(&self.known));
        if let Some(records) = self.keeper.records() {
            for pos in known.keys() {
                records.remove(&self.name(*pos));
            }
        }
    }

    fn save(&self, state: &DecoderState, history: &[u8]) -> Option<Kept> {
        let mut packer = lock(&self.keeper.packer).take().unwrap_or_default();
        let packed = packer.pack(state, history).ok()?;
        let records = self.keeper.records();
        let kept = if records.is_some_and(|records| records.put(&self.name(state.pos), packed)) {
            Some(Kept::InIndex)
        } else {
            self.keeper.in_account(packed).map(|buffer| Kept::Here(Arc::new(buffer)))
        };
        if history.len() <= SMALL {
            *lock(&self.keeper.packer) = Some(packer);
        }
        kept
    }
}

impl Sink for Checkpoints {
    fn next(&self, pos: u64) -> Option<u64> {
        let content = self.frame.content.unwrap_or(self.frame.bound).min(self.frame.bound);
        let known = lock(&self.known);
        let mut at = pos.max(self.spacing);
        while at < content && !self.is_off.load(Ordering::Relaxed) {
            let start = at - at % self.spacing;
            let end = start.saturating_add(self.spacing);
            if known.range(start..end).next().is_none() {
                return Some(at);
            }
            at = end;
        }
        None
    }

    fn charge(&self, bytes: u64) -> Option<Charge> {
        self.keeper.account.charge_spare(bytes, "window")
    }

    fn may_stay(&self, bytes: u64) -> bool {
        bytes <= self.keeper.account.memory().total() / SHARE
    }

    fn keep(self: Arc<Self>, state: DecoderState, history: History) -> bool {
        let len = to_u64(history.bytes().len());
        let mut waiting = lock(&self.keeper.waiting);
        if *waiting > 0 && waiting.saturating_add(len) > QUEUED {
            return false;
        }
        *waiting = waiting.saturating_add(len);
        drop(waiting);
        let pending = Pending { of: self.clone(), pos: state.pos, len, found: None };
        let waiting = Arc::new((state, history));
        lock(&self.known).insert(pending.pos, Kept::Waiting(waiting.clone()));
        // Dropped if it is refused.
        self.keeper.pool.hint(Box::new(move || {
            let mut pending = pending;
            // Of this thread only.
            crate::platform::set_niceness(NICE);
            pending.found = pending.of.save(&waiting.0, waiting.1.bytes());
            drop(waiting);
        }))
    }
}

/// A checkpoint that is being compressed, until this is dropped.
struct Pending {
    of: Arc<Checkpoints>,
    pos: u64,
    len: u64,
    found: Option<Kept>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut known = self.of.known.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = match self.found.take() {
            Some(kept) => known.insert(self.pos, kept),
            None => known.remove(&self.pos),
        };
        drop(known);
        drop(gone);
        let mut waiting = lock(&self.of.keeper.waiting);
        *waiting = waiting.saturating_sub(self.len);
        self.of.keeper.done.notify_all();
    }
}

/// Whether the checksum of `frame`, of `len` bytes of content, was verified in an earlier mount.
pub(super) fn was_verified(records: &Records, frame: &Frame, len: u64) -> bool {
    records.get(&verified_name(frame.at), 8).is_some_and(|kept| kept == len.to_le_bytes())
}

/// Records that the checksum of `frame`, of `len` bytes of content, was verified.
pub(super) fn put_verified(records: &Records, frame: &Frame, len: u64) {
    records.put(&verified_name(frame.at), &len.to_le_bytes());
}

fn verified_name(at: FileOffset) -> String {
    format!("{VERIFIED}{:x}", at.0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::super::checkpoint::Recorder;
    use super::super::super::decode::{FrameDecoder, WindowMemory};
    use super::super::super::frame_scan::scan_known_frames;
    use super::*;
    use crate::clock::wait_until;
    use crate::limits::Limits;
    use crate::source::Source;

    #[test]
    fn a_checkpoint_that_waits_to_be_compressed_is_the_one_that_is_kept_then() {
        let content: Vec<u8> = (0..1_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 27) as u8).collect();
        let source = Source::from_bytes(zstd::bulk::Compressor::new(1).unwrap().compress(&content).unwrap());
        let account = Account::new(64 << 20, 0);
        let range = FileOffset(0)..FileOffset(source.len());
        let mut frame = scan_known_frames(&source, range, &Limits::default(), &account).unwrap().frames.get(0).unwrap();
        frame.header.window = 1 << 17;
        let keeper = Keeper::new(account.clone(), None);
        let checkpoints = Checkpoints::new(keeper.clone(), &frame, 200_000);
        let (go, wait) = mpsc::channel();
        assert!(keeper.pool.hint(Box::new(move || wait.recv().unwrap())));
        let mut decoder = FrameDecoder::new(&frame, None, 8 << 20, WindowMemory::Own(None), &account).unwrap();
        let sink = checkpoints.clone();
        decoder.record(|recorder: &mut Recorder| recorder.record(sink, 1 << 17, 200_000));
        decoder.fill(&source, &frame, &mut vec![0; content.len()]).unwrap();

        let pos = checkpoints.before(900_000).unwrap();
        assert!(pos > 600_000 && matches!(lock(&checkpoints.known)[&pos], Kept::Waiting(_)));
        let waiting = checkpoints.load(pos).unwrap();
        go.send(()).unwrap();
        wait_until(|| *lock(&keeper.waiting) == 0);
        assert!(matches!(lock(&checkpoints.known)[&pos], Kept::Here(_)));
        let kept = checkpoints.load(pos).unwrap();
        assert_eq!((&waiting.state, waiting.header), (&kept.state, kept.header));
        let window = &content[pos as usize - (1 << 17)..pos as usize];
        assert!(waiting.dictionary == kept.dictionary && waiting.dictionary.ends_with(window));
    }
}
