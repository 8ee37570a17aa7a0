//! Random access to the decoded bytes of frames: small frames are decoded whole, long ones piece by piece.
//!
//! `content_size`, `counted`: sizes that a frame does not state. `small_frames`: frames that are decoded at once.
//! `long_frame`, `long_pieces`: the state and the pieces of a long frame. `readers`: its decoders. `whole_pass`:
//! decoding a frame from start to end, for its checks. `readahead`: the same before a reader reaches it.
//! `checkpoints`, `resume`: where decoders begin other than at the start of a frame. `dictionary_choice`: which dictionary a frame needs.
//!
//! Checked: content size and checksum of a small frame with each decode; of a long frame in one pass over it, before
//! its first byte is served or as `verify=` says. If a frame has no checksum but the seek table has one for it, that is
//! verified at the same times, and never with `verify=off`.
//!
//! Limits: decoders, their windows and the pieces kept are charged to the account. Each long frame with a failed
//! checksum leaves its error behind, some 200 bytes for a frame of 64 KiB to many GiB.
#![forbid(unsafe_code)]

mod checkpoints;
mod content_size;
mod counted;
mod dictionary_choice;
mod long_frame;
mod long_pieces;
mod readahead;
mod readers;
mod resume;
mod small_frames;
mod whole_pass;

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, PoisonError};

use crate::account::{Account, Pieces};
use crate::bytes::to_u64;
use crate::checksum::{ChecksumGate, Helpers, Threads, Verify};
use crate::error::{Error, Kind, Result};
use crate::index::Records;
use crate::limits::Charge;
use crate::recent::Recent;
use crate::source::Source;
use crate::sync::{Mutex, MutexGuard};

use super::decode::FrameDecoder;
use super::dictionary::Dictionaries;
use super::frame::{Frame, needed};
use super::frame_list::FrameList;
use super::reader::Turns;
use super::seek_table::read_listed;
use super::small::Small;
use checkpoints::Keeper;
use counted::Counted;
use long_frame::LongFrame;
use readahead::ReadaheadQueue;

/// Maximum number of long frames with state that is kept. Another one is checked again when it is read again.
const STATES: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();

/// How frames are decoded.
#[derive(Debug, Clone)]
pub struct Policy {
    /// When the checksum of a long frame is verified.
    pub verify: Verify,
    /// The threads that verify it.
    pub threads: Threads,
    /// Maximum history of one decoder, in bytes.
    pub window: u64,
    /// Maximum content of a frame of unknown size.
    pub content: u64,
    /// Charged for decoders.
    pub account: Account,
    /// Where what is expensive to find again is kept for later mounts.
    pub records: Option<Arc<Records>>,
}

/// The frames, and state beyond their headers.
pub struct Frames {
    /// The file that contains them.
    pub source: Arc<Source>,
    /// Their headers.
    pub list: FrameList,
    dictionaries: Dictionaries,
    policy: Policy,
    pieces: Arc<Pieces>,
    /// Cache key of the first frame's pieces; the other frames follow.
    owner: u64,
    /// State of the long frames used last.
    states: Recent<usize, Arc<LongFrame>>,
    /// The long frames with a failed checksum, so that none is served again after its state is dropped.
    failed: Mutex<HashMap<usize, Error>>,
    counted: Counted,
    smalls: Mutex<Vec<Small>>,
    /// Idle decoders of 0.7 frames.
    decoders: Mutex<Vec<FrameDecoder>>,
    /// The long frames read most recently: only these keep decoders and pieces.
    recent: Mutex<VecDeque<usize>>,
    /// The frames of sequential readers.
    readahead: Mutex<ReadaheadQueue>,
    turns: Turns,
    keeper: Arc<Keeper>,
    /// For `states`.
    _charge: Charge,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Frames {
    /// The frames `list` of `source`. Decodes nothing.
    ///
    /// # Errors
    /// Fails if a long frame needs a larger window than is allowed; [`Kind::NoRoom`] if the account has no room for the
    /// state of so many frames.
    pub fn new(
        source: Arc<Source>,
        list: FrameList,
        dictionaries: Dictionaries,
        policy: Policy,
        pieces: Arc<Pieces>,
    ) -> Result<Arc<Self>> {
        let mut long = 0;
        for frame in list.iter().filter(Frame::is_long) {
            needed(&frame, policy.window)?;
            long = STATES.get().min(long + 1);
        }
        let unknown = list.iter().any(|frame| frame.content.is_none());
        let bytes = to_u64(2 * long * size_of::<LongFrame>());
        let charge = policy.account.charge_list(bytes, "list of frames")?;
        let owner = pieces.owners(to_u64(list.len()));
        let frames = Arc::new(Self {
            counted: Counted::new(if unknown { list.len() } else { 0 }, &policy.account)?,
            smalls: Mutex::default(),
            turns: Turns::default(),
            keeper: Keeper::new(policy.account.clone(), policy.records.clone()),
            readahead: Mutex::default(),
            _charge: charge,
            source,
            list,
            dictionaries,
            policy,
            pieces,
            owner,
            states: Recent::new(STATES),
            failed: Mutex::default(),
            decoders: Mutex::default(),
            recent: Mutex::default(),
        });
        frames.load_sizes()?;
        Ok(frames)
    }

    /// The account that decoders are charged to.
    pub(super) fn account(&self) -> &Account {
        &self.policy.account
    }

    /// Fails once the container is closed.
    ///
    /// # Errors
    /// See [`Threads::check_open`].
    pub(super) fn check_open(&self) -> Result<()> {
        self.policy.threads.check_open("frame")
    }

    fn key(&self, index: usize) -> u64 {
        self.owner.saturating_add(to_u64(index))
    }

    /// A gate for a check that decodes whole frames.
    pub(super) fn whole(&self, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> ChecksumGate {
        ChecksumGate::new(&Verify::First, 0, &self.policy.threads, check)
    }

    /// Threads that may decode in addition to the caller's.
    pub(super) fn helpers(&self, wanted: u64) -> Helpers {
        self.policy.threads.helpers(wanted)
    }

    /// Frame `index`; reads its headers if only the seek table was read so far.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if `index` is out of range; fails if the frame contradicts the seek table.
    fn frame(&self, index: usize) -> Result<Frame> {
        let frame = self.entry(index)?;
        if !frame.is_listed {
            return Ok(frame);
        }
        read_listed(&self.source, &frame, self.account())
            .map_err(|e| if e.is_unknown() { e.within(format_args!("frame {index}")) } else { e })
    }

    /// Frame `index`, as far as it is known.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if `index` is out of range.
    pub fn entry(&self, index: usize) -> Result<Frame> {
        self.list.get(index).ok_or_else(|| Error::new(Kind::NotFound, "frame"))
    }

    /// Whether frame `index` is long, that is, decoded piece by piece.
    pub fn is_long(&self, index: usize) -> bool {
        self.list.get(index).is_some_and(|frame| frame.is_long())
    }

    /// The state of frame `index`, if it is long.
    fn state(&self, index: usize) -> Option<Arc<LongFrame>> {
        let known = self.existing_state(index);
        known.or_else(|| self.is_long(index).then(|| self.states.get_or_put(index, Arc::default)))
    }

    /// The state of frame `index`, if there is one.
    fn existing_state(&self, index: usize) -> Option<Arc<LongFrame>> {
        self.states.get(&index)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.keeper.finish();
    }
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frames({})", self.list.len())
    }
}

/// Adds the context of frame `index` to `error`.
fn inside(index: usize, frame: &Frame, error: Error) -> Error {
    error.at(frame.at).within(format_args!("frame {index}"))
}
