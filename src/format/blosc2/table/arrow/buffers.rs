//! The buffers of a column in a batch: bits, ends, bytes.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use super::message::aligned;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};

/// The buffers of a column in a batch, one after the other.
pub(super) struct Buffers<'a>(pub(super) &'a mut [u8]);

impl<'a> Buffers<'a> {
    /// The next buffer, of `len` bytes; clears it and what is behind it up to the next one.
    ///
    /// # Errors
    /// Fails if the batch is too short.
    pub(super) fn take(&mut self, len: u64) -> Result<&'a mut [u8]> {
        let (part, rest) = std::mem::take(&mut self.0)
            .split_at_mut_checked(to_usize(aligned(len), "buffer")?)
            .ok_or_else(|| Error::corrupt("longer than its batch", "buffer"))?;
        self.0 = rest;
        part.fill(0);
        Ok(part.get_mut(..to_usize(len, "buffer")?).unwrap_or_default())
    }
}

/// Sets the bits in `dst` for which `switches` is not 0.
pub(super) fn set_bits(dst: &mut [u8], switches: &[u8]) {
    for (byte, switches) in dst.iter_mut().zip(switches.chunks(8)) {
        *byte = switches.iter().rev().fold(0, |bits, &switch| bits << 1 | u8::from(switch != 0));
    }
}

/// Writes where each value ends, after a 0, in 8 bytes or else in 4.
pub(super) fn set_ends(dst: &mut [u8], ends: &[usize], is_large: bool) {
    let ends = std::iter::once(0).chain(ends.iter().copied());
    if is_large {
        let (dst, _) = dst.as_chunks_mut::<8>();
        dst.iter_mut().zip(ends).for_each(|(dst, end)| *dst = to_u64(end).to_le_bytes());
    } else {
        let (dst, _) = dst.as_chunks_mut::<4>();
        dst.iter_mut().zip(ends).for_each(|(dst, end)| *dst = u32::try_from(end).unwrap_or(u32::MAX).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn bits_come_lowest_first() {
        let mut dst = [0xff; 2];
        set_bits(&mut dst, &[1, 0, 0, 1, 0, 0, 0, 2, 5]);
        assert_eq!(dst, [0b1000_1001, 1]);
    }

    #[test]
    fn ends_follow_a_zero() {
        let (mut small, mut large) = ([1; 12], [1; 24]);
        set_ends(&mut small, &[2, 300], false);
        set_ends(&mut large, &[2, 300], true);
        assert_eq!(small, [0, 0, 0, 0, 2, 0, 0, 0, 44, 1, 0, 0]);
        assert_eq!(large[16..], [44, 1, 0, 0, 0, 0, 0, 0]);
    }
}
