//! FSE tables: descriptions, predefined distributions, decoding tables.
//!
//! Reference: section 2.4, "FSE description" and "Table".
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

use super::bits::{BitReader, ReverseBitReader};

/// An entry of a decoding table, for one state: the decoded value and the next state. Eight bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FseEntry {
    /// Baseline of the value.
    pub(super) base: u32,
    /// Baseline of the next state.
    pub(super) next: u16,
    /// Number of bits to read and add to the value.
    pub(super) extra: u8,
    /// Number of bits to read and add to the next state.
    pub(super) bits: u8,
}

/// The value of a symbol: a baseline, and the number of extra bits added to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodeInfo {
    pub(super) base: u32,
    pub(super) extra: u8,
}

impl FseEntry {
    /// Reads the next state.
    #[inline]
    pub(super) fn next(self, bits: &mut ReverseBitReader<'_>) -> usize {
        usize::from(self.next) + bits.read(u32::from(self.bits)) as usize
    }
}

/// A decoding table of `2^accuracy` cells, padded to [`SEQUENCES`] cells; no state leads to the padding.
#[derive(Debug, Clone, Default)]
pub(super) struct FseTable {
    accuracy: u32,
    cells: Vec<FseEntry>,
}

/// The value of a symbol that stands for itself.
pub(super) fn plain(symbol: u8) -> CodeInfo {
    CodeInfo { base: symbol.into(), extra: 0 }
}

/// Cells of the sequence tables: states are below this by construction.
pub(super) const SEQUENCES: usize = 512;

/// Probabilities of at most 256 symbols; -1 is "less than one".
pub(in crate::codec::zstd) type Distribution = Vec<i16>;

/// Reads a description of at most `max_symbol + 1` symbols and `max_accuracy` bits; also returns the bytes after it.
///
/// # Errors
/// Fails if a maximum is exceeded or the probabilities do not add up.
pub(in crate::codec::zstd) fn read_distribution<'a>(
    src: &'a [u8],
    max_symbol: usize,
    max_accuracy: u32,
    what: &'static str,
) -> Result<(Distribution, u32, &'a [u8])> {
    let mut bits = BitReader::new(src);
    let accuracy = bits.peek(4) + 5;
    bits.skip(4);
    if accuracy > max_accuracy {
        return Err(Error::corrupt(format!("accuracy of {accuracy} bits, the maximum is {max_accuracy}"), what));
    }
    let mut left: u32 = (1 << accuracy) + 1;
    let mut counts = Distribution::with_capacity(64);
    while left > 1 {
        if counts.len() > max_symbol {
            return Err(Error::corrupt("probabilities do not add up within the alphabet", what));
        }
        let n = left.ilog2() + 1;
        let short = (1 << n) - 1 - left;
        let mut value = bits.peek(n - 1);
        if value < short {
            bits.skip(n - 1);
        } else {
            value = bits.peek(n);
            bits.skip(n);
            if value >= 1 << (n - 1) {
                value -= short;
            }
        }
        let probability = value as i32 - 1;
        left = left
            .checked_sub(probability.unsigned_abs())
            .filter(|&left| left > 0)
            .ok_or_else(|| Error::corrupt("probabilities add up to more than the table", what))?;
        counts.push(probability as i16);
        if probability == 0 {
            loop {
                let zeros = bits.peek(2);
                bits.skip(2);
                counts.extend((0..zeros).map(|_| 0));
                if counts.len() > max_symbol + 1 {
                    return Err(Error::corrupt("zero probabilities run past the alphabet", what));
                }
                if zeros < 3 {
                    break;
                }
            }
        }
    }
    Ok((counts, accuracy, bits.rest(what)?))
}

impl FseTable {
    /// Builds the table of a distribution; `meaning` maps symbols to values.
    ///
    /// # Errors
    /// Fails if the probabilities do not fill the table exactly.
    pub(super) fn new(
        counts: &[i16],
        accuracy: u32,
        what: &'static str,
        meaning: impl Fn(u8) -> CodeInfo,
    ) -> Result<Self> {
        let mut table = Self::default();
        table.set(counts, accuracy, what, meaning)?;
        Ok(table)
    }

