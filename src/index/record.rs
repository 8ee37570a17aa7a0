//! A record as a file: magic number, key of the source, name, payload, and a code that authenticates all of them.
//!
//! Fields, little-endian: magic number with the version of the format (16 bytes), the key of the source (32), the
//! lengths of the name (2) and of the payload (8), the name, the payload, the code (32).
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::ops::Range;

use super::hmac::hmac;
use crate::bytes::{Cursor, FileOffset, to_u64};

/// A secret, or the key of a source.
pub type Key = [u8; 32];

/// Begins every record. The version changes with the meaning of any payload.
const MAGIC: [u8; 16] = *b"fzmfs index   2\n";
/// Bytes of the code.
const CODE: usize = 32;
/// Longest name.
const NAME: usize = 64;
/// Most bytes of a record besides its payload.
pub const OVERHEAD: u64 = 16 + 32 + 2 + 8 + 64 + 32;

/// Whether `name` can be one of a record: lower-case letters, digits and hyphens, not as files that are being written.
pub fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.len() <= NAME && name.bytes().all(is_plain) && !name.starts_with("part-")
}

/// The header before the payload of a record, and the tag after it.
pub fn seal(secret: &Key, key: &Key, name: &str, payload: &[u8]) -> [Vec<u8>; 2] {
    let mut head = [&MAGIC[..], key].concat();
    head.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
    head.extend(to_u64(payload.len()).to_le_bytes());
    head.extend_from_slice(name.as_bytes());
    let code = hmac(secret, &[&head, payload]).to_vec();
    [head, code]
}

/// Where the payload is in the file `bytes`, if that is the valid record `name` about the source with the key `key`.
pub fn open(bytes: &[u8], secret: &Key, key: &Key, name: &str) -> Option<Range<usize>> {
    let (sealed, code) = bytes.split_at_checked(bytes.len().checked_sub(CODE)?)?;
    let mut cur = Cursor::new(sealed, FileOffset(0));
    let is_magic = cur.array::<16>("magic number").ok()? == MAGIC;
    let is_key = cur.array::<32>("key").ok()? == *key;
    let name_len = cur.u16_le("name").ok()?;
    let len = cur.u64_le("payload").ok()?;
    let is_name = cur.take(name_len.into(), "name").ok()? == name.as_bytes();
    let is_whole = to_u64(cur.len()) == len;
    if !(is_magic && is_key && is_name && is_whole) {
        return None;
    }
    let difference = hmac(secret, &[sealed]).iter().zip(code).fold(0, |sum, (a, b)| sum | (a ^ b));
    (difference == 0).then_some(sealed.len().checked_sub(cur.len())?..sealed.len())
}
