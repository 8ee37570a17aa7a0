//! Buffers of evicted pieces, kept for the next decodes: their memory is already mapped.
//!
//! Bounded in bytes and in number; the oldest go first. A buffer holds the bytes of its last piece: a decode
//! overwrites all of them, or fails, and the buffer is dropped unread.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::bytes::to_u64;

/// Maximum bytes kept.
const MOST: u64 = 4 << 20;
/// Maximum number of buffers kept.
const COUNT: usize = 64;

/// Buffers that no piece uses.
#[derive(Default)]
pub(super) struct Spare {
    buffers: VecDeque<Vec<u8>>,
    bytes: u64,
}

impl Spare {
    /// Allocated bytes of all buffers.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a buffer is large enough for `len` bytes, and not much too large.
    pub(super) fn fits(buffer: &Vec<u8>, len: u64) -> bool {
        (len..=len.saturating_mul(2)).contains(&to_u64(buffer.capacity()))
    }

    /// Takes the most recently kept buffer that fits.
    pub(super) fn take(&mut self, len: u64) -> Option<Vec<u8>> {
        let i = self.buffers.iter().rposition(|buffer| Self::fits(buffer, len))?;
        let buffer = self.buffers.remove(i)?;
        self.bytes -= to_u64(buffer.capacity());
        Some(buffer)
    }

    /// Keeps a buffer; buffers beyond the limits go to `gone`.
    pub(super) fn keep(&mut self, buffer: Vec<u8>, gone: &mut Vec<Vec<u8>>) {
        self.bytes += to_u64(buffer.capacity());
        self.buffers.push_back(buffer);
        while self.bytes > MOST || self.buffers.len() > COUNT {
            let Some(oldest) = self.drop_one() else { break };
            gone.push(oldest);
        }
    }

    /// Takes the oldest buffer.
    pub(super) fn drop_one(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop_front()?;
        self.bytes -= to_u64(buffer.capacity());
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_taken_for_a_similar_size_only() {
        let mut spare = Spare::default();
        let mut gone = Vec::new();
        spare.keep(vec![1; 1000], &mut gone);
        spare.keep(vec![2; 5000], &mut gone);
        assert!(spare.take(1001).is_none() && spare.take(499).is_none() && spare.take(5001).is_none());
        assert_eq!(spare.take(600).map(|buffer| buffer.len()), Some(1000));
        assert!(spare.take(600).is_none() && gone.is_empty());
        assert_eq!(spare.bytes(), 5000);
    }

    #[test]
    fn the_limits_drop_the_oldest() {
        let (mut spare, mut gone) = (Spare::default(), Vec::new());
        (0..5_u8).for_each(|i| spare.keep(vec![i; 1 << 20], &mut gone));
        assert_eq!((spare.bytes(), gone.len(), gone[0][0]), (MOST, 1, 0));
        (0..100).for_each(|_| spare.keep(vec![0; 10], &mut gone));
        assert_eq!((spare.bytes(), spare.buffers.len()), (640, COUNT));
    }
}
