//! The bytes that a digest covers, and the gate that verifies them before they are served.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::FileOffset;
use crate::checksum::{ChecksumGate, FailedChecks};
use crate::format::Options;
use crate::source::Source;

use super::digest::{self, Digest};

/// The bytes that a digest covers.
pub(super) struct Covered<'a> {
    pub(super) source: &'a Arc<Source>,
    pub(super) range: Range<FileOffset>,
    /// Whether they are in a shard: errors then name its file.
    pub(super) is_shard: bool,
}

/// A gate that verifies `covered` against the digest `text`, which stands at `described_at`. `None` for an unknown
/// algorithm.
pub(super) fn gate(
    text: &str,
    described_at: FileOffset,
    covered: Covered<'_>,
    failed: &FailedChecks,
    options: &Options,
) -> Option<ChecksumGate> {
    let digest = match Digest::parse(text) {
        Ok(digest) => Ok(digest?),
        Err(e) => Err(e.at(described_at)),
    };
    let Covered { source, range, is_shard } = covered;
    let (source, at, len) = (Arc::clone(source), range.start, range.end.0.saturating_sub(range.start.0));
    let (threads, failed) = (options.threads.clone(), failed.clone());
    let (mode, near) = (failed.mode(described_at, &options.verify), source.clone());
    let check = options.index.once(&near, at, text.as_bytes(), len, move || {
        let digest = digest.as_ref().map_err(Clone::clone)?;
        let read = |from, dst: &mut [u8]| {
            threads.check_open("component")?;
            source.read(at.plus(from), dst, "component")
        };
        let verdict = digest::over(digest, len, read).map_err(|e| {
            let e = e.at(at);
            if is_shard { e.within(source.path().display()) } else { e }
        });
        verdict.inspect_err(|e| failed.note(described_at, e))
    });
    Some(ChecksumGate::new(&mode, len, &options.threads, check).near(move || near.is_near(at, len)))
}
