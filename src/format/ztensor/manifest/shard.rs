//! Shards of a manifest: other files that hold components.
//!
//! Reference: section 6.6.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::bytes::{FileOffset, to_usize};
use crate::error::{Error, Result};
use crate::format::ztensor::cbor::CborReader;
use crate::format::ztensor::quoted::quoted;
use crate::format::ztensor::syntax::digest_2;

use super::tensor::need;

/// Another file that holds components.
#[derive(Debug, Clone)]
pub(in crate::format::ztensor) struct Shard<'a> {
    /// Its name.
    pub(in crate::format::ztensor) name: Cow<'a, str>,
    /// Its size in bytes.
    pub(in crate::format::ztensor) size: u64,
    /// Its checksum.
    pub(in crate::format::ztensor) digest: Cow<'a, str>,
    /// Offset of its description in the file.
    pub(in crate::format::ztensor) described_at: FileOffset,
}

/// The shard with its key at `pos`.
pub(super) fn shard_at(reader: CborReader<'_>, pos: u32) -> Result<Shard<'_>> {
    let mut reader = reader.at(to_usize(u64::from(pos), "shard")?, 2);
    let name = reader.text("shards")?;
    shard(&mut reader, name)
}

/// Finds shard `name` by binary search. Its keys at `places` are in the order of dialect 2: by length, then by bytes.
pub(super) fn find_shard<'a>(
    reader: &CborReader<'a>,
    places: &[u32],
    name: &str,
) -> Result<Option<(usize, Shard<'a>)>> {
    let mut range = 0..places.len();
    while !range.is_empty() {
        let middle = range.start.midpoint(range.end);
        let Some(&pos) = places.get(middle) else { return Ok(None) };
        let key = reader.clone().at(to_usize(u64::from(pos), "shard")?, 2).text("shards")?;
        match (key.len(), &*key).cmp(&(name.len(), name)) {
            Ordering::Equal => return Ok(Some((middle, shard_at(reader.clone(), pos)?))),
            Ordering::Less => range.start = middle.saturating_add(1),
            Ordering::Greater => range.end = middle,
        }
    }
    Ok(None)
}

pub(super) fn shard<'a>(r: &mut CborReader<'a>, name: Cow<'a, str>) -> Result<Shard<'a>> {
    let at = r.here();
    let (mut size, mut digest) = (None, None);
    r.map("shard", false, |r, key, _| {
        match &*key {
            "size" => size = Some(r.unsigned("shard size")?),
            "digest" => digest = Some(r.text("shard digest")?),
            _ => r.skip("unknown field")?,
        }
        Ok(())
    })?;
    let shard = Shard {
        name,
        size: need(size, "shard size", at)?,
        digest: need(digest, "shard digest", at)?,
        described_at: at,
    };
    check(&shard).map_err(|e| e.at(at))?;
    Ok(shard)
}

/// Checks a shard's entry.
fn check(shard: &Shard<'_>) -> Result<()> {
    let name = shard.name.as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > 64 || name.starts_with(b".") || !name.iter().all(plain) {
        return Err(Error::corrupt(format!("{} is not a valid shard name", quoted(&shard.name)), "shard name"));
    }
    if shard.size < 48 {
        return Err(Error::corrupt(format!("{} bytes are too few for a zTensor file", shard.size), "shard size"));
    }
    digest_2(&shard.digest)
}
