//! Stretches of the container that are served as they are: at once where they are in the page cache.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::sys;
use crate::bytes::wide;
use crate::error::{Error, Kind, Result};
use crate::limits::zeroed;
use crate::view::{Bytes, Segment, View};

/// The bytes `range` of `view`, if they lie in one stretch of the container, nothing has to be checked before
/// they are served, and the kernel has them in memory.
pub(super) fn ready(view: &View, range: Range<u64>) -> Option<Bytes> {
    let mut bytes = None;
    let read = |segment: Segment<'_>| {
        let no = || Error::new(Kind::NotFound, "stored bytes");
        // A second segment, or one that is not stored, ends the attempt.
        let Segment::Stored { stored, at, len } = segment else { return Err(no()) };
        if bytes.is_some() || !stored.gate.as_ref().is_none_or(|gate| gate.is_decided() && gate.pass().is_ok()) {
            return Err(no());
        }
        let mut buffer = zeroed(len, "stored bytes")?;
        let file = stored.source.descriptor().ok_or_else(no)?;
        let at = stored.at.0.checked_add(at).ok_or_else(no)?;
        match sys::read_cached(file, &mut buffer, at) {
            Ok(n) if wide(n) == len && stored.source.check().is_ok() => bytes = Some(Bytes::Owned(buffer)),
            _ => return Err(no()),
        }
        Ok(())
    };
    view.segments(range, &mut { read }).ok()?;
    bytes
}

/// Whether the files that `range` of `view` was read from are as they were.
///
/// # Errors
/// [`Kind::Changed`].
pub(super) fn unchanged(view: &View, range: Range<u64>) -> Result<()> {
    view.segments(range, &mut |segment| match segment {
        Segment::Stored { stored, .. } => stored.source.check(),
        _ => Ok(()),
    })
}
