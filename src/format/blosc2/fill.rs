//! Chunks that repeat one value.
//!
//! Reference: section 6.2 (special chunks).
#![forbid(unsafe_code)]

use crate::bytes::to_u64;
use crate::error::Result;

use super::header::ChunkHeader;
use super::special::Special;
use super::stored_chunk::StoredChunk;

/// A chunk that repeats one value.
#[derive(Debug)]
pub(super) enum Fill {
    /// The value; empty for zeros.
    Short(Vec<u8>),
    /// A value of this many bytes, stored after the header.
    Long(u32),
}

/// Repeated values up to this size are kept in memory.
const VALUE: u32 = 4096;

impl Fill {
    /// Zeros.
    pub(super) fn zeros() -> Self {
        Self::Short(Vec::new())
    }

    /// The value that the chunk with `header` repeats; a short one is read.
    pub(super) fn open(special: Special, header: &ChunkHeader, stored: &StoredChunk) -> Result<Self> {
        match special {
            Special::Value { len } if len > VALUE => Ok(Self::Long(len)),
            Special::Value { len } => stored.get(header.len, len.into(), "repeated value").map(Self::Short),
            special => Ok(Self::of(special, header.typesize.into())),
        }
    }

    /// The value that a special chunk repeats; `typesize` is the width of a NaN.
    fn of(special: Special, typesize: u32) -> Self {
        Self::Short(match (special, typesize) {
            (Special::Nan, 4) => 0x7fc0_0000_u32.to_le_bytes().to_vec(),
            (Special::Nan, 8) => 0x7ff8_0000_0000_0000_u64.to_le_bytes().to_vec(),
            _ => Vec::new(),
        })
    }

    /// Whether it is the same for all items of `size` bytes: a value may be several items long.
    pub(super) fn is_same(&self, size: u64) -> bool {
        matches!(self, Self::Short(value) if value.is_empty() || size.is_multiple_of(to_u64(value.len())))
    }

    /// Fills `dst` with the decoded bytes from `from` on; `header` is the size of the chunk's header.
    pub(super) fn read(&self, stored: &StoredChunk, header: u64, from: u64, dst: &mut [u8]) -> Result<()> {
        match self {
            Self::Short(value) if value.iter().all(|&b| b == 0) => dst.fill(0),
            Self::Short(value) => repeat(value, from, dst),
            Self::Long(len) => {
                let mut from = from % u64::from(*len);
                let mut rest = dst;
                while !rest.is_empty() {
                    let n = rest.len().min((u64::from(*len) - from) as usize);
                    let (part, more) = rest.split_at_mut(n);
                    stored.read(header + from, part, "repeated value")?;
                    (rest, from) = (more, 0);
                }
            }
        }
        Ok(())
    }
}

/// Fills `dst` with repetitions of `value`, as from byte `from` of the chunk on.
fn repeat(value: &[u8], from: u64, dst: &mut [u8]) {
    let phase = (from % to_u64(value.len())) as usize;
    let first = dst.len().min(value.len());
    for (byte, &v) in dst[..first].iter_mut().zip(value[phase..].iter().chain(value)) {
        *byte = v;
    }
    // From here on `dst` begins with whole periods, which can be copied.
    let mut done = first;
    while done < dst.len() {
        let n = done.min(dst.len() - done);
        dst.copy_within(..n, done);
        done += n;
    }
}

/// Fills `dst` with the bytes of a chunk that exists only as an index entry.
pub(super) fn fill_special(special: Special, typesize: u32, from: u64, dst: &mut [u8]) {
    match Fill::of(special, typesize) {
        Fill::Short(value) if !value.is_empty() => repeat(&value, from, dst),
        _ => dst.fill(0),
    }
}
