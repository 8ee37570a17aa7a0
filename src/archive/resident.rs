//! Reads of a file into memory of the GPU.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::{File, contained};
use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};
use crate::format::{Batched, Content, OnDevice};
use crate::gpu::{DeviceBuffer, ForeignStream};

/// Maximum depth of content in content.
const DEPTH: u32 = 8;

impl File {
    /// Decodes bytes `range` of the file on the GPU and leaves them there. Only stored bytes are uploaded, and no
    /// decoded ones come back; both overlap with decoding. Pieces that the cache has are decoded again.
    ///
    /// The GPU is that of [`Options::device`](crate::Options::device): the first one by default. `stream` is a stream
    /// of the caller, which allocation and freeing are ordered on; see [`DeviceBuffer`]. Returns when all work is done,
    /// so that any stream may use the bytes. They count against [`Options::gpu_memory`](crate::Options::gpu_memory)
    /// until they are freed.
    ///
    /// # Errors
    /// [`Kind::Usage`] if no GPU can be used or its memory does not suffice, [`Kind::Unsupported`] if the bytes are
    /// none that a GPU decodes (of the formats only FZM has such), [`Kind::Truncated`] if the file ends before the
    /// range; otherwise as [`File::read_at`].
    pub fn decode_to_device(&self, range: Range<u64>, stream: Option<ForeignStream>) -> Result<DeviceBuffer> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::new(Kind::Truncated { need: range.end, have: self.len() }, "range of a file"));
        }
        contained("file", || {
            let none = || Error::unsupported("only arrays of FZM files decode on a GPU", "device");
            let OnDevice { stream: source, at } = locate(self.content(), range.clone(), DEPTH)?.ok_or_else(none)?;
            source.decode(at..at.saturating_add(range.end - range.start), stream)
        })
    }
}

/// Where bytes `range` of `content` are decoded on a device, if all of them lie in one stream, one after the other.
fn locate(content: &Content, range: Range<u64>, depth: u32) -> Result<Option<OnDevice>> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(None) };
    let within = |on: OnDevice| OnDevice { at: on.at.saturating_add(range.start), ..on };
    Ok(match content {
        Content::Blob(blob) => blob.batched().and_then(Batched::on_device).map(within),
        Content::Grid(grid) if grid.window.is_none() => grid.blob.batched().and_then(Batched::on_device).map(within),
        Content::Slice(inner, of) => {
            let shifted = of.start.saturating_add(range.start)..of.start.saturating_add(range.end);
            locate(inner, shifted, depth)?
        }
        Content::Deferred { make, .. } => locate(&make()?, range, depth)?,
        Content::Join(parts) => {
            let (mut found, mut start): (Option<OnDevice>, _) = (None, 0);
            for part in &**parts {
                let Some(len) = len(part, depth)? else { return Ok(None) };
                let (from, to) = (range.start.max(start), range.end.min(start.saturating_add(len)));
                if from < to || (range.is_empty() && range.start == start) {
                    let Some(on) = locate(part, from - start..to.max(from) - start, depth)? else { return Ok(None) };
                    match &found {
                        None => found = Some(on),
                        Some(first) => {
                            let follows = on.at == first.at.saturating_add(from - range.start);
                            if !follows || !Arc::ptr_eq(&first.stream, &on.stream) {
                                return Ok(None);
                            }
                        }
                    }
                }
                start = start.saturating_add(len);
            }
            found
        }
        _ => None,
    })
}

/// The length of content, if it is of a kind that may adjoin a blob that a device decodes.
fn len(content: &Content, depth: u32) -> Result<Option<u64>> {
    Ok(match content {
        Content::Bytes(bytes) => Some(to_u64(bytes.len())),
        Content::Blob(blob) => Some(blob.layout()?.len()),
        Content::Grid(grid) => grid.shape.iter().try_fold(grid.itemsize, |n, &d| n.checked_mul(d)),
        Content::Slice(_, range) => Some(range.end.saturating_sub(range.start)),
        Content::Zeros(len) | Content::Deferred { len: Some(len), .. } => Some(*len),
        Content::Deferred { make, .. } => match depth.checked_sub(1) {
            Some(depth) => len(&make()?, depth)?,
            None => None,
        },
        _ => None,
    })
}
