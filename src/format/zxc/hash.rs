//! The hashes of ZXC: `RapidHash` over payloads and blocks, and the short hashes in headers.
//!
//! Reference: sections 2.5, 2.6, 11.1, 11.3, 11.4 and 12 of the ZXC reference.
//!
//! Invariants: pure functions over bytes in memory.
#![forbid(unsafe_code)]

use super::version::ZxcVersion;

/// The default secrets of rapidhash, version 3.
const SECRET: [u64; 8] = [
    0x2d35_8dcc_aa6c_78a5,
    0x8bb8_4b93_962e_acc9,
    0x4b33_a62e_d433_d4a3,
    0x4d5a_2da5_1de1_aa47,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x90ed_1765_281c_388c,
    0xaaaa_aaaa_aaaa_aaaa,
];

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const HEADER: u64 = 0xD2D8_4A61_D2D8_4A61;
/// The factors of the header hashes of version 4.
const OLD_PRIMES: [u32; 4] = [0x9E37_79B1, 0x85BA_2D97, 0xB0F5_7EE3, 0x27D4_EB2F];

/// The low and the high half of the 128-bit product.
fn product(a: u64, b: u64) -> (u64, u64) {
    let p = u128::from(a) * u128::from(b);
    (p as u64, (p >> 64) as u64)
}

/// XOR of the two halves of the 128-bit product.
fn mix(a: u64, b: u64) -> u64 {
    let (low, high) = product(a, b);
    low ^ high
}

/// The 8 bytes at `at`; the caller has checked the length.
fn r64(data: &[u8], at: usize) -> u64 {
    data.get(at..).and_then(|d| d.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

fn r32(data: &[u8], at: usize) -> u64 {
    data.get(at..).and_then(|d| d.first_chunk()).map_or(0, |b| u64::from(u32::from_le_bytes(*b)))
}

/// rapidhash, version 3, of `data`.
pub(super) fn rapidhash(data: &[u8], seed: u64) -> u64 {
    let n = data.len() as u64;
    let mut seed = seed ^ mix(seed ^ SECRET[2], SECRET[1]);
    let (a, b, left) = match data {
        [] => (0, 0, n),
        &[first, ..] if data.len() < 4 => {
            (u64::from(first) << 45 | u64::from(data[data.len() - 1]), u64::from(data[data.len() >> 1]), n)
        }
        _ if data.len() <= 16 => {
            seed ^= n;
            match data.len() {
                8.. => (r64(data, 0), r64(data, data.len() - 8), n),
                _ => (r32(data, 0), r32(data, data.len() - 4), n),
            }
        }
        _ => {
            let rest = stripes(data, &mut seed);
            let i = rest.len();
            for (k, secret) in [2, 2, 1, 1, 2, 1].into_iter().enumerate() {
                if i > 16 * (k + 1) {
                    seed = mix(r64(rest, 16 * k) ^ SECRET[secret], r64(rest, 16 * k + 8) ^ seed);
                }
            }
            // The last 16 bytes may overlap stripes that were already hashed.
            let end = data.len();
            (r64(data, end - 16) ^ i as u64, r64(data, end - 8), i as u64)
        }
    };
    let (a, b) = product(a ^ SECRET[1], b ^ seed);
    mix(a ^ SECRET[7], b ^ SECRET[1] ^ left)
}

/// Mixes stripes of 112 bytes into `seed` while more than 112 are left; returns the rest.
fn stripes<'a>(data: &'a [u8], seed: &mut u64) -> &'a [u8] {
    let mut rest = data;
    if rest.len() > 112 {
        let mut lanes = [*seed; 7];
        while rest.len() > 112
            && let Some((stripe, after)) = rest.split_first_chunk::<112>()
        {
            let (pairs, _) = stripe.as_chunks::<16>();
            for ((lane, secret), pair) in lanes.iter_mut().zip(SECRET).zip(pairs) {
                let both = u128::from_le_bytes(*pair);
                *lane = mix(both as u64 ^ secret, (both >> 64) as u64 ^ *lane);
            }
            rest = after;
        }
        *seed = lanes.into_iter().fold(0, |a, b| a ^ b);
    }
    rest
}

/// A 64-bit hash with its upper half folded into its lower one.
fn fold64(h: u64) -> u64 {
    h ^ (h >> 32)
}

/// A 64-bit hash folded to 32 bits.
pub(super) fn fold32(h: u64) -> u32 {
    fold64(h) as u32
}

/// A 32-bit hash folded to 16 bits.
fn fold16(h: u32) -> u16 {
    (h ^ (h >> 16)) as u16
}

fn xorshift(mut h: u64) -> u64 {
    h ^= h << 13;
    h ^= h >> 7;
    h ^ (h << 17)
}

/// The hash of a block header: over its 8 bytes, with the last one, which stores the hash, as 0.
pub(super) fn hash8(version: ZxcVersion, mut header: [u8; 8]) -> u8 {
    header[7] = 0;
    let word = u64::from_le_bytes(header);
    match version {
        ZxcVersion::V4 => OLD_PRIMES[..2].iter().fold(word, |h, &prime| fold64(h.wrapping_mul(prime.into()))) as u8,
        ZxcVersion::V9 => ((word ^ GOLDEN).wrapping_mul(GOLDEN) >> 56) as u8,
        _ => fold64(xorshift(word ^ GOLDEN)) as u8,
    }
}

