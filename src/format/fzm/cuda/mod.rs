//! Inverses of stages on a device.
//!
//! Reference: section 10 of the FZM reference (independent units of each stage).
//!
//! A stream that a device can produce implements [`Stream::on_device`], which returns an [`Inverse`] and the stream it
//! reads. So a stream is a chain of inverses, ending at one that the host reads, usually a stored segment. Data that a
//! stage takes from the host besides its input (outliers, chunk offsets) it uploads itself, only for the window.
//!
//! [`Plan`] builds this chain for a stream and decodes batches with it; some chains are fused into one inverse.
//!
//! Adding a stage: one file in this folder with its `Inverse`, and `on_device` in its stream.
//!
//! Invariants: a kernel that finds invalid input sets the fault of its [`Job`], and never accesses memory outside its
//! buffers. The output of a job with a fault is discarded, and the CPU reports the error.
#![forbid(unsafe_code)]

mod bitshuffle;
mod decoder;
mod fused;
mod huffman;
mod lorenzo_quant;
mod plan;
mod quantizer;
mod recode;
mod rle;
mod rze;
mod sums;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::stream::Stream;
use crate::bytes::to_u64;
use crate::error::Error;
use crate::gpu::{Arg, Kernel, Memory, Queue, Trouble};

pub use bitshuffle::Bitshuffle;
pub use decoder::Decoder;
pub use fused::Fusing;
pub use huffman::{Huffman, Only};
pub use lorenzo_quant::LorenzoQuant;
pub use plan::{Order, Plan};
pub use quantizer::{Quantizer, Rule};
pub use recode::{Bitpack, Code, Recode};
pub use rle::Rle;
pub use rze::Rze;
pub use sums::{Difference, Lorenzo, Sums};

/// Why a window was not decoded on the device. The CPU decodes it, or reports the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The device is out of memory, or lost.
    Trouble(Trouble),
    /// The input is invalid, or too large for a launch.
    Broken,
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<Error> for Stop {
    /// The CPU will find the error again and report it.
    fn from(_: Error) -> Self {
        Self::Broken
    }
}

/// The result of device work.
pub type Run<T = ()> = std::result::Result<T, Stop>;

/// A stream as produced on a device.
pub struct Node {
    /// The inverse of the stage.
    pub inverse: Box<dyn Inverse>,
    /// Its input: the stream of the stage's first forward output.
    pub input: Arc<dyn Stream>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} bytes of input)", self.input.len())
    }
}

/// The inverse of a stage on a device.
///
/// Requested windows are not empty, start at a multiple of [`Inverse::block`], and end at one or at the end of the
/// stream.
pub trait Inverse: Any + Send + Sync {
    /// Bytes of an output block, at least 1. If at least the stream's length, the stream is decoded as a whole, once,
    /// and kept in device memory.
    fn block(&self) -> u64 {
        1
    }

    /// The range of the input that `window` depends on, within the input.
    ///
    /// # Errors
    /// Fails with [`Stop::Broken`] if invalid input prevents computing it.
    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>>;

    /// Whether any window needs the whole input. The input is then produced once and kept in device memory, with the
    /// result of [`Inverse::index`]; [`Inverse::needs`] is not called.
    fn is_whole(&self) -> bool {
        false
    }

    /// Builds an index of the whole input, to keep with it. A fault that it sets is found before the first window.
    ///
    /// # Errors
    /// As for [`Inverse::run`].
    fn index(&self, job: &mut Job, input: &Span) -> Run<Vec<Memory>> {
        let _ = (job, input);
        Ok(Vec::new())
    }

    /// Produces `window` from `input`: exactly the range of [`Inverse::needs`], or the whole input. `kept` is the
    /// result of [`Inverse::index`]. Returns at least the window.
    ///
    /// # Errors
    /// Fails with [`Stop::Trouble`] if the device fails, with [`Stop::Broken`] if the host finds invalid input.
    fn run(&self, job: &mut Job, input: &Span, kept: &[Memory], window: Range<u64>) -> Run<Span>;
}

/// A range of a stream in device memory. The first byte of an input is aligned to 16, and kernels may read (and ignore)
/// bytes after its end, up to the next multiple of 16.
#[derive(Debug, Clone)]
pub struct Span {
    memory: Memory,
    /// Offset of the range in the memory.
    at: u64,
    range: Range<u64>,
}

impl Span {
    /// `range` of a stream, at the start of `memory`.
    pub fn new(memory: Memory, range: Range<u64>) -> Self {
        Self { memory, at: 0, range }
    }

    /// The range of the stream.
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part for `range` of the stream; fails if it is outside.
    fn part(mut self, range: Range<u64>) -> Run<Self> {
        if range.start < self.range.start || range.end > self.range.end {
            return Err(Stop::Broken);
        }
        self.at += range.start - self.range.start;
        self.range = range;
        Ok(self)
    }

    /// A pointer to the first byte.
    pub fn arg(&self) -> Arg<'_> {
        self.arg_at(0)
    }

    /// A pointer to the byte at offset `at`, which the caller has checked.
    pub fn arg_at(&self, at: u64) -> Arg<'_> {
        Arg::Memory(&self.memory, self.at.saturating_add(at))
    }
}

