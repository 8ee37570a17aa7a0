//! Stages undone on a device.
//!
//! Reference: section 10 of the FZM reference (independent units of each stage).
//!
//! A stream that a device can make says so by [`Stream::on_device`]: an [`Inverse`], and the stream that it reads. So
//! a stream is a chain of inverses down to one that the host reads, mostly a stored segment. What a stage takes from
//! the host beside its input (outliers, where chunks start) it uploads itself, for the window alone.
//!
//! [`Plan`] turns a stream into such a chain and decodes batches by it; some chains become one inverse.
//!
//! Adding a stage: one file beside this one with its `Inverse`, and `on_device` in its stream.
//!
//! Invariants: a launch that finds its input wrong sets the fault of its [`Job`], and reads and writes nothing outside
//! its buffers; what a job with a fault has made is thrown away, and the CPU says what is wrong.
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

/// Why a window was not made on the device. The CPU makes it, or says what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The device has no room, or is lost.
    Trouble(Trouble),
    /// What the window comes from is broken, or too large for a launch.
    Broken,
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<Error> for Stop {
    /// The error itself is for the CPU to find again.
    fn from(_: Error) -> Self {
        Self::Broken
    }
}

/// The result of work on the device.
pub type Run<T = ()> = std::result::Result<T, Stop>;

/// A stream as a device makes it.
pub struct Node {
    /// What undoes the stage.
    pub inverse: Box<dyn Inverse>,
    /// What it undoes: the stream of the stage's first forward output.
    pub input: Arc<dyn Stream>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} bytes of input)", self.input.len())
    }
}

/// The inverse of a stage on a device.
///
/// Windows that it is asked for start at multiples of [`Inverse::block`] and end at one or at the end of the stream;
/// they are not empty.
pub trait Inverse: Any + Send + Sync {
    /// Bytes of a block of output; at least 1. As many as the stream has, or more, where it is made as a whole: that is
    /// done once, and kept in device memory.
    fn block(&self) -> u64 {
        1
    }

    /// The bytes of the input that `window` comes from, which lie in the input.
    ///
    /// # Errors
    /// [`Stop::Broken`] where that cannot be said because something is broken.
    fn needs(&self, window: &Range<u64>) -> Run<Range<u64>>;

    /// Whether all of the input is needed for any window. It is then made once, and kept in device memory
    /// with what [`Inverse::index`] makes of it. [`Inverse::needs`] is not asked.
    fn is_whole(&self) -> bool {
        false
    }

    /// What else to keep: an index of the whole input. A fault that it sets is found before the first window.
    ///
    /// # Errors
    /// As [`Inverse::run`].
    fn index(&self, job: &mut Job, input: &Span) -> Run<Vec<Memory>> {
        let _ = (job, input);
        Ok(Vec::new())
    }

    /// Makes `window` out of the input that it needs, exactly that range of it, or all of it; `kept` is what
    /// [`Inverse::index`] made. Gives the window, or more around it.
    ///
    /// # Errors
    /// [`Stop::Trouble`] where work was refused, [`Stop::Broken`] for what the host finds wrong.
    fn run(&self, job: &mut Job, input: &Span, kept: &[Memory], window: Range<u64>) -> Run<Span>;
}

/// Bytes of a stream in device memory. The first of an input lies at a multiple of 16 bytes, and an input may be read
/// (not used) up to the next multiple of 16 behind its last.
#[derive(Debug, Clone)]
pub struct Span {
    memory: Memory,
    /// Where in the memory the range starts.
    at: u64,
    range: Range<u64>,
}

impl Span {
    /// `range` of a stream, at the front of `memory`.
    pub fn new(memory: Memory, range: Range<u64>) -> Self {
        Self { memory, at: 0, range }
    }

    /// Which bytes of the stream these are.
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// How many bytes these are.
    pub fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes `range` of the stream, which lie among these.
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

    /// A pointer to byte `at` of these; the caller has seen that there is one.
    pub fn arg_at(&self, at: u64) -> Arg<'_> {
        Arg::Memory(&self.memory, self.at.saturating_add(at))
    }
}

/// The work for one window: a queue, and the fault that its kernels set.
pub struct Job<'a> {
    queue: &'a mut dyn Queue,
    /// The most bytes that may be in use.
    room: u64,
    fault: Memory,
}

