//! The blobs of a container, decoded in batches without a cache.

use std::ops::Range;

use fzmfs::error::Result;
use fzmfs::format::{BlobRef, Check, Container};

/// All blobs that `verify` decodes.
pub(crate) fn decoded_blobs(container: &dyn Container) -> Vec<BlobRef> {
    let blob = |check| match check {
        Check::Decode { blob, .. } => Some(blob),
        Check::Run { .. } => None,
    };
    container.checks().into_iter().filter_map(blob).collect()
}

/// The bytes of the consecutive pieces `row` of `blob`.
pub(crate) fn row_len(blob: &BlobRef, row: Range<u64>) -> Result<usize> {
    let layout = blob.layout()?;
    Ok(row.map(|piece| layout.range(piece)).map(|range| (range.end - range.start) as usize).sum())
}

/// Decodes the consecutive pieces `row` of `blob` into `bytes`, which has their length, as one batch.
pub(crate) fn decode_row(blob: &BlobRef, row: Range<u64>, bytes: &mut [u8]) -> Result<()> {
    let layout = blob.layout()?;
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    for piece in row.start..row.end {
        let range = layout.range(piece);
        let (own, tail) = rest.split_at_mut((range.end - range.start) as usize);
        pieces.push(own);
        rest = tail;
    }
    blob.decode_many(row.start, &mut pieces)
}
