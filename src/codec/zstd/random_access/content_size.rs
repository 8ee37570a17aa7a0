//! The content sizes of frames: stated, or counted once.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Mutex;

use crate::account::{Account, Records};
use crate::error::{Error, Result};
use crate::limits::Limits;

use super::super::frame::Frame;
use super::super::measure::Measure;
use super::{Frames, inside, lock};

/// Limit on decoding a frame of unknown size: the larger of this many bytes and this multiple of the stored size.
const COUNTED: (u64, u64) = (1 << 30, 1024);
/// Maximum errors kept of frames that could not be counted.
const ERRORS: usize = 1024;
/// The size of a frame that is not counted yet.
const UNKNOWN: u64 = u64::MAX;

/// Sizes that were counted.
pub(super) struct Counted {
    /// By frame; empty if all frames state theirs.
    sizes: Mutex<Records<1>>,
    /// Errors of frames that could not be counted.
    errors: Mutex<HashMap<usize, Error>>,
    measures: Mutex<Vec<Measure>>,
}

impl Counted {
    /// Creates a list for `count` frames.
    ///
    /// # Errors
    /// [`Kind::NoRoom`] if the account is exhausted.
    pub(super) fn new(count: usize, account: &Account) -> Result<Self> {
        let sizes = Mutex::new(Records::filled(count, [UNKNOWN], account, "list of frames")?);
        Ok(Self { sizes, errors: Mutex::default(), measures: Mutex::default() })
    }

    /// The size of frame `index`, if counted.
    fn get(&self, index: usize) -> Option<u64> {
        lock(&self.sizes).get(index).map(|[size]| size).filter(|&size| size != UNKNOWN)
    }
}

impl Frames {
    /// Bytes of content of frame `index`, if stated or already counted.
    pub fn known(&self, index: usize) -> Option<Result<u64>> {
        let frame = self.list.get(index)?;
        match frame.content {
            Some(len) if len > frame.bound => {
                let why = format!("{len} bytes, its blocks produce at most {}", frame.bound);
                let e = Error::corrupt(why, "content size");
                Some(Err(e.at(frame.at.plus(5)).within(format_args!("frame {index}"))))
            }
            Some(len) => Some(Ok(len)),
            None => match self.counted.get(index) {
                None => lock(&self.counted.errors).get(&index).cloned().map(Err),
                Some(len) => Some(Ok(len)),
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
            Ok(len) => lock(&self.counted.sizes).set(index, [*len])?,
            Err(error) if error.is_lasting() => {
                let mut errors = lock(&self.counted.errors);
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
        let inside = |e: Error| inside(index, &frame, e);
        match self.measure(&frame).map_err(inside)? {
            Some(len) => Limits::check(len, self.policy.content, "content size").map_err(inside),
            None if frame.is_long() => self.pass(index).map(|pass| pass.len),
            None => self.check(index),
        }
    }

    /// Counts the content of `frame` without decoding, if possible.
    fn measure(&self, frame: &Frame) -> Result<Option<u64>> {
        let mut measure = lock(&self.counted.measures).pop().unwrap_or_default();
        let counted = measure.frame(&self.source, frame);
        lock(&self.counted.measures).push(measure);
        counted
    }

    /// The content size of `frame` and true, if stated or counted; otherwise an upper limit, which depends on the
    /// stored size, and false.
    pub(super) fn expected(&self, index: usize, frame: &Frame) -> Result<(u64, bool)> {
        let known = match frame.content.or_else(|| self.counted.get(index)) {
            Some(known) => Some(known),
            None => self.measure(frame)?,
        };
        let limit = COUNTED.0.max(frame.stored.saturating_mul(COUNTED.1)).min(self.policy.content);
        Ok(known.map_or((frame.bound.min(limit), false), |len| (len, true)))
    }
}
