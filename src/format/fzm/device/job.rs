//! The work for one window of a stream, and ranges of streams in device memory.
#![expect(unsafe_code, reason = "launches kernels")]

use std::fmt;
use std::ops::Range;

use super::fallback::{Fallback, OpResult};
use crate::bytes::to_u64;
use crate::gpu::{Arg, DeviceError, Download, Kernel, Memory, Queue};

/// A range of a stream in device memory. The first byte of an input is aligned to 16, and kernels may read (and ignore)
/// bytes after its end, up to the next multiple of 16.
#[derive(Debug, Clone)]
pub(super) struct Span {
    memory: Memory,
    /// Offset of the range in the memory.
    at: u64,
    range: Range<u64>,
}

impl Span {
    /// `range` of a stream, at the start of `memory`.
    pub(super) fn new(memory: Memory, range: Range<u64>) -> Self {
        Self { memory, at: 0, range }
    }

    /// The range of the stream.
    pub(super) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// The part for `range` of the stream; fails if it is outside.
    pub(super) fn part(mut self, range: Range<u64>) -> OpResult<Self> {
        if range.start < self.range.start || range.end > self.range.end {
            return Err(Fallback::Invalid);
        }
        self.at += range.start - self.range.start;
        self.range = range;
        Ok(self)
    }

    /// A pointer to the first byte.
    pub(super) fn arg(&self) -> Arg<'_> {
        self.arg_at(0)
    }

    /// A pointer to the byte at offset `at`, which the caller has checked.
    pub(super) fn arg_at(&self, at: u64) -> Arg<'_> {
        Arg::Memory(&self.memory, self.at.saturating_add(at))
    }
}

/// The work for one window: a queue, and the fault that its kernels set.
pub(super) struct DeviceJob<'a> {
    queue: &'a mut dyn Queue,
    /// Limit of device memory in bytes.
    pub(super) memory_limit: u64,
    fault: Memory,
}

impl<'a> DeviceJob<'a> {
    /// A job without a fault.
    ///
    /// # Errors
    /// As for [`Queue::alloc`].
    pub(super) fn new(queue: &'a mut dyn Queue) -> OpResult<Self> {
        let fault = queue.alloc(FAULT)?;
        queue.zero(&fault, 0..FAULT)?;
        Ok(Self { queue, memory_limit: u64::MAX, fault })
    }

    /// Allocates `len` bytes, uninitialized, aligned to 256, padded with zeros to a multiple of 16.
    ///
    /// # Errors
    /// As for [`Queue::alloc`].
    pub(super) fn alloc(&mut self, len: u64) -> OpResult<Memory> {
        let rounded = len.max(1).checked_next_multiple_of(16).ok_or(DeviceError::OutOfMemory { need: len })?;
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
    pub(super) fn span(&mut self, window: Range<u64>) -> OpResult<Span> {
        Ok(Span::new(self.alloc(window.end.saturating_sub(window.start))?, window))
    }

    /// Uploads `bytes`, padded with zeros to a multiple of 16.
    ///
    /// # Errors
    /// As for [`Queue::alloc`] and [`Queue::upload`].
    pub(super) fn upload(&mut self, bytes: &[u8]) -> OpResult<Memory> {
        let memory = self.alloc(to_u64(bytes.len()))?;
        self.queue.upload(&memory, 0, bytes)?;
        Ok(memory)
    }

    /// Writes zeros to `span` from offset `from` to its end.
    ///
    /// # Errors
    /// As for [`Queue::zero`].
    pub(super) fn clear(&mut self, span: &Span, from: u64) -> OpResult {
        if from >= span.len() {
            return Ok(());
        }
        Ok(self.queue.zero(&span.memory, span.at + from..span.at + span.len())?)
    }

    /// The same bytes, aligned to 16; copied if necessary.
    pub(super) fn aligned(&mut self, span: Span) -> OpResult<Span> {
        if span.at.is_multiple_of(16) {
            return Ok(span);
        }
        let moved = self.span(span.range.clone())?;
        self.copy(&span, &moved)?;
        Ok(moved)
    }

    /// Copies `from` to the start of `to`.
    ///
    /// # Errors
    /// As for [`Queue::copy`].
    pub(super) fn copy(&mut self, from: &Span, to: &Span) -> OpResult {
        Ok(self.queue.copy(&from.memory, from.at, &to.memory, to.at, from.len().min(to.len()))?)
    }

    /// Copies `bytes` into `span` at offset `at`.
    pub(super) fn write(&mut self, span: &Span, at: u64, bytes: &[u8]) -> OpResult {
        Ok(self.queue.upload(&span.memory, span.at + at, bytes)?)
    }

    /// Waits for all work so far; fails if it set the fault.
    pub(super) fn check(&mut self) -> OpResult {
        self.download(None, &mut [])
    }

    /// Fills `pieces`, in order, with the bytes of `span`, and waits for all work so far; fails if it set the fault.
    /// Everything is copied in one go.
    pub(super) fn download(&mut self, span: Option<&Span>, pieces: &mut [&mut [u8]]) -> OpResult {
        let mut fault = [0; FAULT as usize];
        let mut parts = Vec::with_capacity(pieces.len() + 1);
        if let Some(Span { memory, at, .. }) = span {
            let mut at = *at;
            for dst in pieces {
                parts.push(Download { memory, at, dst });
                at += to_u64(parts.last().map_or(0, |part| part.dst.len()));
            }
        }
        parts.push(Download { memory: &self.fault, at: 0, dst: &mut fault });
        self.queue.download(&mut parts)?;
        if fault == [0; FAULT as usize] { Ok(()) } else { Err(Fallback::Invalid) }
    }

    /// Runs `kernel` with `grid` blocks of `block` threads. The job's fault is appended to `args` as the last argument.
    ///
    /// # Errors
    /// As for [`Queue::launch`]; fails with [`Fallback::Invalid`] if the grid is too large.
    pub(super) fn launch(&mut self, kernel: Kernel, grid: u64, block: u32, args: &[Arg]) -> OpResult {
        let grid = u32::try_from(grid).ok().filter(|&grid| grid <= MOST_BLOCKS).ok_or(Fallback::Invalid)?;
        let args: Vec<Arg> = args.iter().copied().chain([Arg::Memory(&self.fault, 0)]).collect();
        // SAFETY: every operation passes the arguments that its kernel declares, with the lengths of its buffers; a kernel
        // that finds an index beyond them sets the fault and goes no further.
        Ok(unsafe { self.queue.launch(kernel, grid, block, &args) }?)
    }
}

impl fmt::Debug for DeviceJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceJob({:?})", self.fault)
    }
}

/// Bytes of a fault.
const FAULT: u64 = 4;

/// Maximum number of blocks in a launch.
const MOST_BLOCKS: u32 = i32::MAX.cast_unsigned();
