//! Dispatches batches to the device and single pieces to the CPU, and reports the times.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::fallback::Fallback;
use super::fused::Fusing;
use super::plan::{Order, Plan};
use crate::bytes::to_u64;
use crate::error::Result;
use crate::format::fzm::stream::ByteStream;
use crate::gpu::Gpu;
use crate::gpu::scheduler::{Backend, Scheduler};

/// Target size of a device batch in bytes.
pub(super) const BATCH: u64 = 32 << 20;

/// Decodes a stream on a device, if there is one and it can.
pub struct Decoder {
    stream: Arc<dyn ByteStream>,
    order: Order,
    gpu: Arc<Gpu>,
    scheduler: Scheduler,
    plan: OnceLock<Option<Plan>>,
}

impl Decoder {
    /// For `stream`; its bytes are requested in `order`.
    pub fn new(stream: &Arc<dyn ByteStream>, order: Order, gpu: &Arc<Gpu>) -> Self {
        let (stream, gpu) = (Arc::clone(stream), Arc::clone(gpu));
        let scheduler = Scheduler::new(&gpu, stream.len());
        Self { stream, order, scheduler, gpu, plan: OnceLock::new() }
    }

    fn plan(&self) -> Option<&Plan> {
        self.plan.get_or_init(|| Plan::of(&self.stream, self.order, Fusing::Yes)).as_ref()
    }

    /// Pieces per batch, a multiple of `together`; pieces have `piece` bytes. 1 if the CPU should decode.
    pub fn batch(&self, piece: u64, together: u64) -> u64 {
        let pieces = pieces_per_batch(piece, together);
        if pieces > 1 && self.scheduler.wants(pieces.saturating_mul(piece)) && self.plan().is_some() {
            pieces
        } else {
            1
        }
    }

    /// Decodes one piece on the CPU with `decode`.
    ///
    /// # Errors
    /// As for `decode`.
    pub fn one(&self, dst: &mut [u8], decode: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let (bytes, start) = (to_u64(dst.len()), Instant::now());
        decode(dst)?;
        if self.gpu.is_possible() {
            self.scheduler.record(Backend::Cpu, bytes, start.elapsed());
        } else {
            self.gpu.count(Backend::Cpu, bytes);
        }
        Ok(())
    }

    /// Fills `pieces`, which are consecutive, with the bytes at `at`. Returns whether the device did it.
    pub fn many(&self, at: u64, pieces: &mut [&mut [u8]]) -> bool {
        if !self.gpu.is_possible() {
            return false;
        }
        let Some(plan) = self.plan() else { return false };
        let bytes = pieces.iter().map(|piece| to_u64(piece.len())).sum();
        // If decoding fails or panics, dropping the attempt records it.
        let Some((device, attempt)) = self.scheduler.device(bytes) else { return false };
        let start = Instant::now();
        match plan.decode(&*device, at, pieces) {
            Ok(()) => attempt.record(start.elapsed()),
            Err(Fallback::Device(error)) => {
                self.gpu.record_failure(&error);
                return false;
            }
            Err(Fallback::Invalid | Fallback::Unavailable) => return false,
        }
        true
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({:?} on {:?})", self.order, self.gpu)
    }
}

/// Pieces of `piece` bytes in about [`BATCH`] bytes, a multiple of `together`.
fn pieces_per_batch(piece: u64, together: u64) -> u64 {
    (BATCH / piece.max(1) / together).max(1).saturating_mul(together)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_32_mib_of_whole_groups_of_pieces() {
        for (piece, together, pieces) in [(1 << 20, 1, 32), (1 << 20, 5, 30), (100 << 20, 1, 1), (100 << 20, 3, 3)] {
            assert_eq!(pieces_per_batch(piece, together), pieces, "{piece} {together}");
        }
    }
}
