//! The identity of a version of a source across mounts, for the records about it.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use sha2::{Digest, Sha256};

use super::{Backing, Source};
use crate::bytes::FileOffset;

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
        let len = self.len().min(ENDS);
        let head = self.get(FileOffset(0), len, "file").ok()?;
        let tail = self.get(FileOffset(self.len().saturating_sub(len)), len, "file").ok()?;
        let identity = held.fingerprint();
        self.check().ok()?;
        Some(combined("file", &[&identity, &head, &tail]))
    }
}