/// The hash of a file header or a dictionary header: over its 16 bytes unchanged.
pub(super) fn hash16(version: ZxcVersion, header: [u8; 16]) -> u16 {
    let both = u128::from_le_bytes(header);
    let (low, high) = (both as u64, (both >> 64) as u64);
    match version {
        ZxcVersion::V4 => {
            let words = header.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word));
            let h = words.zip(OLD_PRIMES).fold(0, |h, (word, prime)| h ^ word.wrapping_mul(prime));
            fold16(h.rotate_left(13).wrapping_mul(OLD_PRIMES[0]))
        }
        ZxcVersion::V9 => {
            let h = (low ^ HEADER).wrapping_mul(HEADER).wrapping_add(high).wrapping_add(GOLDEN);
            (h.wrapping_mul(GOLDEN) >> 48) as u16
        }
        _ => fold16(fold32(xorshift(low ^ high ^ HEADER))),
    }
}

/// The hash over all block checksums of a frame in order.
///
/// Named global hash (32 bits) in versions 4 to 8, digest in version 9.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digest {
    version: ZxcVersion,
    state: u64,
}

impl Digest {
    /// The hash over no checksums.
    pub(super) const fn new(version: ZxcVersion) -> Self {
        Self { version, state: 0 }
    }

    /// Adds the checksum of the next block.
    pub(super) fn push(&mut self, checksum: u32) {
        self.state = if self.version < ZxcVersion::V9 {
            u64::from((self.state as u32).rotate_left(1) ^ checksum)
        } else {
            mix(self.state ^ (u64::from(checksum) + 1).wrapping_mul(GOLDEN), 0x2545_F491_4F6C_DD1D)
        };
    }

    /// The hash over all checksums added.
    pub(super) const fn value(self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rapidhash_gives_the_vectors_of_the_reference() {
        let data: Vec<u8> = (0..1000_usize).map(|j| (7 * j + 3) as u8).collect();
        for (n, hash, folded) in [
            (0, 0x0338_dc4b_e2ce_cdae, 0xe1f6_11e5),
            (1, 0xc693_9e8f_b007_09ff, 0x7694_9770),
            (3, 0x5655_e9f7_64e8_fb47, 0x32bd_12b0),
            (4, 0x4922_7fb2_f401_a8fc, 0xbd23_d74e),
            (8, 0xf598_0b64_6f82_2e89, 0x9a1a_25ed),
            (16, 0xd0e6_8844_cb24_a480, 0x1bc2_2cc4),
            (17, 0x7998_c836_066e_171b, 0x7ff6_df2d),
            (49, 0x4c6d_34cc_3232_74b4, 0x7e5f_4078),
            (112, 0xbde2_7e65_9c07_3097, 0x21e5_4ef2),
            (113, 0xe719_8c47_a15d_f67f, 0x4644_7a38),
            (1000, 0x871e_919a_ec95_c844, 0x6b8b_59de),
        ] {
            let h = rapidhash(&data[..n], 0);
            assert_eq!((h, fold32(h)), (hash, folded), "{n} bytes");
        }
        assert_eq!(rapidhash(b"Hello ZXC\n", 0), 0x8f1b_3b66_faba_80f6);
    }

    #[test]
    fn header_hashes_give_the_vectors_of_the_reference() {
        let raw = [0, 0, 0, 0x0A, 0, 0, 0, 0];
        let eof = [0xFF, 0, 0, 0, 0, 0, 0, 0];
        let sek = [0xFE, 0, 0, 4, 0, 0, 0, 0];
        for (version, header, want) in [
            (ZxcVersion::V4, raw, 0x50),
            (ZxcVersion::V4, eof, 0xDC),
            (ZxcVersion::V5, raw, 0x69),
            (ZxcVersion::V8, eof, 0x02),
            (ZxcVersion::V5, sek, 0xD2),
            (ZxcVersion::V9, raw, 0xA0),
            (ZxcVersion::V9, eof, 0x83),
        ] {
            assert_eq!(hash8(version, header), want, "{version:?} {header:?}");
        }
        for (version, number, code, want) in [
            (ZxcVersion::V4, 4, 0x40, [0xF8, 0xF4]),
            (ZxcVersion::V5, 5, 0x12, [0x9E, 0x53]),
            (ZxcVersion::V5, 5, 0x40, [0x26, 0x2E]),
            (ZxcVersion::V6, 6, 0x13, [0xFD, 0x3B]),
            (ZxcVersion::V7, 7, 0x12, [0x18, 0x9E]),
            (ZxcVersion::V8, 8, 0x12, [0x48, 0x98]),
            (ZxcVersion::V9, 9, 0x12, [0x57, 0xB7]),
        ] {
            let mut header = [0; 16];
            header[..7].copy_from_slice(&[0xF5, 0x2E, 0xB0, 0x9C, number, code, 0x80]);
            assert_eq!(hash16(version, header).to_le_bytes(), want, "version {number}, code {code:#x}");
        }
    }

    #[test]
    fn the_digest_of_one_block_gives_the_worked_examples() {
        let digest = |version| {
            let mut digest = Digest::new(version);
            digest.push(0x75A1_BB90);
            digest.value()
        };
        assert_eq!(digest(ZxcVersion::V5), 0x75A1_BB90);
        assert_eq!(digest(ZxcVersion::V9).to_le_bytes(), [0xBD, 0x8A, 0x9E, 0x74, 0x2A, 0xA2, 0x9A, 0xB6]);
    }
}
