//! The frames of a file, as their headers describe them.
//!
//! Reference: sections 1, 2.2, 5 (skippable frames, seek tables).
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use crate::bytes::FileOffset;
use crate::error::{Error, Kind, Result};

use super::header::{Generation, Header};

/// Bytes of a piece of a long frame; maximum bytes of a piece of several small frames.
pub const PIECE: u64 = 1 << 20;
/// A frame that may decode to more is long.
pub(super) const LONG: u64 = 4 << 20;
/// A frame is also long if its stored size is over this multiple of its content plus this many bytes: then most stored
/// bytes produce no content.
const HOLLOW: (u64, u64) = (8, 64 << 10);

/// A frame with content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Where it starts.
    pub at: FileOffset,
    /// Stored size.
    pub stored: u64,
    /// Its header.
    pub header: Header,
    /// Where its first block starts.
    pub blocks_at: FileOffset,
    /// Bytes of content, if the frame or all of its blocks state it.
    pub content: Option<u64>,
    /// Maximum bytes of content that its blocks can produce.
    pub bound: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The checksum at its end: 22 bits in 0.7, 32 in modern frames.
    pub checksum: Option<u32>,
    /// The seek table's checksum of its content, if there is one.
    pub seek_checksum: Option<SeekChecksum>,
    /// Bytes of content according to the seek table, if there is one.
    pub seek_content: Option<u32>,
    /// Whether the file ends inside it: its fields then cover the blocks that are complete.
    pub is_cut: bool,
    /// Whether only its row of the seek table was read: then the header and the fields derived from the blocks are
    /// unknown.
    pub is_listed: bool,
}

impl Frame {
    /// Whether it is decoded piece by piece, and read from the file in parts: it is large, decoded or stored.
    pub(super) fn is_long(&self) -> bool {
        let content = self.content.unwrap_or(self.bound).min(self.bound);
        // libzstd does not decode part of a frame at once.
        self.is_cut
            || content > LONG
            || self.stored > content.saturating_mul(HOLLOW.0).saturating_add(HOLLOW.1).min(2 * LONG)
    }

    /// Whether its content has a checksum, its own or the seek table's.
    pub(super) fn has_checksum(&self) -> bool {
        self.checksum.is_some() || self.seek_checksum.is_some()
    }

    /// The seek table's checksum, if served content must match it. A checksum of the frame's own takes precedence.
    pub fn served_checksum(&self) -> Option<&SeekChecksum> {
        self.seek_checksum.as_ref().filter(|_| self.checksum.is_none())
    }

    /// The seek table's checksum, unless the frame's own is equal: in modern frames both are the low half of the XXH64
    /// of the content.
    pub fn checksum_to_verify(&self) -> Option<&SeekChecksum> {
        let own = self.checksum.filter(|_| self.header.generation == Generation::Modern);
        self.seek_checksum.as_ref().filter(|listed| own != Some(listed.stored))
    }
}

/// The history that `frame` needs, at most `window` bytes. A window larger than the frame's blocks can fill is not
/// allocated in full.
///
/// # Errors
/// Fails if the frame needs more.
pub(super) fn needed(frame: &Frame, window: u64) -> Result<u64> {
    let needed = frame.header.window.min(frame.bound);
    if needed <= window {
        return Ok(needed);
    }
    let (needed, window) = (needed.div_ceil(1 << 20), window >> 20);
    let why = format!("a window of {needed} MiB, {window} MiB are allowed; give -o window={needed}M");
    Err(Error::unsupported(why, "window size").at(frame.at.plus(4)))
}

/// The end of a file that is incomplete.
#[derive(Debug, Clone)]
pub struct Cut {
    /// Names the part that ends early.
    pub error: Error,
    /// Whether the last frame is the one that ends early.
    pub is_frame: bool,
    /// Bytes of content that it states.
    pub content: Option<u64>,
}

/// A skippable frame.
#[derive(Debug, Clone, Copy)]
pub struct Skippable {
    /// Where it starts; its user data starts 8 bytes later.
    pub at: FileOffset,
    /// The last hexadecimal digit of its magic number.
    pub nibble: u8,
    /// Bytes of user data.
    pub len: u64,
}

impl Skippable {
    /// Where the user data starts.
    pub fn data_at(&self) -> FileOffset {
        self.at.plus(8)
    }
}

/// A frame's content checksum in a seek table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekChecksum {
    /// The low half of the XXH64 of the content.
    pub stored: u32,
    /// Its offset in the file.
    pub at: FileOffset,
}

impl SeekChecksum {
    /// Verifies it against the XXH64 of the content.
    ///
    /// # Errors
    /// [`Kind::Checksum`] if it differs.
    pub fn check(&self, hash: u64) -> Result<()> {
        let (stored, computed) = (u64::from(self.stored), hash & 0xFFFF_FFFF);
        if stored == computed {
            return Ok(());
        }
        Err(Error::new(Kind::Checksum { stored, computed }, "seek table: checksum").at(self.at))
    }
}
