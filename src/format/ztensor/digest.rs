//! Digests of components: `crc32c:0x1A2B3C4D`, `sha256:...`, `xxh3:...`.
//!
//! Reference: section 7.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::Xxh3Default;

use crate::bytes::to_u64;
use crate::error::{Error, Kind, Result};

use super::quoted::{quoted, truncated};

/// A digest that bytes are verified against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Digest {
    /// CRC-32C.
    Crc32c(u32),
    /// XXH3-64, seed 0.
    Xxh3(u64),
    /// SHA-256.
    Sha256([u8; 32]),
}

impl Digest {
    /// Parses a digest; `None` for an unknown algorithm, which is not verified.
    ///
    /// # Errors
    /// Fails if it names no algorithm, or if the value of a known algorithm is malformed.
    pub(super) fn parse(text: &str) -> Result<Option<Self>> {
        let malformed = || Error::corrupt(format!("{} is not a digest", quoted(text)), "digest");
        let (name, value) = text.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(malformed)?;
        let hex = |digits: &str| digits.bytes().all(|b| b.is_ascii_hexdigit()) && !digits.is_empty();
        Ok(Some(match name {
            "crc32c" => {
                let digits = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")).unwrap_or(value);
                let number = u32::from_str_radix(digits, 16).ok().filter(|_| hex(digits) && digits.len() <= 8);
                Self::Crc32c(number.ok_or_else(malformed)?)
            }
            "xxh3" => {
                let number = u64::from_str_radix(value, 16).ok().filter(|_| hex(value) && value.len() == 16);
                Self::Xxh3(number.ok_or_else(malformed)?)
            }
            "sha256" => {
                let mut bytes = [0; 32];
                if value.len() != 64 || !hex(value) {
                    return Err(malformed());
                }
                for (byte, pair) in bytes.iter_mut().zip(value.as_bytes().as_chunks::<2>().0) {
                    let pair = std::str::from_utf8(pair).unwrap_or_default();
                    *byte = u8::from_str_radix(pair, 16).map_err(|_| malformed())?;
                }
                Self::Sha256(bytes)
            }
            _ => return Ok(None),
        }))
    }

    /// Its value.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Crc32c(crc) => crc.to_be_bytes().to_vec(),
            Self::Xxh3(hash) => hash.to_be_bytes().to_vec(),
            Self::Sha256(hash) => hash.to_vec(),
        }
    }

    /// Starts hashing.
    pub(super) fn start(&self) -> Hasher {
        match self {
            Self::Crc32c(_) => Hasher::Crc32c(0),
            Self::Xxh3(_) => Hasher::Xxh3(Box::default()),
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
        }
    }

    /// Compares the result of `hasher` with this digest.
    ///
    /// # Errors
    /// [`Kind::Checksum`] if they differ.
    pub(super) fn check(&self, hasher: Hasher) -> Result<()> {
        let mismatch = |stored: u64, computed: u64| Err(Error::new(Kind::Checksum { stored, computed }, "digest"));
        let (stored, computed) = match (self, hasher) {
            (Self::Crc32c(stored), Hasher::Crc32c(computed)) => (u64::from(*stored), u64::from(computed)),
            (Self::Xxh3(stored), Hasher::Xxh3(state)) => (*stored, state.digest()),
            (Self::Sha256(stored), Hasher::Sha256(state)) => {
                let computed: [u8; 32] = state.finalize().into();
                if *stored == computed {
                    return Ok(());
                }
                // The error shows the first 8 bytes only; they may agree although the digests differ.
                let front = |bytes: &[u8; 32]| bytes.first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
                return mismatch(front(stored), front(&computed));
            }
            (Self::Crc32c(_) | Self::Xxh3(_) | Self::Sha256(_), _) => {
                return Err(Error::corrupt("computed with a different algorithm than the stored one", "digest"));
            }
        };
        if stored == computed { Ok(()) } else { mismatch(stored, computed) }
    }
}

/// The digests that cannot be verified, counted by their unknown algorithm.
#[derive(Debug, Default)]
pub(super) struct UnknownDigests(BTreeMap<String, u64>);

/// Maximum number of unknown algorithms that are named, and bytes of a name.
const NAMED: usize = 16;
const NAME: usize = 64;

