//! One coded RZE chunk: the non-zero bytes, and levels of bitmaps, each marking bytes of the level below.
//!
//! Reference: section 5.9. In order: `data`, `k1`, `k2`, `k3`, `b4`, tag; decoded from the back.
#![forbid(unsafe_code)]

use crate::codec::bitmap_merge::{Side, merge, ones, repeat_last};

/// Bytes of the longest body: a full chunk, complete bitmaps, and the tag.
pub(super) const LONGEST: usize = 16384 + 2048 + 256 + 32 + 4 + 2;

/// Decodes the body `bytes` into `out`.
///
/// # Errors
/// Fails with a description if the body is invalid.
pub(super) fn decode(bytes: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
    let size = bytes.len();
    if size == 0 || size == 2 {
        out.fill(0);
        return Ok(());
    }
    let n1 = out.len().div_ceil(8);
    let n2 = n1.div_ceil(8);
    let n3 = n2.div_ceil(8);
    let (mut b1, mut b2, mut b3) = ([0; 2048], [0; 256], [0; 32]);
    let (Some(b1), Some(b2), Some(b3)) = (b1.get_mut(..n1), b2.get_mut(..n2), b3.get_mut(..n3)) else {
        return Err("the output is longer than a chunk");
    };
    let end = size.checked_sub(6).ok_or("too short for a bitmap and a tag")?;
    let b4 = bytes.get(end..end + 4).ok_or("too short for a bitmap and a tag")?;
    let end = rebuild(b4, bytes, end, b3)?;
    let end = rebuild(b3, bytes, end, b2)?;
    let end = rebuild(b2, bytes, end, b1)?;
    place(b1, bytes, end, out)
}

/// The number of bits set in `bitmap`; fails if one is at or beyond `positions`.
fn marked(bitmap: &[u8], positions: usize) -> Result<usize, &'static str> {
    let (used, beyond) = bitmap.split_at_checked(positions.div_ceil(8)).ok_or("a bitmap is too short")?;
    let partial = positions % 8;
    let last = used.last().map_or(0, |&last| if partial == 0 { 0 } else { last >> partial });
    if last != 0 || beyond.iter().any(|&byte| byte != 0) {
        return Err("a bitmap marks bytes beyond the end");
    }
    Ok(ones(used, positions))
}

/// Rebuilds `out` from the bytes where it changes: they end at `end`, one per bit set in `changes`. Returns where they
/// start.
fn rebuild(changes: &[u8], bytes: &[u8], end: usize, out: &mut [u8]) -> Result<usize, &'static str> {
    const SHORT: &str = "fewer bytes than a bitmap requires";
    let start = end.checked_sub(marked(changes, out.len())?).ok_or(SHORT)?;
    repeat_last(changes, bytes.get(start..end).ok_or(SHORT)?, out);
    Ok(start)
}

/// Writes the first `end` of `bytes` where `bitmap` has bits, and zeros elsewhere.
fn place(bitmap: &[u8], bytes: &[u8], end: usize, out: &mut [u8]) -> Result<(), &'static str> {
    if marked(bitmap, out.len())? != end {
        return Err("the data does not have the length that the bitmaps require");
    }
    let data = bytes.get(..end).ok_or("fewer bytes than a bitmap requires")?;
    merge(bitmap, Side::Byte(0), Side::Bytes(data), out);
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The coded form of `chunk`, implemented from section 5.9.
    pub(in super::super) fn encode(chunk: &[u8]) -> Vec<u8> {
        fn bitmap(marks: &[bool]) -> Vec<u8> {
            marks.chunks(8).map(|c| c.iter().enumerate().map(|(i, &b)| u8::from(b) << i).sum()).collect()
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
        decode(body, &mut out).map(|()| out)
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
