//! `BloscLZ`: literal runs, and matches at distances of up to 73,727 bytes.
//!
//! Reference: section 8.1. A stream is a sequence of control bytes, each followed by its operands.
//! Checked: every length against the ends of both buffers, every distance against the bytes decoded so far.
#![forbid(unsafe_code)]

use crate::codec::lz;
use crate::codec::pace::{Pace, STRIDE};

use super::stream_error::StreamError;

/// Longest literal run.
const RUN: usize = 32;
/// Distances of this size and above take two more bytes.
const FAR: usize = 8192;

/// Decodes `src`, filling `dst` completely; calls `pace` after every [`STRIDE`] bytes of output.
pub(super) fn decode(src: &[u8], dst: &mut [u8], pace: Pace<'_>) -> Result<(), StreamError> {
    let mut ip = 1;
    let mut op = 0;
    let mut mark = STRIDE;
    let Some(&first) = src.first() else { return Err(StreamError::new("an empty stream", 0)) };
    let mut control = usize::from(first & 31);
    loop {
        if control < RUN {
            let len = control + 1;
            // Away from both ends copy the maximum length of a run: a copy of fixed size is faster.
            match (lz::window::<RUN>(src, ip), lz::window_mut::<RUN>(dst, op)) {
                (Some(from), Some(to)) => *to = *from,
                _ => match (src.get(ip..ip + len), dst.get_mut(op..op + len)) {
                    (Some(from), Some(to)) => to.copy_from_slice(from),
                    (None, _) => return Err(StreamError::new("a literal run past the end of the stream", ip)),
                    (_, None) => return Err(StreamError::new("a literal run past the end of the block", ip)),
                },
            }
            ip += len;
            op += len;
        } else {
            let ended = || StreamError::new("the stream ends inside a match", src.len());
            let mut len = control >> 5;
            let high = (control & 31) << 8;
            if len == 7 {
                loop {
                    let more = usize::from(*src.get(ip).ok_or_else(ended)?);
                    ip += 1;
                    len += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let low = usize::from(*src.get(ip).ok_or_else(ended)?);
            ip += 1;
            let mut distance = high + low + 1;
            if distance == FAR {
                let &[b1, b2] = lz::window::<2>(src, ip).ok_or_else(ended)?;
                ip += 2;
                distance = usize::from(u16::from_be_bytes([b1, b2])) + FAR;
            }
            // A stream ends with a literal run.
            if ip >= src.len() {
                return Err(ended());
            }
            lz::repeat_paced(dst, op, distance, len + 2, pace).map_err(|why| StreamError::new(why, ip))?;
            op += len + 2;
        }
        if op >= mark {
            pace();
            mark = op + STRIDE;
        }
        let Some(&next) = src.get(ip) else { break };
        control = usize::from(next);
        ip += 1;
    }
    if ip == src.len() && op == dst.len() {
        Ok(())
    } else {
        Err(StreamError::new("the stream does not fill the block", ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: [u8; 31] = [
        0x25, 0x61, 0x62, 0x63, 0x61, 0x62, 0x63, 0xe0, 0x80, 0x05, 0x0a, 0x63, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35,
        0x36, 0x37, 0x38, 0x39, 0xe0, 0x0a, 0x09, 0x04, 0x39, 0x78, 0x79, 0x7a, 0x77,
    ];

    #[test]
    fn the_worked_example_of_the_reference_decodes() {
        let want = "abc".repeat(48) + &"0123456789".repeat(3) + "xyzw";
        let mut dst = vec![0xAA; want.len()];
        decode(&EXAMPLE, &mut dst, &mut || ()).unwrap();
        assert_eq!(dst, want.as_bytes());
        for len in 0..EXAMPLE.len() {
            assert!(decode(&EXAMPLE[..len], &mut dst, &mut || ()).is_err(), "prefix of {len}");
        }
        assert!(decode(&EXAMPLE, &mut vec![0; want.len() - 1], &mut || ()).is_err());
        assert!(decode(&EXAMPLE, &mut vec![0; want.len() + 1], &mut || ()).is_err());
    }

    #[test]
    fn every_distance_and_length_repeats_byte_by_byte() {
        for distance in (1..70).chain([255, 256, 8191, 8192, 8193, 20_000, 73_727]) {
            for len in (3..80).chain([255, 256, 264, 265, 1000]) {
                let start: Vec<u8> = (0..distance as u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 21) as u8).collect();
                let mut src = Vec::new();
                for run in start.chunks(32) {
                    src.push(run.len() as u8 - 1);
                    src.extend(run);
                }
                let (code, more) = if len < 9 { (len - 2, None) } else { (7, Some(len - 9)) };
                let near = (distance - 1).min(8191);
                src.push((code << 5 | near >> 8) as u8);
                if let Some(more) = more {
                    src.extend(vec![255; more / 255]);
                    src.push((more % 255) as u8);
                }
                src.push((near & 255) as u8);
                if near == 8191 {
                    src.extend(((distance - 8192) as u16).to_be_bytes());
                }
                src.extend([0, b'!']);
                let mut want = start.clone();
                for i in 0..len {
                    want.push(want[i]);
                }
                want.push(b'!');
                let mut dst = vec![0xAA; want.len()];
                decode(&src, &mut dst, &mut || ()).unwrap_or_else(|e| panic!("{distance} {len}: {e:?}"));
                assert!(dst == want, "{distance} {len}");
            }
        }
    }
}
