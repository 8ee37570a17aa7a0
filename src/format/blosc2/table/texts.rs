//! Values of any length of consecutive rows, one after another.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::account::Account;
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Result};

use super::room::Room;

/// Values, each of any length.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) data: Vec<u8>,
    /// Where each value ends.
    pub(super) ends: Vec<usize>,
    /// Whether each is a value: 1, or 0 if it is missing.
    pub(super) not_null: Vec<u8>,
    room: Room,
}

impl Texts {
    /// Room for at most `limit` bytes, which are charged to `account`.
    pub(super) fn within(limit: u64, account: &Account) -> Self {
        let room = Room::within(limit, account);
        Self { data: Vec::new(), ends: Vec::new(), not_null: Vec::new(), room }
    }

    /// Charges room for `more` bytes.
    ///
    /// # Errors
    /// As [`Room::hold`].
    pub(super) fn reserve(&mut self, more: u64) -> Result<()> {
        self.room.hold(to_u64(self.data.len()).saturating_add(more), "text")
    }

    /// Adds a value, or that one is missing.
    ///
    /// # Errors
    /// As [`Texts::reserve`].
    pub(super) fn push(&mut self, value: Option<&[u8]>) -> Result<()> {
        let bytes = value.unwrap_or_default();
        self.reserve(to_u64(bytes.len()))?;
        self.data.extend_from_slice(bytes);
        self.ends.push(self.data.len());
        self.not_null.push(value.is_some().into());
        Ok(())
    }

    /// The values.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| self.data.get(start..end).unwrap_or_default())
    }

    /// Fails unless each value is UTF-8.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = || Error::corrupt("not UTF-8", "text");
        let text = std::str::from_utf8(&self.data).map_err(|_| wrong())?;
        if self.ends.iter().all(|&end| text.is_char_boundary(end)) { Ok(()) } else { Err(wrong()) }
    }

    /// Adds the text in `element`, of 4 bytes for each character, up to the zeros at its end.
    pub(super) fn push_utf32(&mut self, element: &[u8], is_big_endian: bool) -> Result<()> {
        let (units, _) = element.as_chunks::<4>();
        let from = if is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let len = units.iter().rposition(|unit| *unit != [0; 4]).map_or(0, |last| last.saturating_add(1));
        let wrong = |unit| Error::corrupt(format!("no character has the number {unit:#x}"), "text");
        let mut text = String::new();
        for unit in units.iter().take(len).map(|&unit| from(unit)) {
            text.push(char::from_u32(unit).ok_or_else(|| wrong(unit))?);
        }
        self.push(Some(text.as_bytes()))
    }

    /// Characters of the longest value.
    pub(super) fn longest(&self) -> u64 {
        let chars = |text: &[u8]| text.iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
        to_u64(self.iter().map(chars).max().unwrap_or(0))
    }

    /// Fills `dst` with the values as text of `width` characters of 4 bytes each.
    pub(super) fn to_utf32(&self, width: u64, dst: &mut [u8]) -> Result<()> {
        let len = to_usize(width.saturating_mul(4).max(1), "text")?;
        for (text, element) in self.iter().zip(dst.chunks_mut(len)) {
            let text = std::str::from_utf8(text).map_err(|_| Error::corrupt("not UTF-8", "text"))?;
            let (units, _) = element.as_chunks_mut::<4>();
            let mut chars = text.chars();
            for unit in units {
                *unit = chars.next().map_or([0; 4], |c| u32::from(c).to_le_bytes());
            }
            if chars.next().is_some() {
                return Err(Error::corrupt("longer than before", "text"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account::new(8 << 20, 0)
    }

    #[test]
    fn text_becomes_utf32_and_back() {
        let mut texts = Texts::within(100, &account());
        for text in ["", "ab", "\u{e9}\u{1f600}z"] {
            texts.push(Some(text.as_bytes())).unwrap();
        }
        texts.push(None).unwrap();
        texts.check().unwrap();
        assert_eq!((texts.longest(), &*texts.not_null), (3, &[1, 1, 1, 0][..]));
        let mut wide = vec![0xff; 4 * 12];
        texts.to_utf32(3, &mut wide).unwrap();
        let mut back = Texts::within(100, &account());
        wide.chunks(12).try_for_each(|element| back.push_utf32(element, false)).unwrap();
        assert!(back.data == texts.data && back.ends == texts.ends);
        assert!(texts.to_utf32(2, &mut wide).is_err());
    }

    #[test]
    fn bytes_that_are_no_text_are_errors() {
        let mut texts = Texts::within(4, &account());
        texts.push(Some(b"\xc3")).unwrap();
        texts.push(Some(b"\xa9")).unwrap();
        assert!(texts.check().is_err(), "a character in two values");
        assert!(texts.push(Some(b"abc")).is_err(), "beyond the limit");
        assert!(texts.push_utf32(&[0, 0xd8, 0, 0], false).is_err(), "half of a pair");
        let account = account();
        let mut texts = Texts::within(u64::MAX, &account);
        texts.push(Some(&[b'a'; 1000])).unwrap();
        assert!(account.memory().used() > 1000 && texts.reserve(3 << 20).is_err(), "beyond the account");
        drop(texts);
        assert_eq!(account.memory().used(), 0);
    }
}
