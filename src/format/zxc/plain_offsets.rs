//! Match offsets of version 4, which stores them as they are; later versions store them less one.
//!
//! Reference: section 12 of the ZXC reference.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use super::decode_error::DecodeError;

const ZERO: DecodeError = DecodeError::new("reaches back to itself", "match offset");

/// Copies `items` of `SIZE` bytes to `buffer` with their offsets in the form of later versions. The offset is the first
/// two bytes of an item, or the only one.
///
/// # Errors
/// Fails if an offset is 0.
pub(super) fn less_one<'a, const SIZE: usize>(items: &[u8], buffer: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
    buffer.clear();
    buffer.extend_from_slice(items);
    for (index, item) in buffer.as_chunks_mut::<SIZE>().0.iter_mut().enumerate() {
        let (offset, _) = item.split_at_mut(SIZE.min(2));
        let plain = offset.iter().rev().fold(0_u16, |n, &byte| n << 8 | u16::from(byte));
        let less = plain.checked_sub(1).ok_or(ZERO.plus(index.saturating_mul(SIZE)))?;
        offset.iter_mut().zip(less.to_le_bytes()).for_each(|(byte, less)| *byte = less);
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_those_of_later_versions() {
        let mut buffer = vec![9];
        assert_eq!(less_one::<1>(&[1, 255], &mut buffer), Ok(&[0, 254][..]));
        assert_eq!(less_one::<2>(&[0, 1, 255, 255], &mut buffer), Ok(&[255, 0, 254, 255][..]));
        assert_eq!(less_one::<4>(&[1, 0, 7, 0], &mut buffer), Ok(&[0, 0, 7, 0][..]));
        assert_eq!(less_one::<4>(&[1, 0, 7, 8, 0, 0, 7, 8], &mut buffer), Err(ZERO.plus(4)));
    }
}
