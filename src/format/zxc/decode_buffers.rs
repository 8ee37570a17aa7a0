//! Buffers for decoding blocks.
//!
//! Limits: they are charged while they are not in use, and freed if the account has no room.
#![forbid(unsafe_code)]
#![warn(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::sync::Weak;

use crate::account::{Account, Retained};
use crate::bytes::to_u64;

use super::dict::Dictionary;

/// Buffers for decoding, reused; one set for each decoding thread.
#[derive(Debug, Default)]
pub(super) struct DecodeBuffers {
    charge: Retained,
    /// The stored block, and padding.
    pub(super) block: Vec<u8>,
    /// Decoded literals, and padding.
    pub(super) literals: Vec<u8>,
    pub(super) tokens: Vec<u8>,
    /// Offsets of version 4 in the form of later versions.
    pub(super) offsets: Vec<u8>,
    pub(super) merge: [Vec<u8>; 2],
    /// The content of a dictionary, followed by the decoded block.
    pub(super) joined: Vec<u8>,
    /// The dictionary at the front of `joined`.
    pub(super) joined_from: Weak<Dictionary>,
}

impl DecodeBuffers {
    /// Charges the buffers to `account` while they are not in use; frees them if that fails.
    pub(super) fn charge_idle(&mut self, account: &Account) {
        let Self { block, literals, tokens, offsets, merge: [a, b], joined, .. } = self;
        let size =
            [block, literals, tokens, offsets, a, b, joined].iter().map(|buffer| to_u64(buffer.capacity())).sum();
        if !self.charge.cover(account, size, "decoder") {
            *self = Self::default();
        }
    }
}
