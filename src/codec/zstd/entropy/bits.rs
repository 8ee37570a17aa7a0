//! Bit readers: forward for FSE descriptions, backward for entropy streams.
//!
//! A backward stream is read from its last byte to its first; the highest set bit of the last byte marks the end and
//! carries no data. Reading past the beginning yields zeros and is recorded.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

/// Reads a stream backward, most significant bits first.
#[derive(Debug, Clone)]
pub(super) struct ReverseBitReader<'a> {
    src: &'a [u8],
    /// Index in `src` of the 8 bytes in `word`.
    pos: usize,
    word: u64,
    /// Bits of `word` consumed, from the top; above 64 after an overread.
    used: u32,
}

impl<'a> ReverseBitReader<'a> {
    /// Starts at the end mark of `src`.
    ///
    /// # Errors
    /// Fails if `src` is empty or its last byte is 0, so that there is no end mark.
    pub(super) fn new(src: &'a [u8], what: &'static str) -> Result<Self> {
        let Some(&last) = src.last().filter(|&&b| b != 0) else {
            return Err(Error::corrupt("the bit stream has no end mark", what));
        };
        let mark = last.leading_zeros() + 1;
        if let Some((head, tail)) = src.split_last_chunk::<8>() {
            Ok(Self { src, pos: head.len(), word: u64::from_le_bytes(*tail), used: mark })
        } else {
            let mut bytes = [0; 8];
            bytes[..src.len()].copy_from_slice(src);
            Ok(Self { src, pos: 0, word: u64::from_le_bytes(bytes), used: mark + 8 * (8 - src.len() as u32) })
        }
    }

    /// Returns the next `n` bits (at most 56 since the last refill) without consuming them.
    #[inline]
    pub(super) fn peek(&self, n: u32) -> u64 {
        // Two shifts, so that n = 0 gives 0.
        (self.word << (self.used & 63)) >> 1 >> (63 - n)
    }

    /// Consumes `n` bits.
    #[inline]
    pub(super) fn skip(&mut self, n: u32) {
        self.used += n;
    }

    /// Reads `n` bits.
    #[inline]
    pub(super) fn read(&mut self, n: u32) -> u64 {
        let v = self.peek(n);
        self.used += n;
        v
    }

    /// Makes at least 57 bits available, or all that are left.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the inner loop of a kernel")]
    pub(super) fn refill(&mut self) {
        let back = (self.used >> 3) as usize;
        if back <= self.pos && self.used <= 64 {
            let pos = self.pos - back;
            if let Some(chunk) = self.src.get(pos..pos + 8) {
                self.word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
                self.pos = pos;
                self.used &= 7;
            }
        } else {
            self.refill_at_start();
        }
    }

    /// Whether the next two refills are sure to find enough bits.
    #[inline]
    pub(super) fn is_far(&self) -> bool {
        self.pos >= 16
    }

    #[cold]
    fn refill_at_start(&mut self) {
        if self.used > 64 {
            // Overread: only zeros from here on; the state never becomes valid again.
            (self.word, self.pos, self.used) = (0, 0, 65);
            return;
        }
        if let Some(chunk) = self.src.get(..8).filter(|_| self.pos > 0) {
            self.word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
            self.used -= 8 * self.pos as u32;
            self.pos = 0;
        }
    }

    /// Whether more bits were consumed than the stream has.
    pub(super) fn is_overread(&self) -> bool {
        self.pos == 0 && self.used > 64
    }

    /// Whether exactly all bits were consumed.
    pub(super) fn is_done(&self) -> bool {
        self.pos == 0 && self.used == 64
    }
}

/// Reads a stream forward, least significant bits first.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    src: &'a [u8],
    bit: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(src: &'a [u8]) -> Self {
        Self { src, bit: 0 }
    }

    /// Returns the next `n` bits (at most 16) without consuming them; zeros past the end.
    pub(super) fn peek(&self, n: u32) -> u32 {
        let byte = |i: usize| u32::from(self.src.get(self.bit / 8 + i).copied().unwrap_or(0));
        let word = byte(0) | byte(1) << 8 | byte(2) << 16;
        (word >> (self.bit % 8)) & ((1 << n) - 1)
    }

    /// Consumes `n` bits.
    pub(super) fn skip(&mut self, n: u32) {
        self.bit += n as usize;
    }

    /// The bytes after the last bit consumed, from the next whole byte on.
    ///
    /// # Errors
    /// Fails if more bits were consumed than there are.
    pub(super) fn rest(&self, what: &'static str) -> Result<&'a [u8]> {
        self.src.get(self.bit.div_ceil(8)..).ok_or_else(|| Error::corrupt("the distribution runs past the end", what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reverse_bit_reader_reads_from_the_end_to_the_start() {
        for len in 1..40_usize {
            let src: Vec<u8> = (1..=len as u8).map(|i| i.wrapping_mul(73) | 1).collect();
            let bits: Vec<u64> =
                src.iter().rev().flat_map(|b| (0..8).rev().map(move |i| u64::from(b >> i & 1))).collect();
            let mut want = bits.iter().copied().skip_while(|&b| b == 0).skip(1);
            let mut back = ReverseBitReader::new(&src, "x").unwrap();
            let mut n = 0;
            let mut left = want.clone().count();
            while left > 0 {
                n = (n * 7 + 5) % 20;
                let take = n.min(left);
                back.refill();
                let v = want.by_ref().take(take).fold(0, |v, b| v << 1 | b);
                assert_eq!(back.read(take as u32), v, "len {len}");
                left -= take;
            }
            back.refill();
            assert!(back.is_done() && !back.is_overread());
            back.skip(1);
            back.refill();
            assert!(back.is_overread() && !back.is_done());
            back.refill();
            assert!(back.is_overread());
        }
        assert!(ReverseBitReader::new(&[], "x").is_err() && ReverseBitReader::new(&[1, 0], "x").is_err());
    }
}
