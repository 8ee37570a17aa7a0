//! The content sizes of frames: stated, or counted once.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::limits::Limits;

use super::super::frame::Frame;
use super::{Frames, inside};

/// Limit on decoding a frame of unknown size: the larger of this many bytes and this multiple of the stored size.
const COUNTED: (u64, u64) = (1 << 30, 1024);

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
            None => self.counted.get(index),
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
            Err(error) if !error.is_lasting() => {}
            counted => self.counted.set(index, counted)?,
        }
        counted
    }

    /// Counts the content of frame `index`: from the lengths of its sequences, or by decoding it.
    fn count(&self, index: usize) -> Result<u64> {
        let frame = self.frame(index)?;
        let inside = |e: Error| inside(index, &frame, e);
        match self.counted.measure(&self.source, &frame).map_err(inside)? {
            Some(len) => Limits::check(len, self.policy.content, "content size").map_err(inside),
            None if frame.is_long() => self.pass(index).map(|pass| pass.len),
            None => self.check(index),
        }
    }

    /// The content size of `frame` and true, if stated or counted; otherwise an upper limit, which depends on the
    /// stored size, and false.
    pub(super) fn expected(&self, index: usize, frame: &Frame) -> Result<(u64, bool)> {
        let known = match frame.content.or_else(|| self.counted.get(index)?.ok()) {
            Some(known) => Some(known),
            None => self.counted.measure(&self.source, frame)?,
        };
        let limit = COUNTED.0.max(frame.stored.saturating_mul(COUNTED.1)).min(self.policy.content);
        Ok(known.map_or((frame.bound.min(limit), false), |len| (len, true)))
    }
}
