//! The buffers of a decoder, reused from block to block.
//!
//! Limits: buffers of idle decoders are charged, and freed if they are large or the account has no room.
#![forbid(unsafe_code)]

use crate::account::{Account, Retained};
use crate::bytes::to_u64;
use crate::error::Result;
use crate::limits::zeroed;

use super::codec::Contexts;

/// Buffers of one decoder, reused from block to block.
#[derive(Debug, Default)]
pub(super) struct DecodeBuffers {
    pub(super) contexts: Contexts,
    /// Holds a block between two filters.
    pub(super) second: Vec<u8>,
    /// Holds a whole block if only a part is wanted.
    pub(super) whole: Vec<u8>,
    /// Holds stored bytes.
    pub(super) stored: Vec<u8>,
    charge: Retained,
}

/// Larger buffers are freed after use.
const KEPT: usize = 4 << 20;

impl DecodeBuffers {
    /// Charges the retained buffers to `account`; frees them if that fails.
    pub(super) fn charge_idle(&mut self, account: &Account) {
        for buffer in [&mut self.second, &mut self.whole, &mut self.stored] {
            if buffer.len() > KEPT {
                *buffer = Vec::new();
            }
        }
        let buffers = self.second.len() + self.whole.len() + self.stored.len();
        let size = to_u64(buffers + self.contexts.footprint());
        if !self.charge.cover(account, size, "decoder") {
            *self = Self::default();
        }
    }
}

/// `len` bytes of `buffer`, with unspecified content.
pub(super) fn sized<'a>(buffer: &'a mut Vec<u8>, len: usize, what: &'static str) -> Result<&'a mut [u8]> {
    if buffer.len() < len {
        // Allocate anew: growing would copy the old content.
        *buffer = Vec::new();
        *buffer = zeroed(to_u64(len), what)?;
    }
    Ok(&mut buffer[..len])
}
