//! Run-length coded literals (`enc_lit = 1`).
//!
//! Reference: sections 3.2.1 and 11 of the ZXC reference.
#![forbid(unsafe_code)]

use super::fault::Fault;

const OVERRUN: Fault = Fault::new("runs overflow the literals", "RLE literals");
const SHORT: Fault = Fault::new("ends before the literals do", "RLE literals");

/// Decodes tokens from `src` until `dst` is full; returns what is left of `src`.
///
/// # Errors
/// When a run goes past the end of `dst`, or `src` ends before `dst` is full.
pub(super) fn decode<'a>(src: &'a [u8], dst: &mut [u8]) -> Result<&'a [u8], Fault> {
    let (mut src, mut rest) = (src, dst);
    while !rest.is_empty() {
        let (&token, after) = src.split_first().ok_or(SHORT)?;
        let (len, taken) = match token {
            0..0x80 => (usize::from(token) + 1, usize::from(token) + 1),
            _ => (usize::from(token & 0x7F) + 4, 1),
        };
        let (run, after) = after.split_at_checked(taken).ok_or(SHORT)?;
        let (head, tail) = rest.split_at_mut_checked(len).ok_or(OVERRUN)?;
        match run {
            &[byte] if token >= 0x80 => head.fill(byte),
            _ => head.copy_from_slice(run),
        }
        (src, rest) = (after, tail);
    }
    Ok(src)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        name: &'static str,
        src: &'static [u8],
        len: usize,
        want: Result<(&'static [u8], usize), Fault>,
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
            let mut dst = vec![0xAA; *len];
            let got = decode(src, &mut dst).map(<[u8]>::len);
            assert_eq!(got.map(|left| (&dst[..], left)), *want, "{name}");
        }
    }
}
