//! Generated text that is served as a file: kept in pieces charged to the account, so that `cache=` and `spill=` bound
//! it.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use serde_json::Value;

use crate::account::{Account, Buffer};
use crate::bytes::{to_u64, to_usize};
use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::text;

use super::{Blob, BlobRef, Content, Layout};

/// Bytes of a piece.
const PIECE: u64 = 1 << 20;

/// Text being written: full pieces in buffers of the account, and the start of the next one.
#[derive(Debug)]
pub struct Spool {
    account: Account,
    what: &'static str,
    most: u64,
    pieces: Vec<Buffer>,
    open: Vec<u8>,
}

impl Spool {
    /// An empty text of at most `most` bytes; `what` names it in errors.
    pub fn new(account: &Account, most: u64, what: &'static str) -> Self {
        Self { account: account.clone(), what, most, pieces: Vec::new(), open: Vec::new() }
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        to_u64(self.pieces.len()).saturating_mul(PIECE).saturating_add(to_u64(self.open.len()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// [`Kind::TooLarge`] beyond the limit; [`Kind::NoRoom`] if the account is exhausted.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        Limits::check(self.len().saturating_add(to_u64(bytes.len())), self.most, self.what)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = to_usize(PIECE, self.what)?.saturating_sub(self.open.len());
            let (head, tail) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            self.open.extend_from_slice(head);
            rest = tail;
            if to_u64(self.open.len()) == PIECE {
                self.pieces.push(self.account.buffer_of(&self.open, self.what)?);
                self.open.clear();
            }
        }
        Ok(())
    }

    /// Adds `value` as JSON on one line.
    ///
    /// # Errors
    /// As [`Spool::push`].
    pub fn json(&mut self, value: &Value) -> Result<()> {
        self.push(text::json_line(value).as_bytes())
    }

    /// The whole text, in memory.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        self.pieces.iter().for_each(|piece| all.extend_from_slice(piece));
        all.extend_from_slice(&self.open);
        all
    }

    /// Converts the text to file content; its charges are released when the last reference is dropped.
    pub fn content(self) -> Content {
        let last = Content::bytes(self.open);
        if self.pieces.is_empty() {
            return last;
        }
        Content::Join([Content::Blob(BlobRef::new(FullPieces(self.pieces))), last].into())
    }
}

/// The full pieces of a text.
struct FullPieces(Vec<Buffer>);

impl Blob for FullPieces {
    fn layout(&self) -> Result<Layout> {
        Ok(Layout::Uniform { len: to_u64(self.0.len()).saturating_mul(PIECE), piece: PIECE })
    }

    fn decode(&self, piece: u64, dst: &mut [u8]) -> Result<()> {
        let bytes = self.0.get(to_usize(piece, "piece")?).filter(|bytes| bytes.len() == dst.len());
        let bytes = bytes.ok_or_else(|| Error::new(Kind::NotFound, "piece"))?;
        dst.copy_from_slice(bytes);
        bytes.release(0..dst.len());
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn text_is_charged_by_the_piece_and_reads_back() {
        let text: Vec<u8> = (0..2_500_000_u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for (memory, spill) in [(4 << 20, 0), (1 << 20, 4 << 20)] {
            let account = Account::new(memory, spill);
            let mut spool = Spool::new(&account, 3_000_000, "text");
            text.chunks(777).for_each(|chunk| spool.push(chunk).unwrap());
            assert_eq!((spool.len(), spool.bytes() == text), (2_500_000, true));
            assert!(matches!(spool.push(&vec![0; 600_000]).unwrap_err().kind(), Kind::TooLarge { .. }));
            let peaks = account.peaks();
            assert_eq!(peaks.memory + peaks.disk, 2 << 20);
            let Content::Join(parts) = spool.content() else { panic!("one part") };
            let [Content::Blob(blob), Content::Bytes(rest)] = &*parts else { panic!("{parts:?}") };
            let mut piece = vec![0; 1 << 20];
            blob.decode(1, &mut piece).unwrap();
            assert!(piece == text[1 << 20..2 << 20] && **rest == text[2 << 20..]);
        }
        let account = Account::new(1 << 20, 0);
        let mut spool = Spool::new(&account, 1 << 30, "text");
        assert!(matches!(spool.push(&text).unwrap_err().kind(), Kind::NoRoom { .. }));
    }
}