impl<'a> Job<'a> {
    /// A job without a fault.
    ///
    /// # Errors
    /// As [`Queue::alloc`].
    pub fn new(queue: &'a mut dyn Queue) -> Run<Self> {
        let fault = queue.alloc(FAULT)?;
        queue.zero(&fault, 0..FAULT)?;
        Ok(Self { queue, room: u64::MAX, fault })
    }

    /// Memory of `len` bytes, with any content, aligned to 256; zeros up to a multiple of 16 bytes.
    ///
    /// # Errors
    /// As [`Queue::alloc`].
    pub fn alloc(&mut self, len: u64) -> Run<Memory> {
        let rounded = len.max(1).checked_next_multiple_of(16).ok_or(Trouble::NoRoom { need: len })?;
        let memory = self.queue.alloc(rounded)?;
        if rounded != len {
            // Read with the last bytes, though not used: compute-sanitizer would be right to complain.
            self.queue.zero(&memory, rounded - 16..rounded)?;
        }
        Ok(memory)
    }

    /// Memory for `window` of a stream.
    ///
    /// # Errors
    /// As [`Queue::alloc`].
    pub fn span(&mut self, window: Range<u64>) -> Run<Span> {
        Ok(Span::new(self.alloc(window.end.saturating_sub(window.start))?, window))
    }

    /// Memory that holds `bytes`, and a multiple of 16 bytes.
    ///
    /// # Errors
    /// As [`Queue::alloc`] and [`Queue::upload`].
    pub fn upload(&mut self, bytes: &[u8]) -> Run<Memory> {
        let memory = self.alloc(to_u64(bytes.len()))?;
        self.queue.upload(&memory, 0, bytes)?;
        Ok(memory)
    }

    /// Writes zeros over the bytes of `span` from `from` on.
    ///
    /// # Errors
    /// As [`Queue::zero`].
    pub fn clear(&mut self, span: &Span, from: u64) -> Run {
        if from >= span.len() {
            return Ok(());
        }
        Ok(self.queue.zero(&span.memory, span.at + from..span.at + span.len())?)
    }

    /// Writes zeros over `range` of `memory`.
    ///
    /// # Errors
    /// As [`Queue::zero`].
    pub fn zero(&mut self, memory: &Memory, range: Range<u64>) -> Run {
        Ok(self.queue.zero(memory, range)?)
    }

    /// The same bytes, the first at a multiple of 16.
    fn aligned(&mut self, span: Span) -> Run<Span> {
        if span.at.is_multiple_of(16) {
            return Ok(span);
        }
        let moved = self.span(span.range.clone())?;
        self.copy(&span, &moved)?;
        Ok(moved)
    }

    /// Copies `from` to the front of `to`, which lies at a multiple of 4 bytes.
    fn copy(&mut self, from: &Span, to: &Span) -> Run {
        let len = from.len().min(to.len());
        let kernel = Kernel { file: "copy", name: "copy" };
        self.launch(kernel, len.div_ceil(4 * 256), 256, &[from.arg(), to.arg(), Arg::U64(len)])
    }

    /// Copies `bytes` into `span`, `at` bytes behind its first.
    fn write(&mut self, span: &Span, at: u64, bytes: &[u8]) -> Run {
        Ok(self.queue.upload(&span.memory, span.at + at, bytes)?)
    }

    /// Waits for all work so far; an error where it set the fault.
    fn check(&mut self) -> Run {
        let mut fault = [0; FAULT as usize];
        self.queue.download(&self.fault, 0, &mut fault)?;
        if fault == [0; FAULT as usize] { Ok(()) } else { Err(Stop::Broken) }
    }

    /// Fills `pieces`, one after the other, with the bytes of `span`.
    fn download(&mut self, span: &Span, pieces: &mut [&mut [u8]]) -> Run {
        let mut at = span.at;
        for piece in pieces {
            self.queue.download(&span.memory, at, piece)?;
            at += to_u64(piece.len());
        }
        Ok(())
    }

    /// Runs `kernel` with `grid` blocks of `block` threads; its last argument, after `args`, is the job's fault.
    ///
    /// # Errors
    /// As [`Queue::launch`]; [`Stop::Broken`] for a grid larger than there can be.
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

/// Blocks that a launch may have.
const MOST_BLOCKS: u32 = i32::MAX.cast_unsigned();
