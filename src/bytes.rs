//! A checked cursor over the structure of a container.
//!
//! A cursor holds the unread rest of a slice and its offset in the container file. A read that does not fit fails with
//! the field's name and offset, and consumes nothing.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::error::{Error, Kind, Result};

pub use crate::offset::FileOffset;

/// `usize` as `u64`: lossless on every platform that this crate builds for.
#[allow(clippy::as_conversions, reason = "usize is at most 64 bits wide on every supported platform")]
pub const fn to_u64(n: usize) -> u64 {
    n as u64
}

/// Converts `n` to a length in memory.
///
/// # Errors
/// [`Kind::TooLarge`] if `n` does not fit in `usize`.
pub fn to_usize(n: u64, what: &'static str) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::new(Kind::TooLarge { value: n, limit: to_u64(usize::MAX) }, what))
}

/// The unread rest of a byte slice from the container, and its offset in the file.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    at: FileOffset,
}

macro_rules! getters {
    ($($name:ident $from:ident $ty:ty;)*) => {$(
        #[doc = concat!("The next field, a `", stringify!($ty), "`.")]
        ///
        /// # Errors
        /// [`Kind::Truncated`] if fewer bytes are left; nothing is consumed then.
        pub fn $name(&mut self, what: &'static str) -> Result<$ty> {
            Ok(<$ty>::$from(self.array(what)?))
        }
    )*};
}

impl<'a> Cursor<'a> {
    /// A cursor over `bytes`, which start at `at` in the container.
    pub const fn new(bytes: &'a [u8], at: FileOffset) -> Self {
        Self { rest: bytes, at }
    }

    /// The unread bytes.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The number of unread bytes.
    pub const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether all bytes were read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The offset of the next byte in the container.
    pub const fn at(&self) -> FileOffset {
        self.at
    }

    /// Consumes the next `len` bytes.
    ///
    /// # Errors
    /// [`Kind::Truncated`] if fewer bytes are left; nothing is consumed then.
    pub fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8]> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.truncated(len, what));
        };
        self.rest = rest;
        self.at = self.at.plus(to_u64(len));
        Ok(head)
    }

    /// Consumes the next `N` bytes.
    ///
    /// # Errors
    /// [`Kind::Truncated`] if fewer bytes are left; nothing is consumed then.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.truncated(N, what));
        };
        self.rest = rest;
        self.at = self.at.plus(to_u64(N));
        Ok(*head)
    }

    /// Consumes the next `len` bytes and returns a cursor over them.
    ///
    /// # Errors
    /// [`Kind::Truncated`] if fewer bytes are left; nothing is consumed then.
    pub fn sub(&mut self, len: usize, what: &'static str) -> Result<Self> {
        let at = self.at;
        Ok(Self { rest: self.take(len, what)?, at })
    }

    getters! {
        u8 from_le_bytes u8;
        i8 from_le_bytes i8;
        u16_le from_le_bytes u16;
        u32_le from_le_bytes u32;
        u64_le from_le_bytes u64;
        i16_le from_le_bytes i16;
        i32_le from_le_bytes i32;
        i64_le from_le_bytes i64;
        f32_le from_le_bytes f32;
        f64_le from_le_bytes f64;
        u16_be from_be_bytes u16;
        u32_be from_be_bytes u32;
        u64_be from_be_bytes u64;
    }

    fn truncated(&self, need: usize, what: &'static str) -> Error {
        Error::new(Kind::Truncated { need: to_u64(need), have: to_u64(self.rest.len()) }, what).at(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn getters_read_in_order_or_leave_the_cursor_alone() {
        let mut cur = Cursor::new(&[1, 2, 0, 3, 0, 0], FileOffset(0x10));
        assert_eq!(cur.u8("a").unwrap(), 1);
        assert_eq!(cur.u16_le("b").unwrap(), 2);
        let e = cur.u32_le("c").unwrap_err();
        assert_eq!(e.to_string(), "needs 4 bytes, 3 left (c, at byte 0x13)");
        assert_eq!(cur.take(3, "d").unwrap(), [3, 0, 0]);
        assert!(cur.is_empty());
        assert_eq!(cur.at(), FileOffset(0x16));
    }

    #[test]
    fn a_sub_cursor_knows_its_place_and_its_end() {
        let mut cur = Cursor::new(&[1, 2, 3, 4], FileOffset(8));
        let mut sub = cur.sub(2, "part").unwrap();
        assert_eq!((sub.at(), sub.len(), cur.at()), (FileOffset(8), 2, FileOffset(10)));
        assert!(sub.u32_le("x").is_err());
        assert!(cur.sub(3, "part").is_err());
    }
}