impl UnknownDigests {
    /// Counts `digest` if its algorithm is unknown.
    pub(super) fn add(&mut self, digest: &str) {
        let Some((name, _)) = digest.split_once(':').filter(|_| matches!(Digest::parse(digest), Ok(None))) else {
            return;
        };
        let name = truncated(name, NAME);
        let is_named = self.0.len() < NAMED || self.0.contains_key(&*name);
        let count = self.0.entry(if is_named { name.into_owned() } else { "others".to_owned() }).or_default();
        *count = count.saturating_add(1);
    }

    /// The algorithms with their counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

/// A digest in progress.
pub(super) enum Hasher {
    /// CRC-32C.
    Crc32c(u32),
    /// XXH3-64.
    Xxh3(Box<Xxh3Default>),
    /// SHA-256.
    Sha256(Sha256),
}

impl Hasher {
    /// Adds bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32c(crc) => *crc = crc32c::crc32c_append(*crc, bytes),
            Self::Xxh3(state) => state.update(bytes),
            Self::Sha256(state) => state.update(bytes),
        }
    }
}

/// Bytes read or decoded at a time while a digest is computed.
pub(super) const STRIDE: u64 = 1 << 20;

/// Reads `len` bytes through `read`, a stride at a time, and verifies them against `digest`.
///
/// # Errors
/// Fails if `read` fails; [`Kind::Checksum`] if the digest differs.
pub(super) fn over(digest: &Digest, len: u64, mut read: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<()> {
    let mut hasher = digest.start();
    let mut buffer = crate::limits::zeroed(STRIDE.min(len), "digest")?;
    let mut at = 0_u64;
    while at < len {
        let n = crate::bytes::to_usize(STRIDE.min(len.saturating_sub(at)), "digest")?;
        let chunk = buffer.get_mut(..n).unwrap_or_default();
        read(at, chunk)?;
        hasher.update(chunk);
        at = at.saturating_add(to_u64(n));
    }
    digest.check(hasher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_parsed_in_every_form() {
        let crc = Digest::Crc32c(0xE306_9283);
        for text in ["crc32c:0xE3069283", "crc32c:0Xe3069283", "crc32c:e3069283"] {
            assert_eq!(Digest::parse(text).unwrap(), Some(crc.clone()), "{text}");
        }
        for text in [
            "crc32c:",
            "crc32c:0x",
            "crc32c:0x123456789",
            "crc32c:+1",
            "xxh3:12",
            "sha256:zz",
            "sha256:00",
            "",
            "e3069283",
            ":00",
        ] {
            assert!(Digest::parse(text).is_err(), "{text}");
        }
        assert_eq!(Digest::parse("blake3:00").unwrap(), None);
        let nine = |_: u64, dst: &mut [u8]| {
            dst.copy_from_slice(b"123456789");
            Ok(())
        };
        over(&crc, 9, nine).unwrap();
        assert!(over(&Digest::Crc32c(1), 9, nine).is_err());
        let sha =
            Digest::parse("sha256:15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225").unwrap().unwrap();
        over(&sha, 9, nine).unwrap();
    }

    #[test]
    fn unknown_algorithms_are_counted_and_a_few_are_named() {
        let mut unknown = UnknownDigests::default();
        for digest in ["blake3:00", "crc32c:00", "blake3:01", "none", "sha256:zz"] {
            unknown.add(digest);
        }
        assert_eq!(unknown.iter().collect::<Vec<_>>(), [("blake3", 2)]);
        (0..100).for_each(|i| unknown.add(&format!("{i}{:0100}:00", 0)));
        assert_eq!((unknown.iter().count(), unknown.iter().last().unwrap().1), (17, 85));
        assert!(unknown.iter().all(|(name, _)| name.len() <= NAME + 20));
    }

    #[test]
    fn a_digest_matches_only_a_sum_of_the_same_algorithm() {
        let empty = [
            Digest::Crc32c(0),
            Digest::Xxh3(0x2D06_8005_38D3_94C2),
            Digest::parse("sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855").unwrap().unwrap(),
        ];
        for (i, digest) in empty.iter().enumerate() {
            for (j, other) in empty.iter().enumerate() {
                assert_eq!(digest.check(other.start()).is_ok(), i == j, "{digest:?} {other:?}");
            }
        }
    }
}
