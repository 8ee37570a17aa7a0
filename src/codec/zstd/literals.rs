//! The header of the literals section of a modern block.
//!
//! Reference: section 3 (RFC 8878, 3.1.1.3.1).
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

/// A literals section, not decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Literals<'a> {
    pub(super) kind: LiteralsKind,
    /// The size of the literals.
    pub(super) regenerated: usize,
    /// Whether they are in four Huffman streams rather than one.
    is_four: bool,
    /// The stored bytes after the header.
    stored: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiteralsKind {
    Raw,
    Run,
    /// With a Huffman tree of its own.
    Compressed,
    /// With the tree of an earlier block.
    Treeless,
}

fn short() -> Error {
    Error::corrupt("runs past the end of the block", "literals section")
}

impl<'a> Literals<'a> {
    /// The section at the start of `src`, and the bytes after it.
    ///
    /// # Errors
    /// Fails if it extends past the end of the block.
    pub(super) fn read(src: &'a [u8]) -> Result<(Self, &'a [u8])> {
        let first = *src.first().ok_or_else(short)?;
        let kind = match first & 3 {
            0 => LiteralsKind::Raw,
            1 => LiteralsKind::Run,
            2 => LiteralsKind::Compressed,
            _ => LiteralsKind::Treeless,
        };
        let is_plain = matches!(kind, LiteralsKind::Raw | LiteralsKind::Run);
        // Size of the header, bits before the sizes, bits of each size.
        let (len, skip, bits) = match (is_plain, first >> 2 & 3) {
            (true, 0 | 2) => (1, 3, 5),
            (true, 1) => (2, 4, 12),
            (true, _) => (3, 4, 20),
            (false, 0 | 1) => (3, 4, 10),
            (false, 2) => (4, 4, 14),
            (false, _) => (5, 4, 18),
        };
        let (header, rest) = src.split_at_checked(len).ok_or_else(short)?;
        let word = header.iter().rev().fold(0_u64, |word, &byte| word << 8 | u64::from(byte)) >> skip;
        let mask = (1 << bits) - 1;
        let regenerated = (word & mask) as usize;
        let stored = match kind {
            LiteralsKind::Raw => regenerated,
            LiteralsKind::Run => 1,
            LiteralsKind::Compressed | LiteralsKind::Treeless => (word >> bits & mask) as usize,
        };
        let (stored, rest) = rest.split_at_checked(stored).ok_or_else(short)?;
        Ok((Self { kind, regenerated, is_four: first >> 2 & 3 != 0, stored }, rest))
    }

    /// The literals of a section of kind [`LiteralsKind::Raw`], the byte of one of kind [`LiteralsKind::Run`].
    pub(super) fn stored(&self) -> &'a [u8] {
        self.stored
    }

    /// Whether they are in four Huffman streams rather than one.
    pub(super) fn is_four(&self) -> bool {
        self.is_four
    }

    /// The Huffman streams, after the tree.
    ///
    /// # Errors
    /// As [`Literals::tree`].
    pub(super) fn streams(&self) -> Result<&'a [u8]> {
        let tree = if self.kind == LiteralsKind::Compressed { self.tree()?.len() } else { 0 };
        Ok(self.stored.get(tree..).unwrap_or_default())
    }

    /// The description of the Huffman tree of a section of kind [`LiteralsKind::Compressed`].
    ///
    /// # Errors
    /// Fails if it extends past the end of the section.
    pub(super) fn tree(&self) -> Result<&'a [u8]> {
        // Compressed weights, or that many weights of four bits after 127.
        let len = match *self.stored.first().ok_or_else(short)? {
            len @ 0..128 => usize::from(len),
            count => (usize::from(count) - 127).div_ceil(2),
        };
        self.stored.get(..=len).ok_or_else(short)
    }
}
