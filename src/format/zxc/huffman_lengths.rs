//! Code lengths of Huffman tables, four bits per symbol, and the canonical order of their codes.
//!
//! Reference: sections 3.5, 8.1 and 9.2 of the ZXC reference.
//!
//! Checked: lengths against the limit of the version; the code is complete, or a single symbol of length 1.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use super::decode_error::DecodeError;

/// A length exceeds the limit of the version, or the code is not complete.
const BROKEN: DecodeError = DecodeError::new("not a complete prefix code", "Huffman code lengths");

/// Size of a table of code lengths.
pub(super) const BYTES: usize = 128;

/// Maximum code length of any version, in bits.
pub(super) const MAX_BITS: usize = 11;

/// A complete prefix code over bytes.
#[derive(Debug, Clone)]
pub(super) struct HuffmanLengths {
    /// The symbols in code order: by length, then by value.
    symbols: [u8; 256],
    /// Number of symbols of each length.
    counts: [u16; MAX_BITS + 1],
}

impl HuffmanLengths {
    /// Parses a table of lengths of at most `max_bits`.
    ///
    /// # Errors
    /// Fails if a length is too large or the code is not complete.
    pub(super) fn parse(nibbles: &[u8; BYTES], max_bits: u32) -> Result<Self, DecodeError> {
        let length = |symbol: u8| {
            let byte = nibbles.get(usize::from(symbol >> 1)).copied().unwrap_or(0);
            usize::from(if symbol & 1 == 0 { byte & 15 } else { byte >> 4 })
        };
        let mut counts = [0_u16; MAX_BITS + 1];
        for symbol in 0..=255 {
            let count = counts.get_mut(length(symbol)).ok_or(BROKEN)?;
            *count = count.saturating_add(1);
        }
        let [_, by_length @ ..] = &counts;
        // A code of length L fills 2^(11 - L) of the 2^11 leaves; a single symbol is coded by either bit.
        let taken = by_length.iter().fold((0_u32, 1_u32 << 10), |(sum, weight), &n| {
            (sum.saturating_add(u32::from(n).saturating_mul(weight)), weight >> 1)
        });
        let present: u16 = by_length.iter().sum();
        let too_long = by_length.iter().zip(1_u32..).any(|(&n, bits)| n > 0 && bits > max_bits);
        let complete = taken.0 == 1 << 11 || (present == 1 && taken.0 == 1 << 10);
        if too_long || !complete {
            return Err(BROKEN);
        }
        let mut next = [0_u16; MAX_BITS + 1];
        for bits in 2..=MAX_BITS {
            let before = bits.saturating_sub(1);
            let start = next.get(before).zip(counts.get(before)).map_or(0, |(&a, &b)| a.saturating_add(b));
            if let Some(place) = next.get_mut(bits) {
                *place = start;
            }
        }
        let mut symbols = [0; 256];
        for symbol in 0..=255 {
            let bits = length(symbol);
            if bits > 0
                && let Some(place) = next.get_mut(bits)
            {
                if let Some(entry) = symbols.get_mut(usize::from(*place)) {
                    *entry = symbol;
                }
                *place = place.saturating_add(1);
            }
        }
        Ok(Self { symbols, counts })
    }

    /// The symbols in code order.
    pub(super) fn symbols(&self) -> &[u8; 256] {
        &self.symbols
    }

    /// Number of codes of `bits` bits.
    pub(super) fn count(&self, bits: usize) -> usize {
        if bits == 0 { 0 } else { self.counts.get(bits).copied().map_or(0, usize::from) }
    }

    /// Whether there is a single symbol, with a code of one bit.
    pub(super) fn is_single(&self) -> bool {
        self.counts.iter().skip(1).sum::<u16>() == 1
    }
}
