//! The checksums of blocks, and the hash over all of them.
//!
//! Reference: sections 2.6, 6.1, 7, 11.3 and 11.4 of the ZXC reference.
//!
//! In versions 4 to 8 a checksum covers the payload of its block, in version 9 the decoded bytes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};
use crate::source::{SmallReads, Source};

use super::block_extent::BlockExtent;
use super::hash::{Digest, fold32, rapidhash};
use super::header::check;
use super::index::ZxcFrame;
use super::version::ZxcVersion;

/// Name of the field in messages.
pub(super) const CHECKSUM: &str = "block checksum";

/// Verifies the hash over the block checksums of `frame`; reads only the checksums.
pub(super) fn digest(source: &Source, frame: &ZxcFrame) -> Result<()> {
    let mut checksums = SmallReads::new(source);
    let mut digest = Digest::new(frame.header.version);
    for index in 0..frame.count() {
        digest.push(stored(&mut checksums, frame, index)?);
    }
    let what = if frame.header.version < ZxcVersion::V9 { "global hash" } else { "digest" };
    check(frame.footer.digest, digest.value(), what, frame.footer.digest_at)
}

/// Bytes that [`digest`] reads, at most: a read for each block, unless blocks share reads.
pub(super) fn digest_cost(frame: &ZxcFrame) -> u64 {
    frame.count().saturating_mul(SmallReads::LEN).min(frame.stored())
}

/// The stored checksum of block `index`.
pub(super) fn stored(reads: &mut SmallReads, frame: &ZxcFrame, index: u64) -> Result<u32> {
    let block = BlockExtent::find(frame, index)?;
    let at = block.at.plus(block.size.saturating_sub(4));
    reads.array(at, CHECKSUM).map(u32::from_le_bytes)
}

/// Whether the block checksums of `frame` cover payloads rather than decoded bytes.
pub(super) fn covers_payloads(frame: &ZxcFrame) -> bool {
    frame.header.is_verifiable() && frame.header.version < ZxcVersion::V9
}

/// Verifies the payload of block `index` of `frame` against its block checksum, which must cover payloads.
///
/// # Errors
/// Fails if they differ, and like [`Source::get`].
pub(super) fn check_payload(source: &Source, frame: &ZxcFrame, index: u64) -> Result<()> {
    let stored = BlockExtent::find(frame, index)?;
    let (at, len) = (stored.payload_at(), stored.payload_len(&frame.header));
    let bytes = source.get(at, len.saturating_add(4), "block")?;
    let cut = || Error::corrupt("too short for its checksum", "block checksum").at(at);
    let (payload, checksum) = bytes.split_last_chunk().ok_or_else(cut)?;
    check_stored(payload, u32::from_le_bytes(*checksum), at)
}

/// Verifies a payload at `at` against the checksum that follows it.
pub(super) fn check_stored(payload: &[u8], checksum: u32, at: FileOffset) -> Result<()> {
    let computed = fold32(rapidhash(payload, 0));
    check(checksum.into(), computed.into(), CHECKSUM, at.plus(to_u64(payload.len())))
}
