//! The reverse code book of a PHF stream, and decoding by it.
//!
//! Reference: section 5.10. Longer codes have smaller values: a code of `l` bits with value `v` is complete
//! when `v >= first[l]`. A table over the next 12 bits holds what nearly all codes come to; the rest
//! are taken bit by bit.
#![forbid(unsafe_code)]

use crate::format::fzm::stage::types::elements;

/// Code lengths that the book has rows for.
const LENGTHS: usize = 32;

/// Bytes of `first` and `base`.
pub(super) const TABLES: usize = 2 * 4 * LENGTHS;

/// Bits that the table looks up.
const LOOKUP: u32 = 12;

/// The code book, ready for decoding.
pub(super) struct Book {
    first: [u32; LENGTHS],
    base: [u32; LENGTHS],
    /// Symbols, little-endian, `size` bytes each.
    keys: Vec<u32>,
    /// For every value of the next bits the place of the key and, in the low 8 bits, the length of its code;
    /// 0 for a code that is longer, or none.
    table: Vec<u32>,
}

/// Memory of a book with `keys` keys.
pub(super) const fn footprint(keys: u64) -> u64 {
    4 * keys + (4 << LOOKUP)
}

impl Book {
    /// The book whose two tables are `tables`, [`TABLES`] bytes, with `keys`.
    pub(super) fn new(tables: &[u8], keys: Vec<u32>) -> Self {
        let (mut first, mut base) = ([0; LENGTHS], [0; LENGTHS]);
        for (own, value) in first.iter_mut().chain(&mut base).zip(elements::<u32>(tables)) {
            *own = value;
        }
        let mut book = Self { first, base, keys, table: Vec::new() };
        book.table = (0..1_u64 << LOOKUP)
            .map(|bits| match book.code(bits << (64 - LOOKUP), LOOKUP) {
                // A place is below the number of keys, which is 16 bits.
                Some((place, len)) => place << 8 | len,
                None => 0,
            })
            .collect();
        book
    }

    /// The symbol of the only key, where codes have no bits.
    pub(super) fn only(&self) -> Option<u32> {
        self.keys.first().copied()
    }

    /// The place of the key whose code the highest bits of `window` are, and its length, if at most `most`.
    fn code(&self, window: u64, most: u32) -> Option<(u32, u32)> {
        for (len, (&first, &base)) in (1..=most).zip(self.first.iter().zip(&self.base).skip(1)) {
            let value = (window >> (64 - len)) as u32;
            if value >= first {
                let place = u64::from(base) + u64::from(value - first);
                return (place < self.keys.len() as u64).then_some((place as u32, len));
            }
        }
        None
    }

    /// Decodes `count` symbols from `cells`, which have to take exactly `bits` bits, and gives each to `put`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn decode(
        &self,
        cells: &[u8],
        bits: u64,
        count: usize,
        mut put: impl FnMut(usize, u32),
    ) -> Result<(), &'static str> {
        let mut cells = elements::<u32>(cells);
        // The bits to come, from the highest down, and how many are there; behind the last cell come zeros.
        let (mut window, mut have) = (0_u64, 0_u32);
        let mut used = 0_u64;
        for i in 0..count {
            if have < 32 {
                let cell = cells.next().unwrap_or(0);
                window |= u64::from(cell) << (32 - have);
                have += 32;
            }
            let entry = self.table[(window >> (64 - LOOKUP)) as usize];
            let (place, len) = match entry & 0xFF {
                0 => self.code(window, LENGTHS as u32 - 1).ok_or("bits that are no code")?,
                len => (entry >> 8, len),
            };
            put(i, self.keys.get(place as usize).copied().unwrap_or_default());
            window <<= len;
            have -= len;
            used += u64::from(len);
        }
        if used == bits { Ok(()) } else { Err("symbols do not take the bits of their partition") }
    }
}
