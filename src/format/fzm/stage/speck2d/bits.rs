//! A cursor over the bits of a stream, the lowest bit of a byte first.
#![forbid(unsafe_code)]

use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};
use crate::format::fzm::stream::ByteStream;

/// Bytes that a cursor reads at a time.
const BATCH: u64 = 4096;

/// The next bit of a stream, and the bits read ahead.
pub(super) struct Bits<'a> {
    stream: &'a dyn ByteStream,
    what: &'static str,
    /// Offset of the first byte that is not in `bytes`, and the offset up to which it reads.
    next: u64,
    stop: u64,
    bytes: Vec<u8>,
    /// Bytes of `bytes` that are in `word`.
    used: usize,
    /// The next bits; `have` of them are complete, and any above are right too, or zero.
    word: u64,
    have: u32,
    /// The position of the end, and the bits up to it.
    end: u64,
    left: u64,
}

impl<'a> Bits<'a> {
    /// The bits of `stream` from `start` to `end`, which are at most its length; `what` names them in errors.
    pub(super) fn new(stream: &'a dyn ByteStream, start: u64, end: u64, what: &'static str) -> Result<Self> {
        let left = end.saturating_sub(start);
        let mut bits = Self {
            stream,
            what,
            next: start / 8,
            stop: end.div_ceil(8),
            bytes: Vec::new(),
            used: 0,
            word: 0,
            have: 0,
            end,
            left: left.saturating_add(start % 8),
        };
        bits.take((start % 8) as u32)?;
        Ok(bits)
    }

    /// The position of the next bit.
    pub(super) fn position(&self) -> u64 {
        self.end - self.left
    }

    /// The number of zero bits before the next one bit, at most `most` (below 40); consumes all of them.
    ///
    /// # Errors
    /// Fails if there are more, or the bits end.
    #[inline]
    pub(super) fn zeros(&mut self, most: u32) -> Result<u32> {
        if self.have < 41 {
            self.fill()?;
        }
        let zeros = self.word.trailing_zeros();
        if u64::from(zeros) >= self.left {
            return Err(self.ended());
        }
        if zeros > most {
            let why = format!("more than {most} zero bits before bit {}", self.position() + u64::from(zeros));
            return Err(Error::corrupt(why, self.what));
        }
        self.skip(zeros + 1);
        Ok(zeros)
    }

    /// The next `count` bits (at most 32), the lowest first.
    ///
    /// # Errors
    /// Fails if the bits end.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> Result<u32> {
        if u64::from(count) > self.left {
            return Err(self.ended());
        }
        if self.have < count {
            self.fill()?;
        }
        let bits = self.word & ((1 << count) - 1);
        self.skip(count);
        Ok(bits as u32)
    }

    /// Skips at most 41 bits that are in `word`.
    #[inline]
    fn skip(&mut self, count: u32) {
        self.word >>= count;
        self.have = self.have.saturating_sub(count);
        self.left = self.left.saturating_sub(count.into());
    }

    /// Loads at least 56 bits, or as many as there are.
    #[inline]
    fn fill(&mut self) -> Result<()> {
        if let Some(bytes) = self.bytes.get(self.used..).and_then(<[u8]>::first_chunk) {
            self.word |= u64::from_le_bytes(*bytes) << self.have;
            let more = (63 - self.have) / 8;
            self.used += more as usize;
            self.have += 8 * more;
            return Ok(());
        }
        self.fill_slowly()
    }

    #[cold]
    fn fill_slowly(&mut self) -> Result<()> {
        while self.have <= 56 {
            if self.used == self.bytes.len() {
                let n = BATCH.min(self.stop.saturating_sub(self.next));
                if n == 0 {
                    break;
                }
                self.bytes.resize(to_usize(n, self.what)?, 0);
                self.stream.read(self.next, &mut self.bytes)?;
                self.next += to_u64(self.bytes.len());
                self.used = 0;
            }
            let byte = self.bytes.get(self.used).copied().unwrap_or_default();
            self.word |= u64::from(byte) << self.have;
            self.used += 1;
            self.have += 8;
        }
        Ok(())
    }

    #[cold]
    fn ended(&self) -> Error {
        Error::corrupt(format!("the bits end at bit {}", self.end), self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::fzm::stage::testing::{Memory, Random};

    #[test]
    fn bits_are_read_from_any_place_to_any_place() {
        let bytes = Random(3).bytes(10_000);
        let bit = |at: u64| u32::from(bytes[at as usize / 8] >> (at % 8) & 1);
        let stream = Memory(bytes.clone());
        for (start, end) in [(0, 80_000), (7, 79_999), (32_768, 32_769), (65_533, 70_000)] {
            let mut bits = Bits::new(&stream, start, end, "x").unwrap();
            let (mut at, mut random) = (start, Random(start + 1));
            while bits.position() < end {
                assert_eq!(bits.position(), at);
                let n = (random.below(33) as u32).min((end - at) as u32);
                let want = (0..n).fold(0, |sum, k| sum | bit(at + u64::from(k)) << k);
                assert_eq!(bits.take(n).unwrap(), want, "{n} bits at {at}");
                at += u64::from(n);
            }
            assert!(bits.take(1).is_err() && bits.zeros(3).is_err());
        }
        let mut bits = Bits::new(&stream, 3, 80_000, "x").unwrap();
        let mut at = 3;
        for one in (3..80_000).filter(|&at| bit(at) == 1) {
            assert_eq!(u64::from(bits.zeros(39).unwrap()), one - at);
            at = one + 1;
        }
    }

    #[test]
    fn more_zeros_than_allowed_and_an_end_are_refused() {
        let stream = Memory(vec![0, 0, 0, 0, 0x80, 0x80]);
        let zeros =
            |start, end, most| Bits::new(&stream, start, end, "x").unwrap().zeros(most).map_err(|e| e.to_string());
        assert_eq!(zeros(6, 48, 33), Ok(33));
        assert_eq!(zeros(6, 48, 32), Err("more than 32 zero bits before bit 39 (x)".into()));
        assert_eq!(zeros(40, 47, 32), Err("the bits end at bit 47 (x)".into()));
        assert_eq!(zeros(40, 48, 32), Ok(7));
    }
}