/// The work for one window: a queue, and the fault that its kernels set.
pub struct Job<'a> {
    queue: &'a mut dyn Queue,
    /// Limit of device memory in bytes.
    room: u64,
    fault: Memory,
}

impl<'a> Job<'a> {
    /// A job without a fault.
    ///
    /// # Errors
    /// As for [`Queue::alloc`].
    pub fn new(queue: &'a mut dyn Queue) -> Run<Self> {
        let fault = queue.alloc(FAULT)?;
        queue.zero(&fault, 0..FAULT)?;
        Ok(Self { queue, room: u64::MAX, fault })
    }

    /// Allocates `len` bytes, uninitialized, aligned to 256, padded with zeros to a multiple of 16.
    ///
    /// # Errors
    /// As for [`Queue::alloc`].
    pub fn alloc(&mut self, len: u64) -> Run<Memory> {
        let rounded = len.max(1).checked_next_multiple_of(16).ok_or(Trouble::NoRoom { need: len })?;
        let memory = self.queue.alloc(rounded)?;
        if rounded != len {
            // Kernels read the padding with the last bytes; compute-sanitizer reports reads of uninitialized memory.
            self.queue.zero(&memory, rounded - 16..rounded)?;
        }
        Ok(memory)
    }

    /// Allocates memory for `window` of a stream.
    ///
    /// # Errors
    /// As for [`Queue::alloc`].
    pub fn span(&mut self, window: Range<u64>) -> Run<Span> {
        Ok(Span::new(self.alloc(window.end.saturating_sub(window.start))?, window))
    }

    /// Uploads `bytes`, padded with zeros to a multiple of 16.
    ///
    /// # Errors
    /// As for [`Queue::alloc`] and [`Queue::upload`].
    pub fn upload(&mut self, bytes: &[u8]) -> Run<Memory> {
        let memory = self.alloc(to_u64(bytes.len()))?;
        self.queue.upload(&memory, 0, bytes)?;
        Ok(memory)
    }

    /// Writes zeros to `span` from offset `from` to its end.
    ///
    /// # Errors
    /// As for [`Queue::zero`].
    pub fn clear(&mut self, span: &Span, from: u64) -> Run {
        if from >= span.len() {
            return Ok(());
        }
        Ok(self.queue.zero(&span.memory, span.at + from..span.at + span.len())?)
    }

    /// Writes zeros over `range` of `memory`.
    ///
    /// # Errors
    /// As for [`Queue::zero`].
    pub fn zero(&mut self, memory: &Memory, range: Range<u64>) -> Run {
        Ok(self.queue.zero(memory, range)?)
    }

    /// The same bytes, aligned to 16; copied if necessary.
    fn aligned(&mut self, span: Span) -> Run<Span> {
        if span.at.is_multiple_of(16) {
            return Ok(span);
        }
        let moved = self.span(span.range.clone())?;
        self.copy(&span, &moved)?;
        Ok(moved)
    }

    /// Copies `from` to the start of `to`, which must be aligned to 4.
    fn copy(&mut self, from: &Span, to: &Span) -> Run {
        let len = from.len().min(to.len());
        let kernel = Kernel { file: "copy", name: "copy" };
        self.launch(kernel, len.div_ceil(4 * 256), 256, &[from.arg(), to.arg(), Arg::U64(len)])
    }

    /// Copies `bytes` into `span` at offset `at`.
    fn write(&mut self, span: &Span, at: u64, bytes: &[u8]) -> Run {
        Ok(self.queue.upload(&span.memory, span.at + at, bytes)?)
    }

    /// Waits for all work so far; fails if it set the fault.
    fn check(&mut self) -> Run {
        let mut fault = [0; FAULT as usize];
        self.queue.download(&self.fault, 0, &mut fault)?;
        if fault == [0; FAULT as usize] { Ok(()) } else { Err(Stop::Broken) }
    }

    /// Fills `pieces`, in order, with the bytes of `span`.
    fn download(&mut self, span: &Span, pieces: &mut [&mut [u8]]) -> Run {
        let mut at = span.at;
        for piece in pieces {
            self.queue.download(&span.memory, at, piece)?;
            at += to_u64(piece.len());
        }
        Ok(())
    }

    /// Runs `kernel` with `grid` blocks of `block` threads. The job's fault is appended to `args` as the last argument.
    ///
    /// # Errors
    /// As for [`Queue::launch`]; fails with [`Stop::Broken`] if the grid is too large.
    pub fn launch(&mut self, kernel: Kernel, grid: u64, block: u32, args: &[Arg]) -> Run {
        let grid = u32::try_from(grid).ok().filter(|&grid| grid <= MOST_BLOCKS).ok_or(Stop::Broken)?;
        let args: Vec<Arg> = args.iter().copied().chain([Arg::Memory(&self.fault, 0)]).collect();
        Ok(self.queue.launch(kernel, grid, block, &args)?)
    }
}

impl fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({:?})", self.fault)
    }
}

/// Bytes of a fault.
const FAULT: u64 = 4;

/// Maximum number of blocks in a launch.
const MOST_BLOCKS: u32 = i32::MAX.cast_unsigned();