    /// Rebuilds the table for a distribution, reusing its memory.
    ///
    /// # Errors
    /// As [`FseTable::new`]; the table is invalid afterwards.
    pub(super) fn set(
        &mut self,
        counts: &[i16],
        accuracy: u32,
        what: &'static str,
        meaning: impl Fn(u8) -> CodeInfo,
    ) -> Result<()> {
        let size = 1_usize << accuracy;
        let broken = || Error::corrupt("probabilities do not fill the table", what);
        let filled: u32 = counts.iter().map(|c| u32::from(c.unsigned_abs())).sum();
        if filled as usize != size || counts.len() > 256 {
            return Err(broken());
        }
        // A cell first holds its symbol, in place of the value.
        let cells = &mut self.cells;
        if cells.len() < size.max(SEQUENCES) {
            cells.resize(size.max(SEQUENCES), FseEntry::default());
        }
        let mut next = [0_u16; 256];
        let mut top = size;
        for ((symbol, &count), slot) in (0_u32..).zip(counts).zip(&mut next) {
            *slot = count.unsigned_abs();
            if count == -1 {
                top = top.checked_sub(1).ok_or_else(broken)?;
                cells[top].base = symbol;
            }
        }
        let step = (size >> 1) + (size >> 3) + 3;
        let mut pos = 0;
        for (symbol, &count) in (0_u32..).zip(counts) {
            for _ in 0..count.max(0) {
                // Fails on a negative count other than -1, which could make the inner loop endless.
                let cell = cells[..size].get_mut(pos).filter(|_| pos < top).ok_or_else(broken)?;
                cell.base = symbol;
                loop {
                    pos = (pos + step) & (size - 1);
                    if pos < top || top == 0 {
                        break;
                    }
                }
            }
        }
        if pos != 0 {
            return Err(broken());
        }
        for cell in &mut cells[..size] {
            let symbol = cell.base as u8;
            let n = &mut next[usize::from(symbol)];
            let state = u32::from(*n).max(1);
            *n += 1;
            let bits = accuracy.saturating_sub(state.ilog2());
            let next = (state << bits).wrapping_sub(1 << accuracy) as u16;
            let CodeInfo { base, extra } = meaning(symbol);
            *cell = FseEntry { base, next, extra, bits: bits as u8 };
        }
        self.accuracy = accuracy;
        Ok(())
    }

    /// Makes it a table of a single symbol, which takes no bits.
    pub(super) fn set_constant(&mut self, meaning: CodeInfo) {
        if self.cells.is_empty() {
            self.cells.resize(SEQUENCES, FseEntry::default());
        }
        self.accuracy = 0;
        self.cells[0] = FseEntry { base: meaning.base, extra: meaning.extra, next: 0, bits: 0 };
    }

    /// Reads the first state.
    pub(super) fn start(&self, bits: &mut ReverseBitReader<'_>) -> usize {
        bits.read(self.accuracy) as usize
    }

    /// The cell of a state.
    #[inline]
    pub(super) fn cell(&self, state: usize) -> FseEntry {
        self.cells.get(state).copied().unwrap_or_default()
    }

    /// The cells as an array, for sequence tables.
    pub(super) fn cells(&self) -> Option<&[FseEntry; SEQUENCES]> {
        self.cells.first_chunk()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_must_fill_the_table() {
        assert!(FseTable::new(&[16, 15, -1], 5, "t", plain).is_ok());
        for counts in [&[16_i16, 15][..], &[16, 17], &[32, -1], &[0; 3]] {
            assert!(FseTable::new(counts, 5, "t", plain).is_err(), "{counts:?}");
        }
    }

    #[test]
    fn invalid_distributions_are_rejected() {
        // accuracy 15 + 5
        assert!(read_distribution(&[0xFF; 8], 255, 9, "d").is_err());
        // accuracy 5, then nothing but zeros: symbols of probability -1 until the table is full, then the end.
        let (counts, accuracy, _) = read_distribution(&[0; 32], 255, 9, "d").unwrap();
        assert_eq!((accuracy, counts.iter().map(|c| c.unsigned_abs()).sum::<u16>()), (5, 32));
        assert!(read_distribution(&[0; 2], 255, 9, "d").is_err());
        assert!(read_distribution(&[0; 32], 10, 9, "d").is_err());
    }
}
