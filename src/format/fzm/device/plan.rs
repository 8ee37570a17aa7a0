//! Decodes a stream on a device, batch by batch.
//!
//! A batch is a window of the stream. It determines, stage by stage, the windows of the inputs. Bytes read by the host
//! are uploaded, and all launches go into one queue, so that only the result is copied back. Streams needed as a whole
//! are produced by the first batch and kept.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::fallback::{Fallback, OpResult};
use super::fused::{self, Fusing};
use super::job::{DeviceJob, Span};
use super::op::{DeviceOp, derivation};
use crate::bytes::{to_u64, to_usize};
use crate::format::fzm::inverse::Inverse;
use crate::format::fzm::stream::{ByteStream, Derivation};
use crate::gpu::{Device, DeviceError, Memory, Queue};

/// How a device produces a stream.
pub struct Plan(PlanNode);

impl Plan {
    /// The plan for `stream` in `order`; `None` if it has no bricks, or a stage between it and the stored bytes has no
    /// kernel: once the CPU decodes that stage, the rest costs nothing.
    pub fn of(stream: &Arc<dyn ByteStream>, order: Order, fusing: Fusing) -> Option<Self> {
        let derivation = derivation(stream)?;
        let node = match order {
            Order::Bytes => PlanNode::derived(stream.len(), in_bytes(derivation), fusing),
            Order::Bricks { len } if has_bricks(&derivation.inverse) => PlanNode::derived(len, derivation, fusing),
            Order::Bricks { .. } => return None,
        };
        node.is_complete().then_some(Self(node))
    }

    /// Fills `pieces`, which are consecutive, with the bytes at `at`.
    ///
    /// # Errors
    /// Fails with the reason why the CPU must do it; the content of the pieces is then unspecified.
    pub fn decode(&self, device: &dyn Device, at: u64, pieces: &mut [&mut [u8]]) -> Result<(), Fallback> {
        let len = pieces.iter().map(|piece| to_u64(piece.len())).sum::<u64>();
        let window = at..at.checked_add(len).filter(|&end| end <= self.0.len).ok_or(Fallback::Invalid)?;
        let mut queue = device.queue()?;
        let mut job = DeviceJob::new(&mut *queue)?;
        job.memory_limit = device.memory_limit();
        let span = self.0.window(&mut job, window)?;
        job.download(Some(&span), pieces)
    }
}

impl Plan {
    /// The plan for all of `stream` in its order, even if the device only gets its bytes.
    pub(super) fn whole(stream: &Arc<dyn ByteStream>) -> Self {
        Self(PlanNode::of(Arc::clone(stream), Fusing::Yes))
    }

    /// Decodes `window` to its place in `target`, where it stays.
    ///
    /// # Errors
    /// As [`Plan::decode`].
    pub(super) fn decode_to(
        &self,
        device: &dyn Device,
        queue: &mut dyn Queue,
        target: &Span,
        window: Range<u64>,
    ) -> OpResult {
        let mut job = DeviceJob::new(queue)?;
        job.memory_limit = device.memory_limit();
        let span = self.0.window(&mut job, window.clone())?;
        job.copy(&span, &target.clone().part(window)?)?;
        job.check()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({} bytes)", self.0.len)
    }
}

/// The order in which the bytes of a stream are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// In stream order.
    Bytes,
    /// Brick by brick.
    Bricks {
        /// Total bytes of all bricks.
        len: u64,
    },
}

/// A stream in the chain.
struct PlanNode {
    len: u64,
    step: DeviceStep,
    /// The whole stream, if it is kept.
    whole: Memo<Span>,
}

enum DeviceStep {
    /// Read by the host and uploaded.
    Host(Arc<dyn ByteStream>),
    /// Produced on the device.
    Op { op: Box<dyn DeviceOp>, input: Box<PlanNode>, index: Memo<Vec<Memory>> },
}

impl PlanNode {
    fn of(stream: Arc<dyn ByteStream>, fusing: Fusing) -> Self {
        let len = stream.len();
        match derivation(&stream) {
            None => Self { len, step: DeviceStep::Host(stream), whole: Memo::default() },
            Some(derivation) => Self::derived(len, in_bytes(derivation), fusing),
        }
    }

    fn derived(len: u64, derivation: Derivation, fusing: Fusing) -> Self {
        let fused = if fusing == Fusing::Yes { fused::fuse(&derivation) } else { None };
        let (op, input) = fused.unwrap_or_else(|| (op(derivation.inverse), derivation.input));
        let input = Box::new(Self::of(input, fusing));
        Self { len, step: DeviceStep::Op { op, input, index: Memo::default() }, whole: Memo::default() }
    }

    /// Whether all that the host reads is stored.
    fn is_complete(&self) -> bool {
        match &self.step {
            DeviceStep::Host(stream) => is_read(&**stream),
            DeviceStep::Op { input, .. } => input.is_complete(),
        }
    }

