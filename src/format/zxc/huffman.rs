//! Huffman-coded literals in four bit streams (`enc_lit = 2` and `3` of versions 5 and 6).
//!
//! Reference: sections 3.5 and 8 of the ZXC reference.
//!
//! A code has at most 8 bits, so one look-up of the next byte gives symbol and length, and 8 bytes hold 7 codes. The
//! streams are decoded side by side, because the look-ups of each depend on one another.
#![forbid(unsafe_code)]

use super::decode_error::DecodeError;
use super::huffman_lengths::HuffmanLengths;

const MISFIT: DecodeError = DecodeError::new("the streams do not fit in the section", "Huffman stream sizes");
const SHORT: DecodeError = DecodeError::new("a stream ends before its symbols do", "Huffman streams");

/// Indexed by the next 8 bits: symbol in the low byte, code length in the high byte.
type LookupTable = [u16; 256];

/// Codes decoded from one load of 8 bytes: `7 * 8 <= 64 - 7` bits.
const STEP: usize = 7;

/// Decodes a section after its code lengths (stream sizes, then the streams) into `dst`.
///
/// # Errors
/// Fails if the streams do not fit in `section` or a stream has too few bits.
pub(super) fn decode(lengths: &HuffmanLengths, section: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
    let (sizes, streams) = section.split_first_chunk::<6>().ok_or(MISFIT)?;
    let (sizes, _) = sizes.as_chunks::<2>();
    let table = table(lengths);
    let quarter = dst.len().div_ceil(4).max(1);
    let mut parts = dst.chunks_mut(quarter);
    let mut rest = streams;
    let mut lanes: [Lane; 4] = Default::default();
    for (k, lane) in lanes.iter_mut().enumerate() {
        let stream = match sizes.get(k) {
            Some(&size) => {
                let (head, tail) = rest.split_at_checked(u16::from_le_bytes(size).into()).ok_or(MISFIT)?;
                rest = tail;
                head
            }
            None => rest,
        };
        *lane = Lane { stream, bit: 0, out: parts.next().unwrap_or_default() };
    }
    let [a, b, c, d] = &mut lanes;
    while a.step(&table) & b.step(&table) & c.step(&table) & d.step(&table) {}
    lanes.iter_mut().try_for_each(|lane| lane.finish(&table))
}

/// One stream and its part of the literals.
#[derive(Default)]
struct Lane<'a> {
    stream: &'a [u8],
    bit: usize,
    out: &'a mut [u8],
}

impl Lane<'_> {
    /// Decodes [`STEP`] symbols, if at least 8 bytes and that many symbols are left.
    #[inline]
    fn step(&mut self, table: &LookupTable) -> bool {
        let Some(chunk) = self.stream.get(self.bit >> 3..).and_then(|s| s.first_chunk()) else { return false };
        let Some((out, rest)) = std::mem::take(&mut self.out).split_at_mut_checked(STEP) else { return false };
        let mut word = u64::from_le_bytes(*chunk) >> (self.bit & 7);
        for symbol in out {
            let entry = table[usize::from(word as u8)];
            *symbol = entry as u8;
            word >>= entry >> 8;
            self.bit += usize::from(entry >> 8);
        }
        self.out = rest;
        true
    }

    /// Decodes the remaining symbols one by one.
    fn finish(&mut self, table: &LookupTable) -> Result<(), DecodeError> {
        for symbol in self.out.iter_mut() {
            let byte = |i: usize| self.stream.get(i).copied().map_or(0, u16::from);
            let two = byte(self.bit >> 3) | byte((self.bit >> 3) + 1) << 8;
            let entry = table[usize::from((two >> (self.bit & 7)) as u8)];
            *symbol = entry as u8;
            self.bit += usize::from(entry >> 8);
        }
        if self.bit > 8 * self.stream.len() { Err(SHORT) } else { Ok(()) }
    }
}

/// Builds the look-up table of a code of at most 8 bits; a single symbol is coded by either bit.
fn table(lengths: &HuffmanLengths) -> LookupTable {
    let mut table = [0; 256];
    let mut symbols = lengths.symbols().iter();
    let mut code = 0_usize;
    for bits in 1..=8 {
        code <<= 1;
        for &symbol in symbols.by_ref().take(lengths.count(bits)) {
            // The first bit of a code is the lowest bit in the stream.
            let first = usize::from((code as u8).reverse_bits() >> (8 - bits));
            for entry in table.iter_mut().skip(first).step_by(1 << bits) {
                *entry = (bits as u16) << 8 | u16::from(symbol);
            }
            code += 1;
        }
    }
    if lengths.is_single() {
        table = [table[0]; 256];
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::zxc::huffman_lengths::BYTES;

    fn abracadabra() -> HuffmanLengths {
        let mut nibbles = [0_u8; BYTES];
        for (symbol, bits) in [(b'A', 1), (b'B', 3), (b'C', 3), (b'D', 3), (b'R', 3)] {
            nibbles[usize::from(symbol) / 2] |= bits << (4 * (symbol & 1));
        }
        HuffmanLengths::parse(&nibbles, 8).unwrap()
    }

    #[test]
    fn the_example_of_the_reference_decodes() {
        let section = [1, 0, 1, 0, 1, 0, 0x72, 0x0A, 0x13, 0x07];
        let mut dst = [0; 11];
        decode(&abracadabra(), &section, &mut dst).unwrap();
        assert_eq!(&dst, b"ABRACADABRA");
    }

    #[test]
    fn missing_bits_and_misfitting_streams_are_refused() {
        let mut dst = [0; 11];
        for (section, want) in [
            (&[1, 0, 1, 0, 1][..], MISFIT),
            (&[1, 0, 1, 0, 1, 0, 0x72, 0x0A], MISFIT),
            (&[1, 0, 1, 0, 1, 0, 0x72, 0x0A, 0x13], SHORT),
            (&[0, 0, 1, 0, 1, 0, 0x72, 0x0A, 0x13, 0x07], SHORT),
        ] {
            assert_eq!(decode(&abracadabra(), section, &mut dst), Err(want), "{section:?}");
        }
    }

    #[test]
    fn a_single_symbol_is_coded_by_either_bit() {
        let mut nibbles = [0; BYTES];
        nibbles[b'x' as usize / 2] = 1;
        let lengths = HuffmanLengths::parse(&nibbles, 8).unwrap();
        let mut dst = [0; 200];
        let mut section = vec![7, 0, 7, 0, 7, 0];
        section.extend_from_slice(&[0x5A; 28]);
        decode(&lengths, &section, &mut dst).unwrap();
        assert_eq!(dst, [b'x'; 200]);
        section.pop();
        assert_eq!(decode(&lengths, &section, &mut dst), Err(SHORT));
    }
}
