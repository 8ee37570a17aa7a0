//! The contract of device operations.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::fallback::OpResult;
use super::job::{DeviceJob, Span};
use crate::error::Kind;
use crate::format::fzm::inverse::Inverse;
use crate::format::fzm::stream::{ByteStream, Derivation};
use crate::gpu::Memory;

/// The inverse of one or several stages on a device.
///
/// Requested windows are not empty, start at a multiple of [`DeviceOp::block`], and end at one or at the end of the
/// stream.
pub(super) trait DeviceOp: Send + Sync {
    /// Bytes of an output block, at least 1. If at least the stream's length, the stream is decoded as a whole, once,
    /// and kept in device memory.
    fn block(&self) -> u64 {
        1
    }

    /// The range of the input that `window` depends on, within the input.
    ///
    /// # Errors
    /// Fails with [`Invalid`](super::fallback::Fallback::Invalid) if invalid input prevents computing it.
    fn needs(&self, window: &Range<u64>) -> OpResult<Range<u64>>;

    /// Whether any window needs the whole input. The input is then produced once and kept in device memory, with the
    /// result of [`DeviceOp::index`]; [`DeviceOp::needs`] is not called.
    fn is_whole(&self) -> bool {
        false
    }

    /// Builds an index of the whole input, to keep with it. A fault that it sets is found before the first window.
    ///
    /// # Errors
    /// As for [`DeviceOp::run`].
    fn index(&self, job: &mut DeviceJob, input: &Span) -> OpResult<Vec<Memory>> {
        let _ = (job, input);
        Ok(Vec::new())
    }

    /// Produces `window` from `input`: exactly the range of [`DeviceOp::needs`], or the whole input. `kept` is the
    /// result of [`DeviceOp::index`]. Returns at least the window.
    ///
    /// # Errors
    /// Fails with [`Device`](super::fallback::Fallback::Device) if the device fails, with
    /// [`Invalid`](super::fallback::Fallback::Invalid) if the host finds invalid input.
    fn run(&self, job: &mut DeviceJob, input: &Span, kept: &[Memory], window: Range<u64>) -> OpResult<Span>;
}

/// How `stream` is computed from its input; `None` if the start of the input shows otherwise.
pub(super) fn derivation(stream: &Arc<dyn ByteStream>) -> Option<Derivation> {
    let derivation = Arc::clone(stream).derivation()?;
    match &derivation.inverse {
        // The configuration does not tell chunks of 4-byte words from chunks of bytes; the chunks do.
        Inverse::Rze(rze) => match (rze.chunks)(0..0) {
            Err(e) if matches!(e.kind(), Kind::Unsupported(_)) => None,
            _ => Some(derivation),
        },
        _ => Some(derivation),
    }
}