    /// The bytes `range` in device memory.
    fn window(&self, job: &mut DeviceJob, range: Range<u64>) -> OpResult<Span> {
        if range.is_empty() {
            return job.span(range);
        }
        let DeviceStep::Op { op, .. } = &self.step else { return self.make(job, range) };
        let block = op.block().max(1);
        if block >= self.len || block > LARGEST {
            return self.whole(job)?.part(range);
        }
        let end = range.end.checked_next_multiple_of(block).unwrap_or(self.len).min(self.len);
        let span = self.make(job, range.start / block * block..end)?;
        span.part(range)
    }

    /// The whole stream; the first caller produces it.
    fn whole(&self, job: &mut DeviceJob) -> OpResult<Span> {
        self.whole.get(job, |job| {
            // Leave at least half of the memory for batches.
            if self.len > job.memory_limit / 2 {
                return Err(DeviceError::OutOfMemory { need: self.len }.into());
            }
            if self.len == 0 { job.span(0..0) } else { self.make(job, 0..self.len) }
        })
    }

    /// Produces a range of whole blocks.
    fn make(&self, job: &mut DeviceJob, range: Range<u64>) -> OpResult<Span> {
        match &self.step {
            DeviceStep::Host(stream) => upload(job, &**stream, range),
            DeviceStep::Op { op, input, index } => {
                if op.is_whole() {
                    let whole = input.whole(job)?;
                    let kept = index.get(job, |job| op.index(job, &whole))?;
                    return op.run(job, &whole, &kept, range);
                }
                let needs = op.needs(&range)?;
                if needs.start > needs.end || needs.end > input.len {
                    return Err(Fallback::Invalid);
                }
                let window = input.window(job, needs)?;
                let window = job.aligned(window)?;
                op.run(job, &window, &[], range)
            }
        }
    }
}

/// Whether reading `stream` decodes nothing.
pub(in crate::format::fzm) fn is_read(stream: &dyn ByteStream) -> bool {
    stream.is_stored() || stream.is_empty()
}

/// Whether the output of `inverse` can be produced brick by brick.
fn has_bricks(inverse: &Inverse) -> bool {
    match inverse {
        Inverse::LorenzoQuant(own) => own.brick.is_some(),
        Inverse::TiledLorenzo(own) => own.brick.is_some(),
        _ => false,
    }
}

/// The same derivation, in stream order.
fn in_bytes(mut derivation: Derivation) -> Derivation {
    match &mut derivation.inverse {
        Inverse::LorenzoQuant(own) => own.brick = None,
        Inverse::TiledLorenzo(own) => own.brick = None,
        _ => {}
    }
    derivation
}

/// The operation for the inverse of one stage.
fn op(inverse: Inverse) -> Box<dyn DeviceOp> {
    match inverse {
        Inverse::Bitshuffle(op) => Box::new(op),
        Inverse::SignCoding(op) => Box::new(op),
        Inverse::Bitpack(op) => Box::new(op),
        Inverse::Difference(op) => Box::new(op),
        Inverse::Lorenzo(op) => Box::new(op),
        Inverse::LorenzoQuant(op) => Box::new(op),
        Inverse::Quantizer(op) => Box::new(op),
        Inverse::Rle(op) => Box::new(op),
        Inverse::Rze(op) => Box::new(op),
        Inverse::Huffman(op) => Box::new(op),
        Inverse::AdaptiveBitpack(op) => Box::new(op),
        Inverse::BitplaneRze(op) => Box::new(op),
        Inverse::TiledLorenzo(op) => Box::new(op),
        Inverse::Prefix(op) => Box::new(op),
    }
}

/// Streams with larger blocks are produced as a whole, rather than one block again for every window in it.
const LARGEST: u64 = 64 << 20;

/// Bytes that the host reads and uploads at a time.
const STRIDE: u64 = 1 << 20;

/// Reads `range` of `stream` and uploads it.
fn upload(job: &mut DeviceJob, stream: &dyn ByteStream, range: Range<u64>) -> OpResult<Span> {
    let span = job.span(range.clone())?;
    let mut buffer = vec![0; to_usize(STRIDE.min(span.len()), "window")?];
    let mut at = range.start;
    while at < range.end {
        let n = STRIDE.min(range.end - at);
        let bytes = buffer.get_mut(..to_usize(n, "window")?).ok_or(Fallback::Invalid)?;
        stream.read(at, bytes)?;
        job.write(&span, at - range.start, bytes)?;
        at += n;
    }
    Ok(span)
}

/// A value made once and kept in device memory, or the fact that its input is invalid.
struct Memo<T>(Mutex<Option<OpResult<T>>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Memo<T> {
    /// The value, made by `make` on first use. It is complete and checked before other threads see it.
    fn get(&self, job: &mut DeviceJob, make: impl FnOnce(&mut DeviceJob) -> OpResult<T>) -> OpResult<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = &*kept {
            return kept.clone();
        }
        let made = make(job).and_then(|made| job.check().map(|()| made));
        // Other failures are not kept: memory may be available later.
        if matches!(made, Ok(_) | Err(Fallback::Invalid)) {
            *kept = Some(made.clone());
        }
        made
    }
}
