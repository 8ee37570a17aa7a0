//! One coded RZE chunk: the non-zero bytes, and levels of bitmaps, each marking bytes of the level below.
//!
//! Reference: section 5.9. In order: `data`, `k1`, `k2`, `k3`, `b4`, tag; decoded from the back.
#![forbid(unsafe_code)]

use crate::codec::bitmap_merge::{Side, merge};
use crate::error::Result;
use crate::format::fzm::stage::lc::bitmaps::{LONGEST, Levels, marked};
use crate::format::fzm::stage::lc::chunks::Invalid;

/// Decodes the body `bytes` into `out`.
///
/// # Errors
/// Fails if the body is invalid.
pub(super) fn decode(bytes: &[u8], out: &mut [u8]) -> Result<(), Invalid> {
    let size = bytes.len();
    if size == 0 || size == 2 {
        out.fill(0);
        return Ok(());
    }
    let (coded, _tag) = bytes.split_last_chunk::<2>().ok_or("too short for a bitmap and a tag")?;
    let mut bitmap = [0; LONGEST];
    let (data, bitmap) = Levels::shortest(out.len()).rebuild(coded, &mut bitmap)?;
    if marked(bitmap, out.len())? != data.len() {
        return Err("the data does not have the length that the bitmaps require".into());
    }
    merge(bitmap, Side::Byte(0), Side::Bytes(data), out);
    Ok(())
}

/// Whether the last two bytes of `body` are the length of the chunk, `len`, or the body is one of zeros.
pub(super) fn is_tagged(body: &[u8], len: usize) -> bool {
    matches!(body.len(), 0 | 2) || body.last_chunk().is_some_and(|tag| usize::from(u16::from_le_bytes(*tag)) == len)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The coded form of `chunk`, implemented from section 5.9.
    pub(in super::super) fn encode(chunk: &[u8]) -> Vec<u8> {
        fn bitmap(marks: &[bool]) -> Vec<u8> {
            marks.chunks(8).map(|c| c.iter().enumerate().map(|(i, &b)| u8::from(b) << i).sum::<u8>()).collect()
        }
        fn changes(bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
            let marks: Vec<bool> =
                (0..bytes.len()).map(|i| bytes[i] != if i == 0 { 0 } else { bytes[i - 1] }).collect();
            let kept = bytes.iter().zip(&marks).filter(|(_, m)| **m).map(|(b, _)| *b).collect();
            (bitmap(&marks), kept)
        }
        if chunk.iter().all(|&b| b == 0) {
            return (chunk.len() as u16).to_le_bytes().to_vec();
        }
        let b1 = bitmap(&chunk.iter().map(|&b| b != 0).collect::<Vec<_>>());
        let (b2, k1) = changes(&b1);
        let (b3, k2) = changes(&b2);
        let (mut b4, k3) = changes(&b3);
        b4.resize(4, 0);
        let data = chunk.iter().copied().filter(|&b| b != 0).collect();
        [data, k1, k2, k3, b4, (chunk.len() as u16).to_le_bytes().to_vec()].concat()
    }

    fn decoded(body: &[u8], len: usize) -> Result<Vec<u8>, &'static str> {
        let mut out = vec![0xAA; len];
        match decode(body, &mut out) {
            Ok(()) => Ok(out),
            Err(Invalid::Corrupt(why)) => Err(why),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn chunks_of_every_density_and_length_round_trip() {
        let mut random = crate::format::fzm::stage::testing::Random(5);
        for len in [1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 4096, 16383, 16384] {
            for zeros in [0, 1, 8, 100, 250, 255, 256] {
                let chunk: Vec<u8> =
                    (0..len).map(|_| if random.below(256) < zeros { 0 } else { 1 + random.below(255) as u8 }).collect();
                assert!(decoded(&encode(&chunk), len).as_deref() == Ok(&chunk[..]), "{len} {zeros}");
                let mut half = chunk.clone();
                half[len / 2..].fill(0);
                assert!(decoded(&encode(&half), len).as_deref() == Ok(&half[..]), "{len} {zeros} half");
            }
        }
        assert_eq!(decoded(&[], 3).unwrap(), [0; 3]);
    }

    #[test]
    fn inconsistent_bodies_are_refused() {
        let good = encode(&[1, 0, 2, 0, 0, 3, 0, 0, 0, 4]);
        assert_eq!(good, [1, 2, 3, 4, 0x25, 0x02, 0x03, 0x01, 1, 0, 0, 0, 10, 0]);
        let with = |at: usize, byte: u8| {
            let mut body = good.clone();
            body[at] = byte;
            decoded(&body, 10).unwrap_err()
        };
        assert_eq!(with(8, 0xFF), "a bitmap marks bytes beyond the end");
        assert_eq!(with(11, 1), "a bitmap marks bytes beyond the end");
        assert_eq!(with(7, 3), "a bitmap marks bytes beyond the end");
        assert_eq!(with(5, 0x12), "a bitmap marks bytes beyond the end");
        assert_eq!(with(4, 0x27), "the data does not have the length that the bitmaps require");
        assert_eq!(with(8, 0), "the data does not have the length that the bitmaps require");
        assert_eq!(decoded(&good[1..], 10).unwrap_err(), "the data does not have the length that the bitmaps require");
        assert_eq!(decoded(&good[6..], 10).unwrap_err(), "fewer bytes than a bitmap requires");
        for size in [1, 3, 5] {
            assert_eq!(decoded(&good[..size], 10).unwrap_err(), "too short for a bitmap and a tag");
        }
    }
}
