//! NUM blocks: 32-bit integers as bit-packed differences (versions 4 and 5 only).
//!
//! Reference: section 3.6 of the ZXC reference.
#![forbid(unsafe_code)]

use crate::bytes::{Cursor, FileOffset};
use crate::error::{Error, Result};

/// Decodes a NUM payload into `dst`; returns the decoded size. `at` is the offset of `payload`.
///
/// # Errors
/// Fails if a frame header or its bits are truncated, or the values do not fit in `dst`.
pub(super) fn decode(payload: &[u8], at: FileOffset, dst: &mut [u8]) -> Result<usize> {
    let mut cur = Cursor::new(payload, at);
    let n_values = cur.u64_le("n_values")?;
    cur.array::<8>("NUM header")?;
    let len = usize::try_from(n_values).ok().and_then(|n| n.checked_mul(4)).filter(|&n| n <= dst.len());
    let len = len.ok_or_else(|| Error::corrupt("more than a block", "n_values").at(at))?;
    let (mut words, _) = dst[..len].as_chunks_mut::<4>();
    let mut run = 0_u32;
    while !words.is_empty() {
        let frame = cur.at();
        let wrong = |why: &'static str, what: &'static str| Error::corrupt(why, what).at(frame);
        let n_vals = usize::from(cur.u16_le("NUM nvals")?);
        let bits = u32::from(cur.u16_le("NUM bits")?);
        cur.array::<8>("NUM base")?;
        let packed_size = cur.u32_le("NUM packed_size")? as usize;
        let (values, rest) =
            words.split_at_mut_checked(n_vals).ok_or_else(|| wrong("more than n_values", "NUM nvals"))?;
        words = rest;
        if bits > 32 {
            return Err(wrong("more than 32", "NUM bits"));
        }
        let packed = cur.take(packed_size, "NUM packed deltas")?;
        if n_vals as u64 * u64::from(bits) > 8 * packed.len() as u64 {
            return Err(wrong("the packed deltas do not hold nvals values", "NUM packed_size"));
        }
        unpack(packed, bits, values, &mut run);
    }
    Ok(len)
}

/// Unpacks `values.len()` differences of `bits` bits each from `packed`, and accumulates them in `run`.
fn unpack(packed: &[u8], bits: u32, values: &mut [[u8; 4]], run: &mut u32) {
    let mask = (1_u64 << bits) - 1;
    for (k, value) in values.iter_mut().enumerate() {
        let bit = k * bits as usize;
        let z = (word(packed, bit >> 3) >> (bit & 7) & mask) as u32;
        *run = run.wrapping_add((z >> 1) ^ (z & 1).wrapping_neg());
        *value = run.to_le_bytes();
    }
}

/// The 8 bytes at `at`, padded with zeros at the end.
fn word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => rest.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the reference: 1000, 1003, 1001, 1001, 1010 in 11 bits each.
    const EXAMPLE: [u8; 39] = [
        0x05, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, // header
        0x05, 0, 0x0B, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x07, 0, 0, 0, // frame
        0xD0, 0x37, 0xC0, 0x00, 0x00, 0x20, 0x01,
    ];

    fn check(payload: &[u8], room: usize) -> Result<Vec<u32>, String> {
        let mut dst = vec![0xAA; room];
        let len = decode(payload, FileOffset(0), &mut dst).map_err(|e| e.what().to_owned())?;
        Ok(dst[..len].as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect())
    }

    #[test]
    fn the_example_of_the_reference_decodes() {
        assert_eq!(check(&EXAMPLE, 20), Ok(vec![1000, 1003, 1001, 1001, 1010]));
        assert_eq!(check(&[0; 16], 20), Ok(vec![]));
    }

    #[test]
    fn invalid_fields_are_refused_by_name() {
        assert_eq!(check(&EXAMPLE, 16), Err("n_values".into()));
        for (at, value, what) in [
            (0, 6, "NUM nvals"),
            (0, 4, "NUM nvals"),
            (7, 1, "n_values"),
            (18, 33, "NUM bits"),
            (28, 8, "NUM packed deltas"),
            (28, 6, "NUM packed_size"),
        ] {
            let mut payload = EXAMPLE;
            payload[at] = value;
            assert_eq!(check(&payload, 40), Err(what.into()), "byte {at}");
        }
        for len in 0..EXAMPLE.len() {
            assert!(check(&EXAMPLE[..len], 40).is_err(), "{len} bytes");
        }
    }
}
