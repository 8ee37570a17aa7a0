//! Flattens a content: nested joins and slices become one list of parts.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::bytes::to_u64;
use crate::checksum::ChecksumGate;
use crate::error::{Error, Kind, Result};
use crate::format::{BlobRef, Content, Fetch, Measured};

use super::grid::{self, GridReader};
use super::{Computed, LONGEST, Leaf, View, ViewPart};

/// Maximum nesting depth of contents.
const DEPTH: u32 = 32;

/// The length of `content`, if it is known without decoding or computing.
pub fn known_len(content: &Content) -> Option<u64> {
    count(content, DEPTH)
}

fn count(content: &Content, depth: u32) -> Option<u64> {
    let depth = depth.checked_sub(1)?;
    match content {
        Content::Bytes(bytes) => Some(to_u64(bytes.len())),
        Content::Computed { len, .. } | Content::Deferred { len, .. } => *len,
        Content::FileExtent(stored) => Some(stored.len),
        Content::Blob(blob) => blob.known_len(),
        Content::Grid(grid) => grid::byte_len(grid).ok(),
        Content::Zeros(len) => Some(*len),
        Content::Join(parts) => parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(count(part, depth)?)),
        Content::Slice(_, range) => range.end.checked_sub(range.start),
    }
}

/// The work that [`View::new`] would do, which decides on which thread it may run.
#[derive(Debug, Clone)]
pub enum Effort {
    /// At most reading structure: no decoding, no computing.
    Structure,
    /// Decoding behind this gate, which other contents may share.
    Sizing(ChecksumGate),
    /// Computing or decoding a part.
    Compute,
    /// Creating a deferred content, with any number of parts.
    Whole,
}

/// The work that [`View::new`] would do now. May read structure; decodes nothing.
///
/// # Errors
/// Fails if structure is broken.
pub fn effort(content: &Content) -> Result<Effort> {
    effort_of(content, DEPTH)
}

fn effort_of(content: &Content, depth: u32) -> Result<Effort> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(Effort::Structure) };
    let blob = |blob: &BlobRef| match blob.measured().and_then(Measured::sizing) {
        Some(gate) => Effort::Sizing(gate),
        None if blob.known_len().is_none() => Effort::Compute,
        None => Effort::Structure,
    };
    match content {
        Content::Bytes(_) | Content::FileExtent(_) | Content::Zeros(_) | Content::Computed { len: Some(_), .. } => {
            Ok(Effort::Structure)
        }
        Content::Computed { len: None, .. } => Ok(Effort::Compute),
        Content::Deferred { len: None, .. } => Ok(Effort::Whole),
        Content::Deferred { len: Some(_), make } => effort_of(&make()?, depth),
        Content::Blob(of) => Ok(blob(of)),
        Content::Grid(grid) => Ok(blob(&grid.blob)),
        Content::Slice(inner, _) => effort_of(inner, depth),
        Content::Join(parts) => {
            for part in parts.iter() {
                match effort_of(part, depth)? {
                    Effort::Structure => {}
                    more => return Ok(more),
                }
            }
            Ok(Effort::Structure)
        }
    }
}

/// Flattens `content`.
pub(super) fn flatten(content: &Content, fetch: &dyn Fetch) -> Result<View> {
    let mut parts = Vec::new();
    push(content, fetch, DEPTH, &mut parts)?;
    let mut len = 0_u64;
    for part in &mut parts {
        let sum = len.checked_add(part.len).filter(|&sum| sum <= LONGEST);
        len = sum.ok_or_else(|| Error::corrupt("the number of bytes exceeds 63 bits", "file"))?;
        part.end = len;
    }
    parts.shrink_to_fit();
    Ok(View { parts, len, fragments: OnceLock::new() })
}

/// Appends the nonempty parts of `content`; the caller sets their ends.
fn push(content: &Content, fetch: &dyn Fetch, depth: u32, parts: &mut Vec<ViewPart>) -> Result<()> {
    let depth = depth.checked_sub(1).ok_or_else(|| {
        Error::new(Kind::TooLarge { value: u64::from(DEPTH) + 1, limit: u64::from(DEPTH) }, "nesting")
    })?;
    let (leaf, len) = match content {
        Content::Bytes(bytes) => (Leaf::Bytes(bytes.clone()), to_u64(bytes.len())),
        Content::Computed { len, make } => {
            let computed = Computed::new(make.clone(), *len);
            let len = match len {
                Some(len) => *len,
                None => to_u64(computed.bytes(fetch)?.len()),
            };
            (Leaf::Computed(Arc::new(computed)), len)
        }
        Content::Deferred { len, make } => {
            let mut computed = Vec::new();
            push(&make()?, fetch, depth, &mut computed)?;
            let sum = computed.iter().fold(0_u64, |sum, part| sum.saturating_add(part.len));
            if len.is_some_and(|len| len != sum) {
                return Err(Error::corrupt("its length differs from the announced one", "file"));
            }
            parts.append(&mut computed);
            return Ok(());
        }
        Content::FileExtent(stored) => (Leaf::FileExtent(stored.clone()), stored.len),
        Content::Blob(blob) => {
            let layout = blob.layout()?;
            let len = layout.len();
            (Leaf::Blob(blob.clone(), layout), len)
        }
        Content::Grid(grid) => {
            let gather = GridReader::new(grid)?;
            let len = gather.len();
            if let Some((blob, layout, at)) = gather.contiguous() {
                let leaf = Leaf::Blob(blob.clone(), layout.clone());
                parts.push(ViewPart { end: 0, len, skip: at, leaf });
                return Ok(());
            }
            (Leaf::Grid(Arc::new(gather)), len)
        }
        Content::Zeros(len) => (Leaf::Zeros, *len),
        Content::Join(inner) => return inner.iter().try_for_each(|part| push(part, fetch, depth, parts)),
        Content::Slice(inner, range) => {
            let mut whole = Vec::new();
            push(inner, fetch, depth, &mut whole)?;
            return crop(whole, range, parts);
        }
    };
    if len > 0 {
        parts.push(ViewPart { end: 0, len, skip: 0, leaf });
    }
    Ok(())
}

/// Appends the part of `whole` that is within `range`.
fn crop(whole: Vec<ViewPart>, range: &Range<u64>, parts: &mut Vec<ViewPart>) -> Result<()> {
    let mut at = 0_u64;
    for mut part in whole {
        let (start, end) = (at, at.saturating_add(part.len));
        at = end;
        let subslice = range.start.clamp(start, end)..range.end.clamp(start, end);
        if subslice.start < subslice.end {
            part.skip += subslice.start - start;
            part.len = subslice.end - subslice.start;
            parts.push(part);
        }
    }
    if range.start <= range.end && range.end <= at {
        return Ok(());
    }
    let need = range.end.saturating_sub(range.start);
    Err(Error::new(Kind::Truncated { need, have: at.saturating_sub(range.start) }, "part of a file"))
}
