//! Reads of byte ranges that are served as stored: immediate if they are in the page cache.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::os::fd::AsFd;

use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::FileExtent;
use crate::fs::sys;
use crate::view::{Extent, View};

/// The extent that contains `range` of `view`, and the offset in it, if there is exactly one.
pub(super) fn lone(view: &View, range: Range<u64>) -> Option<(&FileExtent, u64)> {
    let mut found = None;
    let mut alone = true;
    view.extents(range, &mut |extent| {
        match extent {
            Extent::FileExtent { stored, at, .. } if found.is_none() => found = Some((stored, at)),
            _ => alone = false,
        }
        Ok(())
    })
    .ok()?;
    found.filter(|_| alone)
}

/// Fills `dst` from offset `at` of `stored`, if no checksum is pending, nothing blocks, and the file is unchanged.
pub(super) fn fill_now(stored: &FileExtent, at: u64, dst: &mut [u8]) -> bool {
    let place = stored.at.0.checked_add(at);
    let (Some(file), Some(place)) = (stored.source.file(), place) else { return false };
    stored.shut(at, to_u64(dst.len())).is_none()
        && sys::read_cached(file.as_fd(), dst, place).is_ok_and(|n| to_u64(n) == to_u64(dst.len()))
        && stored.source.is_same_in_memory()
}

/// Checks that the files behind `range` of `view` are unchanged.
///
/// # Errors
/// [`crate::error::Kind::Changed`].
pub(super) fn unchanged(view: &View, range: Range<u64>) -> Result<()> {
    view.extents(range, &mut |extent| match extent {
        Extent::FileExtent { stored, .. } => stored.source.check(),
        _ => Ok(()),
    })
}
