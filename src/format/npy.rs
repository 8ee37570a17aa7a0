//! Writes `.npy` headers, byte for byte as NumPy does.
//!
//! Reference: NumPy's format specification, versions 1.0 to 3.0. The keys are in alphabetical order; the header
//! reserves space for the first dimension to grow to 21 digits; the data starts at a multiple of 64.
#![forbid(unsafe_code)]

use std::fmt::Write;

use crate::bytes::to_u64;

use super::Array;

/// Alignment of the data.
const ALIGN: usize = 64;
/// Digits that the first dimension may grow to without moving the data.
const GROWTH: usize = 21;

/// The `.npy` header of `array`, which precedes its elements.
pub fn header(array: &Array) -> Vec<u8> {
    let mut dict = format!("{{'descr': {}, 'fortran_order': False, 'shape': (", array.descr);
    for (i, dim) in array.shape.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(dict, "{}{dim}", if i == 0 { "" } else { ", " });
    }
    dict.push_str(if array.shape.len() == 1 { ",), }" } else { "), }" });
    if let Some(first) = array.shape.first() {
        dict.extend(std::iter::repeat_n(' ', GROWTH.saturating_sub(first.to_string().len())));
    }

    // Version 1.0 has a 2-byte dictionary length, 2.0 a 4-byte one; 3.0 is 2.0 in UTF-8.
    let (short, long) = (padded(&dict, 10), padded(&dict, 12));
    let mut out = b"\x93NUMPY".to_vec();
    match u16::try_from(short) {
        Ok(len) if dict.is_ascii() => {
            out.extend([1, 0]);
            out.extend(len.to_le_bytes());
        }
        _ => {
            out.extend([if dict.is_ascii() { 2 } else { 3 }, 0]);
            out.extend(u32::try_from(long).unwrap_or(u32::MAX).to_le_bytes());
        }
    }
    let end = out.len() + if out[6] == 1 { short } else { long } - 1;
    out.extend(dict.as_bytes());
    out.resize(end, b' ');
    out.push(b'\n');
    out
}

/// Length of the dictionary with its padding and newline, after `prefix` bytes. Like NumPy, pads by 64 bytes if it
/// would already end at a boundary.
fn padded(dict: &str, prefix: usize) -> usize {
    let len = dict.len() + 1;
    len + ALIGN - (prefix + len) % ALIGN
}

/// Size of the whole `.npy` file; `None` on overflow.
pub fn file_len(array: &Array) -> Option<u64> {
    array.byte_len()?.checked_add(to_u64(header(array).len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(descr: &str, shape: &[u64]) -> Array {
        Array { descr: descr.into(), itemsize: 1, shape: shape.to_vec() }
    }

    #[test]
    fn headers_are_those_of_numpy() {
        // From numpy.lib.format.write_array_header_1_0 of NumPy 2.
        let rows: [(&str, &[u64], &str); 4] = [
            ("'<f4'", &[], "{'descr': '<f4', 'fortran_order': False, 'shape': (), }"),
            ("'|u1'", &[7], "{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }"),
            ("'<f8'", &[3, 1000], "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 1000), }"),
            (
                "[('a', '<f4'), ('b', '<i2')]",
                &[0],
                "{'descr': [('a', '<f4'), ('b', '<i2')], 'fortran_order': False, 'shape': (0,), }",
            ),
        ];
        for (descr, shape, dict) in rows {
            let got = header(&array(descr, shape));
            assert_eq!(got.len(), 128, "{descr}");
            assert_eq!(&got[..10], b"\x93NUMPY\x01\x00\x76\x00");
            assert_eq!(std::str::from_utf8(&got[10..]).unwrap(), format!("{dict:117}\n"));
        }
    }

    #[test]
    fn a_dictionary_beyond_two_bytes_of_length_is_version_2() {
        let long = "[".to_owned() + &"('abcdefgh', '<f4'), ".repeat(5000) + "]";
        let got = header(&array(&long, &[1]));
        assert_eq!((got[6], got.len() % 64, got.last()), (2, 0, Some(&b'\n')));
        assert_eq!(to_u64(got.len()), 12 + u64::from(u32::from_le_bytes([got[8], got[9], got[10], got[11]])));
        assert_eq!(header(&array("[('\u{e9}\u{4e00}', '<f4')]", &[1]))[6], 3);
    }
}
