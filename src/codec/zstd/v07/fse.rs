//! FSE tables: descriptions, predefined distributions, decoding cells.
//!
//! Reference: section 2.4, "FSE description" and "Table".
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

use super::bits::{Backward, Forward};

/// One state of a decoder: the symbol it stands for, and where the next state is found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    /// Base of the next state.
    base: u16,
    symbol: u8,
    /// Bits to add to the base.
    bits: u8,
}

/// A decoding table of `2^accuracy` cells.
#[derive(Debug, Clone)]
pub(super) struct Table {
    accuracy: u32,
    cells: Box<[Cell]>,
}

/// A distribution of at most 256 symbols; -1 is "less than one".
pub(super) type Distribution = Vec<i16>;

/// Reads a description of at most `max_symbol + 1` symbols and `max_accuracy` bits; gives what follows it.
///
/// # Errors
/// When it asks for more, or its probabilities do not add up.
pub(super) fn read_distribution<'a>(
    src: &'a [u8],
    max_symbol: usize,
    max_accuracy: u32,
    what: &'static str,
) -> Result<(Distribution, u32, &'a [u8])> {
    let mut bits = Forward::new(src);
    let accuracy = bits.peek(4) + 5;
    bits.skip(4);
    if accuracy > max_accuracy {
        return Err(Error::corrupt(format!("accuracy of {accuracy} bits, at most {max_accuracy} allowed"), what));
    }
    let mut left: u32 = (1 << accuracy) + 1;
    let mut counts = Distribution::new();
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

impl Table {
    /// The table of a distribution.
    ///
    /// # Errors
    /// When the probabilities do not fill it exactly.
    pub(super) fn new(counts: &[i16], accuracy: u32, what: &'static str) -> Result<Self> {
        let size = 1_usize << accuracy;
        let mut symbols = vec![0_u8; size];
        let mut next = [0_u16; 256];
        let broken = || Error::corrupt("probabilities do not fill the table", what);
        let mut top = size;
        for (symbol, &count) in counts.iter().enumerate() {
            let slot = next.get_mut(symbol).ok_or_else(broken)?;
            *slot = count.unsigned_abs();
            if count == -1 {
                top = top.checked_sub(1).ok_or_else(broken)?;
                symbols[top] = symbol as u8;
            }
        }
        let step = (size >> 1) + (size >> 3) + 3;
        let mut pos = 0;
        for (symbol, &count) in counts.iter().enumerate() {
            for _ in 0..count.max(0) {
                // An overfull distribution would walk for ever.
                if pos >= top {
                    return Err(broken());
                }
                symbols[pos] = symbol as u8;
                loop {
                    pos = (pos + step) & (size - 1);
                    if pos < top || top == 0 {
                        break;
                    }
                }
            }
        }
        let filled: u32 = counts.iter().map(|c| u32::from(c.unsigned_abs())).sum();
        if pos != 0 || filled as usize != size {
            return Err(broken());
        }
        let cells = symbols
            .iter()
            .map(|&symbol| {
                let n = &mut next[usize::from(symbol)];
                let state = u32::from(*n);
                *n += 1;
                let bits = accuracy - state.ilog2();
                Cell { base: ((state << bits) - (1 << accuracy)) as u16, symbol, bits: bits as u8 }
            })
            .collect();
        Ok(Self { accuracy, cells })
    }

    /// The table of one symbol that takes no bits.
    pub(super) fn constant(symbol: u8) -> Self {
        Self { accuracy: 0, cells: Box::new([Cell { base: 0, symbol, bits: 0 }]) }
    }

    /// The first state.
    pub(super) fn start(&self, bits: &mut Backward<'_>) -> State {
        State(bits.read(self.accuracy) as usize)
    }

    /// The symbol of a state.
    #[inline]
    pub(super) fn symbol(&self, state: State) -> u8 {
        self.cells.get(state.0).map_or(0, |c| c.symbol)
    }

    /// The state that follows.
    #[inline]
    pub(super) fn next(&self, state: State, bits: &mut Backward<'_>) -> State {
        // A state is always below the table's size: `base + bits` is, by construction.
        let cell = self.cells.get(state.0).copied().unwrap_or_default();
        State(usize::from(cell.base) + bits.read(u32::from(cell.bits)) as usize)
    }

    /// The largest symbol it can give.
    pub(super) fn max_symbol(&self) -> u8 {
        self.cells.iter().map(|c| c.symbol).max().unwrap_or(0)
    }
}

/// A state of a [`Table`].
#[derive(Debug, Clone, Copy)]
pub(super) struct State(usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_needs_probabilities_that_fill_it() {
        assert!(Table::new(&[16, 15, -1], 5, "t").is_ok());
        for counts in [&[16_i16, 15][..], &[16, 17], &[32, -1], &[0; 3]] {
            assert!(Table::new(counts, 5, "t").is_err(), "{counts:?}");
        }
    }

    #[test]
    fn a_description_that_cannot_be_is_refused() {
        // accuracy 15 + 5
        assert!(read_distribution(&[0xFF; 8], 255, 9, "d").is_err());
        // accuracy 5, then nothing but zeros: symbols of probability -1 until the table is full, then the end.
        let (counts, accuracy, _) = read_distribution(&[0; 32], 255, 9, "d").unwrap();
        assert_eq!((accuracy, counts.iter().map(|c| c.unsigned_abs()).sum::<u16>()), (5, 32));
        assert!(read_distribution(&[0; 2], 255, 9, "d").is_err());
        assert!(read_distribution(&[0; 32], 10, 9, "d").is_err());
    }
}
