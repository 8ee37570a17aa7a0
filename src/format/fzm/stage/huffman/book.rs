//! The reverse code book of a PHF stream, and decoding with it.
//!
//! Reference: section 5.10. Longer codes have smaller values: a code of `l` bits with value `v` is complete if `v >=
//! first[l]`. A table indexed by the next 12 bits gives the codes that are complete in them, up to 6 bytes of symbols,
//! or, if most codes are so long that there is seldom a second one, the first of them: its entries take half the
//! memory, and its symbols have fixed places (1.47 against 1.87 ns per symbol at 8.7 bits). Longer codes are decoded
//! bit by bit.
//!
//! Codes `1` (a), `01` (b) and `00` (c): `first[1] = 1`, `first[2] = 0`; the keys are a, c, b, with `base[1] = 0` and
//! `base[2] = 1`. In the bits `01...` the first is less than `first[1]`, and the first two are not less than
//! `first[2]`: a code of 2 bits, whose key has place `base[2] + 1 - first[2] = 2`: b. In the entry of the table for
//! `011001001101` are b, a, c, a, c and a, the six symbols that fit, of 9 bits; the other three bits are looked up
//! again.
#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "a kernel becomes part of what runs it")]

use crate::codec::simd_dispatch::{SimdLoop, SimdOps, run_widest};
use crate::format::fzm::stage::types::elements;

/// Rows of the book, one per code length.
const LENGTHS: usize = 32;

/// Bytes of `first` and `base`.
pub(super) const TABLES: usize = 2 * 4 * LENGTHS;

/// Bits that index the table.
const LOOKUP: u32 = 12;
/// Most symbols in all entries of a table with which one code per lookup is quicker than all.
const FEW: usize = (1 << LOOKUP) * 5 / 4;
/// Lookups in the 64 bits of a window.
const LOOKUPS: usize = 5;
/// Bytes of symbols in an entry of the table, and bytes that are written for it.
const SYMBOLS: usize = 6;
const WRITTEN: usize = 8;
/// Bytes that the lookups of a window may write, rounded up so that any masked place is inside.
const ROOM: usize = (SYMBOLS * (LOOKUPS - 1)).next_power_of_two() - 1 + WRITTEN;

/// The code book, prepared for decoding.
pub(super) struct Book {
    codes: StoredBook,
    table: BookLookup,
}

/// The code book as it is stored.
struct StoredBook {
    first: [u32; LENGTHS],
    base: [u32; LENGTHS],
    /// The symbols.
    keys: Vec<u32>,
    /// Bytes of a symbol.
    size: usize,
}

/// The decoding of the next [`LOOKUP`] bits.
enum BookLookup {
    /// All complete codes.
    All(Box<[BookEntry; 1 << LOOKUP]>),
    /// The first code: its length in the lowest byte, 1 in the next one, then the symbol, of at most 2 bytes. 0 if it
    /// is longer or invalid.
    First(Box<[u32; 1 << LOOKUP]>),
}

/// The codes that are complete in some bits. From the lowest bits: the length of all codes in a byte, the bytes of
/// their symbols in a byte, and the symbols. 0 if the first code is longer or invalid.
#[derive(Debug, Clone, Copy, Default)]
struct BookEntry(u64);

impl BookEntry {
    /// Bits of the codes; of a sum of entries, the total.
    fn len(self) -> u32 {
        self.0 as u32 & 0xFF
    }

    /// Bytes of the symbols; of a sum of entries, the total.
    fn bytes(self) -> usize {
        (self.0 >> 8) as usize & 0xFF
    }

    /// The symbols, then zeros.
    fn symbols(self) -> [u8; WRITTEN] {
        (self.0 >> 16).to_le_bytes()
    }
}

/// A partition that is decoded; without symbols by default.
#[derive(Debug, Default)]
pub(super) struct Lane<'a> {
    pub(super) cells: &'a [u8],
    /// Bits of `cells` that are decoded.
    pub(super) used: u64,
    /// Space for the symbols that are left.
    pub(super) out: &'a mut [u8],
}

/// Memory of a book with `keys` keys, in bytes.
pub(super) const fn footprint(keys: u64) -> u64 {
    4 * keys + (8 << LOOKUP)
}

impl StoredBook {
    /// Whether `key` is one of the symbols.
    fn fits(&self, key: u32) -> bool {
        u64::from(key) >> (8 * self.size) == 0
    }

