//! The reverse code book of a PHF stream, and decoding with it.
//!
//! Reference: section 5.10. Longer codes have smaller values: a code of `l` bits with value `v` is complete if `v >=
//! first[l]`. A table indexed by the next 12 bits decodes nearly all codes; longer ones are decoded bit by bit.
#![forbid(unsafe_code)]

use crate::format::fzm::stage::types::{Element, elements};

/// Rows of the book, one per code length.
const LENGTHS: usize = 32;

/// Bytes of `first` and `base`.
pub(super) const TABLES: usize = 2 * 4 * LENGTHS;

/// Bits that index the table.
const LOOKUP: u32 = 12;

/// The code book, prepared for decoding.
pub(super) struct Book {
    first: [u32; LENGTHS],
    base: [u32; LENGTHS],
    /// The symbols.
    keys: Vec<u32>,
    /// For every value of the next 12 bits, the key and, in the low 8 bits, the length of its code. 0 if the code is
    /// longer or invalid, or the key does not fit in 24 bits.
    table: Vec<u32>,
}

/// Memory of a book with `keys` keys, in bytes.
pub(super) const fn footprint(keys: u64) -> u64 {
    4 * keys + (4 << LOOKUP)
}

impl Book {
    /// A book from `tables` and `keys`.
    pub(super) fn new(tables: &[u8; TABLES], keys: Vec<u32>) -> Self {
        let (mut first, mut base) = ([0; LENGTHS], [0; LENGTHS]);
        for (own, value) in first.iter_mut().chain(&mut base).zip(elements::<u32>(tables)) {
            *own = value;
        }
        let mut book = Self { first, base, keys, table: Vec::new() };
        book.table = (0..1_u64 << LOOKUP)
            .map(|bits| match book.code(bits << (64 - LOOKUP), LOOKUP) {
                Some((key, len)) if key < 1 << 24 => key << 8 | len,
                _ => 0,
            })
            .collect();
        book
    }

    /// The only symbol, if codes have no bits.
    pub(super) fn only(&self) -> Option<u32> {
        self.keys.first().copied()
    }

    /// The key whose code is at the highest bits of `window`, and the code's length, if at most `most`.
    fn code(&self, window: u64, most: u32) -> Option<(u32, u32)> {
        for (len, (&first, &base)) in (1..=most).zip(self.first.iter().zip(&self.base).skip(1)) {
            let value = (window >> (64 - len)) as u32;
            if value >= first {
                let place = u64::from(base) + u64::from(value - first);
                return Some((*self.keys.get(usize::try_from(place).ok()?)?, len));
            }
        }
        None
    }

    /// Decodes `N` partitions of equally many symbols in an interleaved loop, so that the processor need not wait for
    /// one code's length before decoding another: `cells[i]`, from bit `from[i]`, into `out[i]`. Returns the bits at
    /// which they end.
    ///
    /// # Errors
    /// Fails with the index of the first invalid partition and the reason.
    pub(super) fn decode<T: Element + TryFrom<u32>, const N: usize>(
        &self,
        cells: [&[u8]; N],
        from: [u64; N],
        out: [&mut [u8]; N],
    ) -> Result<[u64; N], (usize, &'static str)> {
        let mut used = from;
        let mut pairs = out.map(|out| out.chunks_exact_mut(2 * T::SIZE));
        let count = pairs.each_ref().map(ExactSizeIterator::len).into_iter().min().unwrap_or(0);
        for _ in 0..count {
            for i in 0..N {
                let Some(pair) = pairs[i].next() else { continue };
                let (own, next) = pair.split_at_mut(T::SIZE);
                // A window has at least 33 bits: enough for two table lookups.
                let window = window(cells[i], used[i]);
                let entry = self.table[(window >> (64 - LOOKUP)) as usize];
                let after = self.table[((window << (entry & 31)) >> (64 - LOOKUP)) as usize];
                if entry & 0xFF != 0 && after & 0xFF != 0 {
                    put::<T>(entry >> 8, own).map_err(|why| (i, why))?;
                    put::<T>(after >> 8, next).map_err(|why| (i, why))?;
                    used[i] += u64::from((entry & 0xFF) + (after & 0xFF));
                } else {
                    self.long::<T>(cells[i], &mut used[i], own).map_err(|why| (i, why))?;
                    self.long::<T>(cells[i], &mut used[i], next).map_err(|why| (i, why))?;
                }
            }
        }
        for (i, pairs) in pairs.into_iter().enumerate() {
            for own in pairs.into_remainder().chunks_exact_mut(T::SIZE) {
                self.long::<T>(cells[i], &mut used[i], own).map_err(|why| (i, why))?;
            }
        }
        Ok(used)
    }

    /// Decodes one symbol whose code may be longer than 12 bits.
    #[cold]
    fn long<T: Element + TryFrom<u32>>(
        &self,
        cells: &[u8],
        used: &mut u64,
        out: &mut [u8],
    ) -> Result<(), &'static str> {
        let (key, len) = self.code(window(cells, *used), LENGTHS as u32 - 1).ok_or("invalid code")?;
        put::<T>(key, out)?;
        *used += u64::from(len);
        Ok(())
    }
}

/// The bits from `at`, highest first: at least 33 of them; zeros after the last cell.
#[inline]
fn window(cells: &[u8], at: u64) -> u64 {
    let from = (at / 32 * 4) as usize;
    let two = match cells.get(from..).and_then(<[u8]>::first_chunk) {
        Some(two) => *two,
        None => last(cells, from),
    };
    u64::from_le_bytes(two).rotate_left(32) << (at % 32)
}

#[cold]
fn last(cells: &[u8], from: usize) -> [u8; 8] {
    let mut two = [0; 8];
    let rest = cells.get(from..).unwrap_or_default();
    two[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
    two
}

/// Writes a symbol. Keys are read as symbols of this type, so a key that does not fit is a defect.
#[inline]
fn put<T: Element + TryFrom<u32>>(key: u32, out: &mut [u8]) -> Result<(), &'static str> {
    T::try_from(key).map_err(|_| "a key is too large for a symbol").map(|key| key.put(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_does_not_fit_the_symbol_is_an_error() {
        // One code of one bit, 0, for the first key.
        let mut tables = [0; TABLES];
        tables[..4 * LENGTHS].as_chunks_mut::<4>().0.iter_mut().for_each(|first| *first = [0xFF; 4]);
        tables[4..8].fill(0);
        for (key, valid) in [(255, true), (256, false), (1 << 24, false)] {
            let book = Book::new(&tables, vec![key]);
            let mut out = [7; 4];
            let decoded = book.decode::<u8, 1>([&[0; 4]], [0], [&mut out]);
            assert_eq!(decoded.is_ok(), valid, "{key}: {decoded:?}");
            assert!(!valid || out == [255; 4]);
        }
    }
}
