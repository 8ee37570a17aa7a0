//! Run-length coded literals (`enc_lit = 1`).
//!
//! Reference: sections 3.2.1 and 11 of the ZXC reference.
#![forbid(unsafe_code)]

use crate::codec::lz::window_mut;
use crate::codec::simd_dispatch::{self, SimdLoop, SimdOps};

use super::decode_error::DecodeError;

const OVERRUN: DecodeError = DecodeError::new("runs overflow the literals", "RLE literals");
const SHORT: DecodeError = DecodeError::new("truncated", "RLE literals");

/// Longest run that can be copied in steps.
const LONGEST: usize = 160;

/// Decodes tokens from `src` until there are `n` literals at the front of `dst`; returns the rest of `src`.
///
/// Bytes of `dst` after the literals may be overwritten; with 160 bytes there, every run is copied in steps.
///
/// # Errors
/// Fails if a run exceeds the `n` literals, or `src` is too short.
pub(super) fn decode<'a>(src: &'a [u8], dst: &mut [u8], n: usize) -> Result<&'a [u8], DecodeError> {
    simd_dispatch::run(RunKernel { src, dst, n })
}

struct RunKernel<'a, 'b> {
    src: &'a [u8],
    dst: &'b mut [u8],
    n: usize,
}

impl<'a> SimdLoop for RunKernel<'a, '_> {
    type Output = Result<&'a [u8], DecodeError>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
    fn run(self, _: impl SimdOps) -> Self::Output {
        let Self { mut src, dst, n } = self;
        let mut at = 0;
        while at < n {
            let (&token, after) = src.split_first().ok_or(SHORT)?;
            // Keep the arms separate, so that the position of the next token does not depend on a repetition length.
            if token < 0x80 {
                let len = usize::from(token) + 1;
                if len > n - at {
                    return Err(OVERRUN);
                }
                if let (Some(out), Some(from)) = (window_mut(dst, at), after.first_chunk()) {
                    stepwise(out, from, len);
                } else {
                    let from = after.get(..len).ok_or(SHORT)?;
                    dst.get_mut(at..at + len).ok_or(OVERRUN)?.copy_from_slice(from);
                }
                at += len;
                src = after.get(len..).ok_or(SHORT)?;
            } else {
                let len = usize::from(token & 0x7F) + 4;
                let (&byte, after) = after.split_first().ok_or(SHORT)?;
                if len > n - at {
                    return Err(OVERRUN);
                }
                match window_mut(dst, at) {
                    Some(out) => stepwise(out, &[byte; LONGEST], len),
                    None => dst.get_mut(at..at + len).ok_or(OVERRUN)?.fill(byte),
                }
                at += len;
                src = after;
            }
        }
        Ok(src)
    }
}

/// Copies the first `len` bytes and possibly more, in steps; for most runs one step suffices.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a kernel becomes part of what runs it")]
fn stepwise(to: &mut [u8; LONGEST], from: &[u8; LONGEST], len: usize) {
    to[..32].copy_from_slice(&from[..32]);
    if len > 32 {
        to[32..64].copy_from_slice(&from[32..64]);
        if len > 64 {
            to[64..].copy_from_slice(&from[64..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        name: &'static str,
        src: &'static [u8],
        len: usize,
        want: Result<(&'static [u8], usize), DecodeError>,
    }

    const CASES: &[Case] = &[
        Case { name: "nothing", src: &[9, 9], len: 0, want: Ok((b"", 2)) },
        Case {
            name: "the reference's example",
            src: &[0x01, 0x61, 0x62, 0x86, 0x5A, 0x00, 0x63],
            len: 13,
            want: Ok((b"abZZZZZZZZZZc", 0)),
        },
        Case { name: "bytes left over", src: &[0x80, b'x', 7], len: 4, want: Ok((b"xxxx", 1)) },
        Case { name: "run too long", src: &[0x80, b'x'], len: 3, want: Err(OVERRUN) },
        Case { name: "copy too long", src: &[0x01, b'x', b'y'], len: 1, want: Err(OVERRUN) },
        Case { name: "no token", src: &[0x80, b'x'], len: 5, want: Err(SHORT) },
        Case { name: "no run byte", src: &[0x80], len: 4, want: Err(SHORT) },
        Case { name: "copy cut off", src: &[0x02, b'x', b'y'], len: 3, want: Err(SHORT) },
    ];

    #[test]
    fn decode_fills_exactly_the_promised_length() {
        for Case { name, src, len, want } in CASES {
            // Without and with spare room for steps.
            for room in [0, 500] {
                let (mut dst, mut src) = (vec![0xAA; *len + room], src.to_vec());
                let behind = if want.is_ok() { room } else { 0 };
                src.resize(src.len() + behind, 0xBB);
                let got = decode(&src, &mut dst, *len).map(|left| left.len() - behind);
                assert_eq!(got.map(|left| (&dst[..*len], left)), *want, "{name}");
            }
        }
    }
}
