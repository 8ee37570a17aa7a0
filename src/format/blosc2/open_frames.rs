//! The frames in a container that were opened last.
//!
//! Limits: of the frames that are not in use, the last [`OPEN`] stay open.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::error::Result;

use super::frame::Frame;
use super::frames::OpenFrame;

/// Frames that stay open, of some kilobytes each.
const OPEN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The frames that were opened last, by a number that the container gives them.
pub(super) struct OpenFrames(Mutex<LruCache<u64, Arc<OpenFrame>>>);

impl Default for OpenFrames {
    fn default() -> Self {
        Self(Mutex::new(LruCache::sparse(OPEN)))
    }
}

impl OpenFrames {
    fn lock(&self) -> MutexGuard<'_, LruCache<u64, Arc<OpenFrame>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frame `key`, which `open` opens unless it is open.
    pub(super) fn get(&self, key: u64, open: impl FnOnce() -> Result<Frame>) -> Result<Arc<OpenFrame>> {
        if let Some(frame) = self.lock().get(&key) {
            return Ok(Arc::clone(frame));
        }
        let frame = Arc::new(OpenFrame::new(open()?));
        // Another thread may have been faster.
        Ok(Arc::clone(self.lock().get_or_insert(key, || frame)))
    }
}
