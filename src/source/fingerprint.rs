//! The identity of a version of a source across mounts, for the records about it.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use sha2::{Digest, Sha256};

use super::identity::Identity;
use super::{Backing, Source};
use crate::bytes::FileOffset;
use crate::error::Result;
use crate::limits::zeroed;

/// Bytes at the start and at the end of a file that are part of it.
const ENDS: u64 = 64 << 10;

/// A fingerprint of a source of `kind`, from its parts.
pub fn combined(kind: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(kind);
    for part in parts {
        hash.update(crate::bytes::to_u64(part.len()).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl Source {
    /// Identifies this version of this source: a local file by device, inode, size, times, and a hash of both ends; an
    /// object by its URL and a strong `ETag`; a part of another source by that and its place. `None` if nothing lasting
    /// identifies it, or it has changed.
    pub fn fingerprint(&self) -> Option<[u8; 32]> {
        let held = match &self.bytes {
            Backing::File(held) => held,
            Backing::Other(origin) => return origin.fingerprint(),
        };
        let fingerprint = of_file(&held.identity(), |at, dst| self.read(at, dst, "file")).ok()?;
        self.check().ok()?;
        Some(fingerprint)
    }
}

/// The fingerprint of a local file, wherever it is mounted: by itself or in a directory.
///
/// # Errors
/// From `read`, which fills the slice with the bytes at the offset.
pub(super) fn of_file(identity: &Identity, read: impl Fn(FileOffset, &mut [u8]) -> Result<()>) -> Result<[u8; 32]> {
    let len = identity.size.min(ENDS);
    let end = |at: u64| {
        let mut bytes = zeroed(len, "file")?;
        read(FileOffset(at), &mut bytes).map(|()| bytes)
    };
    let (head, tail) = (end(0)?, end(identity.size.saturating_sub(len))?);
    Ok(combined("file", &[&identity.fingerprint(), &head, &tail]))
}