    /// All codes that are complete in the highest [`LOOKUP`] bits of `window`.
    fn complete(&self, window: u64) -> BookEntry {
        let mut entry = BookEntry(0);
        while entry.bytes() + self.size <= SYMBOLS
            && let Some((key, len)) = self.code(window << entry.len(), LOOKUP - entry.len())
            && self.fits(key)
        {
            entry.0 |= u64::from(key) << (16 + 8 * entry.bytes());
            entry.0 += u64::from(len) + ((self.size as u64) << 8);
        }
        entry
    }

    /// The first code in the highest [`LOOKUP`] bits of `window`, as in [`BookLookup::First`].
    fn first(&self, window: u64) -> u32 {
        let code = self.code(window, LOOKUP).filter(|&(key, _)| self.fits(key));
        code.map_or(0, |(key, len)| len | 1 << 8 | key << 16)
    }

    /// The key with its code at the highest bits of `window`, and the code's length, if at most `most`.
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
}

impl Book {
    /// A book from `tables` and `keys`, of symbols of `size` bytes (1, 2 or 4).
    pub(super) fn new(tables: &[u8; TABLES], keys: Vec<u32>, size: usize) -> Self {
        let (mut first, mut base) = ([0; LENGTHS], [0; LENGTHS]);
        for (own, value) in first.iter_mut().chain(&mut base).zip(elements::<u32>(tables)) {
            *own = value;
        }
        let codes = StoredBook { first, base, keys, size };
        let windows = |bits: usize| (bits as u64) << (64 - LOOKUP);
        let all: Box<[BookEntry; 1 << LOOKUP]> = Box::new(std::array::from_fn(|bits| codes.complete(windows(bits))));
        let symbols: usize = all.iter().map(|entry| entry.bytes() / size).sum();
        if size > 2 || symbols > FEW {
            return Self { codes, table: BookLookup::All(all) };
        }
        let table = BookLookup::First(Box::new(std::array::from_fn(|bits| codes.first(windows(bits)))));
        Self { codes, table }
    }

    /// The only symbol, if codes have no bits.
    pub(super) fn only(&self) -> Option<u32> {
        self.codes.keys.first().copied()
    }

    /// Decodes partitions in an interleaved loop, so that the processor need not wait for one code's length before
    /// decoding another.
    ///
    /// # Errors
    /// Fails with the index of the first invalid partition and the reason.
    pub(super) fn decode(&self, lanes: &mut [Lane]) -> Result<(), (usize, &'static str)> {
        match (&self.table, self.codes.size) {
            (BookLookup::All(table), _) => run_widest(AllCodes { book: self, table, lanes })?,
            (BookLookup::First(table), 1) => run_widest(FirstCodes::<1> { book: self, table, lanes })?,
            (BookLookup::First(table), _) => run_widest(FirstCodes::<2> { book: self, table, lanes })?,
        }
        let mut is_going = true;
        while std::mem::take(&mut is_going) {
            for (i, lane) in lanes.iter_mut().enumerate().filter(|(_, lane)| lane.out.len() >= self.codes.size) {
                self.next(lane).map_err(|why| (i, why))?;
                is_going = true;
            }
        }
        Ok(())
    }

    /// Decodes a few symbols.
    fn next(&self, lane: &mut Lane) -> Result<(), &'static str> {
        let BookLookup::All(table) = &self.table else { return self.long(lane) };
        let entry = table[(window(lane.cells, lane.used) >> (64 - LOOKUP)) as usize];
        if entry.bytes() == 0 || entry.bytes() > lane.out.len() {
            return self.long(lane);
        }
        let (own, rest) = std::mem::take(&mut lane.out).split_at_mut(entry.bytes());
        own.copy_from_slice(&entry.symbols()[..own.len()]);
        (lane.out, lane.used) = (rest, lane.used + u64::from(entry.len()));
        Ok(())
    }

    /// Decodes one symbol; its code may be longer than [`LOOKUP`] bits.
    #[cold]
    fn long(&self, lane: &mut Lane) -> Result<(), &'static str> {
        let (key, len) = self.codes.code(window(lane.cells, lane.used), LENGTHS as u32 - 1).ok_or("invalid code")?;
        // Keys are read as symbols of this size, so a key that does not fit is a defect.
        if !self.codes.fits(key) {
            return Err("a key is too large for a symbol");
        }
        let (own, rest) = std::mem::take(&mut lane.out).split_at_mut_checked(self.codes.size).ok_or("no space")?;
        own.copy_from_slice(&key.to_le_bytes()[..self.codes.size]);
        (lane.out, lane.used) = (rest, lane.used + u64::from(len));
        Ok(())
    }
}

