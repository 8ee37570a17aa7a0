//! The errors of a stage, with their place in the file.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::account::{Account, decode_budget};
use crate::bytes::{FileOffset, to_u64};
use crate::error::{Error, Result};

use super::stream::{Bricks, ByteStream, Derivation, Setup};

/// Where to locate errors of a stage that carry no offset.
pub(super) struct ErrorContext {
    pub(super) label: String,
    pub(super) record: FileOffset,
    /// The fields of the configuration, and its offset.
    pub(super) config: (Vec<&'static str>, FileOffset),
    /// The ports that are stored, and their offsets.
    pub(super) segments: Vec<(&'static str, FileOffset)>,
}

impl ErrorContext {
    /// Adds an offset to `e`: the configuration for an error in one of its fields, else the segment of the named port,
    /// else the first segment that the stage reads, else the stage's record.
    pub(super) fn add_to(&self, e: Error) -> Error {
        if e.offset().is_some() {
            return e;
        }
        let (fields, config) = &self.config;
        let named = self.segments.iter().find(|(port, _)| e.what() == *port).or(self.segments.first());
        let at = if fields.iter().any(|field| e.what() == *field) { Some(*config) } else { named.map(|(_, at)| *at) };
        e.at(at.unwrap_or(self.record)).within(&self.label)
    }
}

/// The inverse of a stage; adds the stage and an offset to its errors.
pub(super) struct WithErrorContext {
    pub(super) inner: Arc<dyn ByteStream>,
    pub(super) context: Arc<ErrorContext>,
    /// Work of the stage and of its inputs.
    pub(super) setup: Setup,
    pub(super) account: Account,
}

impl WithErrorContext {
    /// Runs `read`, which fills `len` bytes.
    fn request(&self, len: usize, read: impl FnOnce() -> Result<()>) -> Result<()> {
        decode_budget::request(&self.account, to_u64(len), read).map_err(|e| self.context.add_to(e))
    }
}

/// Forwards methods without arguments to the field `inner`.
macro_rules! forward {
    ($($method:ident -> $result:ty),*) => {
        $(fn $method(&self) -> $result {
            self.inner.$method()
        })*
    };
}

impl ByteStream for WithErrorContext {
    forward!(len -> u64, unit -> u64, bricks -> Option<Bricks>, is_whole -> bool, is_stored -> bool);

    fn read(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        self.request(dst.len(), || self.inner.read(at, dst))
    }

    fn read_brick(&self, index: u64, dst: &mut [u8]) -> Result<()> {
        self.request(dst.len(), || self.inner.read_brick(index, dst))
    }

    fn setup(&self) -> Setup {
        self.setup
    }

    fn derivation(self: Arc<Self>) -> Option<Derivation> {
        Arc::clone(&self.inner).derivation()
    }
}
