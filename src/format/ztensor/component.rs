//! The bytes of a component, stored and decoded: a range of the file, byte-swapped numbers, or Zstandard frames.
//!
//! Reference: sections 3 to 7 and 9, the rules of stage "read".
//!
//! Checked: the digest over the bytes that the dialect defines (decoded or stored), before the first byte is served;
//! for a component of a shard without a digest, the digest of the shard, once; the decoded length against the shape
//! and the manifest.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::checksum::FailedChecks;
use crate::error::{Error, Result};
use crate::format::{BlobRef, Content, FileExtent, Options};

use super::byte_swapped::{ByteSwapped, swap_width};
use super::covered::{Covered, gate};
use super::digest::Digest;
use super::footer::Dialect;
use super::manifest::{Component, Encoding, Tensor};
use super::quoted::quoted;
use super::shards::OpenShard;
use super::zstd_component::{ComponentDigest, ZstdComponent};

/// The decoded size of a component, if the manifest determines it.
///
/// # Errors
/// Fails if shape, stored length and decoded length contradict each other.
pub(super) fn decoded_len(tensor: &Tensor<'_>, part: &Component<'_>) -> Result<Option<u64>> {
    let dense = tensor.layout == "dense" && part.role == "data";
    let computed = match part.element().filter(|_| dense) {
        Some(element) => tensor.count().and_then(|count| element.bytes(count)),
        None => None,
    };
    let said = if part.encoding == Encoding::Raw { Some(part.len) } else { part.decoded };
    match (computed, said) {
        (Some(computed), Some(said)) if computed != said => {
            let why = format!("{said} bytes, but the shape requires {computed}");
            Err(Error::corrupt(why, "length").at(part.described_at))
        }
        (computed, said) => Ok(computed.or(said)),
    }
}

/// Whether the digest of `component` covers the stored bytes rather than the decoded ones.
fn covers_stored(dialect: Dialect, part: &Component<'_>) -> bool {
    dialect < Dialect::V2 || part.encoding == Encoding::Raw
}

/// The stored bytes of `component`, gated by its digest if that covers them, else by the digest of its shard.
pub(super) fn stored(
    file: &OpenShard,
    dialect: Dialect,
    part: &Component<'_>,
    failed: &FailedChecks,
    options: &Options,
) -> FileExtent {
    let (at, len) = (part.at, part.len);
    let digest = part.digest.as_deref().filter(|_| covers_stored(dialect, part));
    let covered = Covered { source: &file.source, range: at..at.plus(len), is_shard: part.shard.is_some() };
    let own = digest.and_then(|text| gate(text, part.described_at, covered, failed, options));
    FileExtent { source: Arc::clone(&file.source), at, len, gate: own.or_else(|| file.gate.clone()) }
}

/// The decoded bytes of `component`, stored at `stored`.
///
/// # Errors
/// Fails if the encoding is unknown, lengths contradict each other, or a digest over decoded bytes is malformed.
pub(super) fn content(
    stored: &FileExtent,
    dialect: Dialect,
    tensor: &Tensor<'_>,
    part: &Component<'_>,
    failed: &FailedChecks,
    options: &Options,
) -> Result<Content> {
    let at = part.described_at;
    let expected = decoded_len(tensor, part)?;
    let digest = part.digest.as_deref().filter(|_| !covers_stored(dialect, part));
    let digest = digest.map(Digest::parse).transpose().map_err(|e| e.at(at))?.flatten();
    // A digest over the decoded bytes covers everything served, so the shard's digest is not needed.
    let gate = stored.gate.clone().filter(|_| digest.is_none());
    let stored = FileExtent { gate, ..stored.clone() };
    match &part.encoding {
        Encoding::Unknown(name) => Err(Error::unknown(format!("the encoding {}", quoted(name)), "encoding").at(at)),
        Encoding::Raw => match swap_width(part)? {
            1 => Ok(Content::FileExtent(stored)),
            width => Ok(Content::Blob(BlobRef::new(ByteSwapped { stored, width }))),
        },
        encoding => {
            let is_seekable = *encoding == Encoding::Seekable;
            let digest = ComponentDigest { digest, described_at: at, failed: failed.clone() };
            Ok(Content::Blob(BlobRef::new(ZstdComponent::new(stored, is_seekable, expected, digest, options))))
        }
    }
}