/// Decodes partitions until each has less than [`ROOM`] bytes left.
struct AllCodes<'a, 'b> {
    book: &'a Book,
    table: &'a [BookEntry; 1 << LOOKUP],
    lanes: &'a mut [Lane<'b>],
}

impl SimdLoop for AllCodes<'_, '_> {
    type Output = Result<(), (usize, &'static str)>;

    #[inline(always)]
    fn run(self, _: impl SimdOps) -> Self::Output {
        let mut is_going = true;
        while std::mem::take(&mut is_going) {
            for (i, lane) in self.lanes.iter_mut().enumerate() {
                let Some(own) = lane.out.first_chunk_mut::<ROOM>() else { continue };
                let (mut window, mut sum) = (window(lane.cells, lane.used), BookEntry(0));
                for _ in 0..LOOKUPS {
                    let entry = self.table[(window >> (64 - LOOKUP)) as usize];
                    own[sum.bytes() & (ROOM - WRITTEN)..][..WRITTEN].copy_from_slice(&entry.symbols());
                    window <<= entry.0 & 63;
                    sum.0 = sum.0.wrapping_add(entry.0 & 0xFFFF);
                }
                if sum.bytes() == 0 {
                    self.book.long(lane).map_err(|why| (i, why))?;
                } else {
                    lane.out = &mut std::mem::take(&mut lane.out)[sum.bytes()..];
                    lane.used += u64::from(sum.len());
                }
                is_going = true;
            }
        }
        Ok(())
    }
}

/// Decodes partitions of symbols of `SIZE` bytes until each has less than [`LOOKUPS`] left.
struct FirstCodes<'a, 'b, const SIZE: usize> {
    book: &'a Book,
    table: &'a [u32; 1 << LOOKUP],
    lanes: &'a mut [Lane<'b>],
}

impl<const SIZE: usize> SimdLoop for FirstCodes<'_, '_, SIZE> {
    type Output = Result<(), (usize, &'static str)>;

    #[inline(always)]
    fn run(self, _: impl SimdOps) -> Self::Output {
        let mut is_going = true;
        while std::mem::take(&mut is_going) {
            for (i, lane) in self.lanes.iter_mut().enumerate() {
                let Some(own) = lane.out.get_mut(..SIZE * LOOKUPS) else { continue };
                let (mut window, mut sum) = (window(lane.cells, lane.used), 0_u32);
                for symbol in own.as_chunks_mut::<SIZE>().0 {
                    let entry = self.table[(window >> (64 - LOOKUP)) as usize];
                    symbol.copy_from_slice(&(entry >> 16).to_le_bytes()[..SIZE]);
                    // An entry for a longer code shifts nothing, so that the ones after it are the same.
                    window <<= entry & 63;
                    sum = sum.wrapping_add(entry);
                }
                let [len, symbols, ..] = sum.to_le_bytes();
                lane.out = &mut std::mem::take(&mut lane.out)[SIZE * usize::from(symbols)..];
                lane.used += u64::from(len);
                if usize::from(symbols) < LOOKUPS {
                    self.book.long(lane).map_err(|why| (i, why))?;
                }
                is_going = true;
            }
        }
        Ok(())
    }
}

/// The 64 bits from `at`, highest first; zeros after the last cell.
#[inline(always)]
fn window(cells: &[u8], at: u64) -> u64 {
    let (from, shift) = ((at / 32 * 4) as usize, at % 32);
    let three: &[u8; 12] = match cells.get(from..).and_then(<[u8]>::first_chunk) {
        Some(three) => three,
        None => &last(cells, from),
    };
    let [a @ .., c0, c1, c2, c3] = *three;
    let two = u64::from_le_bytes(a).rotate_left(32);
    let third = u64::from(u32::from_le_bytes([c0, c1, c2, c3]));
    two << shift | (third << shift) >> 32
}

#[cold]
fn last(cells: &[u8], from: usize) -> [u8; 12] {
    let mut three = [0; 12];
    let rest = cells.get(from..).unwrap_or_default();
    let n = rest.len().min(three.len());
    three[..n].copy_from_slice(&rest[..n]);
    three
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
            let book = Book::new(&tables, vec![key], 1);
            let mut out = [7; 4];
            let decoded = book.decode(&mut [Lane { cells: &[0; 4], used: 0, out: &mut out }]);
            assert_eq!(decoded.is_ok(), valid, "{key}: {decoded:?}");
            assert!(!valid || out == [255; 4]);
        }
    }
}
